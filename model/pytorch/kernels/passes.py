"""Describes a pass through layers to the native kernels."""

from collections.abc import Mapping, Sequence
from ctypes import Array, addressof, byref, c_int64
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.encoder.attending.edits import Edit, Edits
from model.encoder.config import EncoderConfig
from model.encoder.interventions import join_heads
from model.encoder.packing import Packing
from model.encoder.plan import Plan
from model.pytorch.kernels import structures
from model.pytorch.kernels.buffers import Buffers
from model.pytorch.kernels.library import Kernels, check
from model.pytorch.kernels.observations import Observations
from model.pytorch.kernels.positions import PassPositions, pointers

_FEWER = 2
"""The last layer computes only the rows that are read if there are at least so many times as many in all."""


class PassKernels(NamedTuple):
    """Kernels that can run a pass, and the precision of all between its products."""

    kernels: Kernels
    dtype: torch.dtype
    constants: structures.Layers
    """What is the same in every pass; the other fields are null."""


class Pass(NamedTuple):
    """The arguments of one call, and what has to live as long as they are used."""

    layers: structures.Layers
    attention: structures.Attention
    kept: tuple[object, ...]


def rows_read(read: Sequence[Sequence[int] | None], packing: Packing) -> NDArray[np.int64] | None:
    """Return the rows of packed sequences that are `read` (see `Plan`); None if most are, or none."""
    if all(tokens is None for tokens in read):
        return None
    rows: list[int] = []
    for start, length, tokens in zip(packing.starts[:-1], packing.lengths, read, strict=True):
        rows += [start + token for token in (range(length) if tokens is None else tokens)]
    return np.array(rows) if 0 < len(rows) <= packing.tokens / _FEWER else None


def norm_read(norm: nn.Module, state: Tensor, plan: Plan, packing: Packing) -> Tensor:
    """Return a last hidden state normalised: a copy, or itself, changed only in the rows that are read."""
    rows = rows_read(plan.read, packing)
    if rows is None:
        return cast(Tensor, norm(state))
    state[rows] = norm(state[rows])
    return state


class Passes:
    """Describes passes through the layers of one encoder, which `layers` describes to the kernels."""

    def __init__(self, config: EncoderConfig, blocks: Sequence[Any], layers: Any) -> None:
        self._config = config
        self._blocks = blocks
        self._layers = layers
        self._nothing = pointers([None] * len(blocks))  # for each layer: nothing to record, nor to project

    def describe(
        self,
        kernels: PassKernels,
        buffers: Buffers,
        packing: Packing,
        positions: PassPositions,
        some: range,
        states: Mapping[int, Tensor],
        plan: Plan,
        *,
        projections: Mapping[int, Tensor] | None = None,
        first: int = 0,
        ends_observing: bool = False,
        edits: Edits | None = None,
    ) -> Pass:
        """Describe a pass from the hidden state in `buffers`, of sequences from `first` on, through layers.

        It runs the layers `some`, and writes their hidden `states` and `projections` (queries, keys and
        values). `edits` are the changes of its sequences, and say which of these run the layers.
        """
        tokens, size = buffers.x.shape
        config = self._config
        hidden = packing.unattended
        unattended = (c_int64 * len(hidden))(*hidden) if any(hidden) else None
        prefixes = _prefixes(packing)
        attention = structures.Attention(
            starts=packing.offsets.ctypes.data,
            unattended=unattended and addressof(unattended),
            tokens=tokens,
            sequences=len(packing.lengths),
            heads=config.num_heads,
            head_size=config.head_size,
            scale=config.score_scale,
            kv_heads=0 if config.kv_heads == config.num_heads else config.kv_heads,
            bias_length=positions.longest,
            causal=config.causal,
            prefixes=prefixes and addressof(prefixes),
        )
        into = pointers(states[n + 1].data_ptr() if n + 1 in states else None for n in some)
        recorded = projected = self._nothing
        if projections:
            projected = pointers(projections[n].data_ptr() if n in projections else None for n in some)
        if seen := plan.in_kernels:
            recorded = pointers(seen[n].address(first) if n in seen else None for n in some)
        blocks = [self._blocks[number] for number in some]
        angles, biases = positions.angles(blocks), positions.biases(blocks)
        distances = positions.distances(blocks)
        layers = structures.Layers.from_buffer_copy(kernels.constants)
        layers.layers = addressof(self._layers[some.start])
        layers.count, layers.tokens, layers.size = len(some), tokens, size
        layers.x, layers.stream = buffers.x.data_ptr(), buffers.stream.data_ptr()
        for name, address in buffers.addresses.items():
            setattr(layers, name, address)
        layers.states, layers.projections = addressof(into), addressof(projected)
        layers.observations, layers.attention = addressof(recorded), addressof(attention)
        layers.ends_observing = ends_observing
        layers.angles = angles and addressof(angles)
        layers.biases = biases and addressof(biases)
        layers.distances = distances and addressof(distances)
        layers.precise = bool(plan.observers or plan.in_kernels)
        layers.progress = plan.progress.address
        chosen = None
        if some.stop == len(self._blocks) and not ends_observing:
            chosen = rows_read(plan.read[first : first + len(packing.lengths)], packing)
        if chosen is not None:
            layers.chosen, layers.chosen_count = chosen.ctypes.data, len(chosen)
        changes = None
        if edits is not None:
            changes = Changes(edits, some, len(packing.lengths), config.num_heads)
            layers.interventions = changes.address
            running = edits.running(some.start)
            if running < len(packing.lengths):
                attention.sequences = running
                layers.tokens = attention.tokens = packing.starts[running]
        kept = (buffers, packing, positions, unattended, into, projected, recorded, angles, biases, distances)
        return Pass(layers, attention, (*kept, prefixes, changes, chosen, plan.progress))


def _prefixes(packing: Packing) -> Array[structures.Prefix] | None:
    """Describe the prefixes of sequences by the rows of their carriers; None without any."""
    if not any(packing.prefixes):
        return None
    described = (structures.Prefix * len(packing.lengths))()
    for place, one in zip(described, packing.prefixes, strict=True):
        if one is not None:
            place.first, place.length = packing.starts[one.carrier], one.length
    return described


class Changes:
    """What is changed in the attention of sequences of H heads, in some layers, as the kernels read it."""

    def __init__(self, edits: Edits, some: range, sequences: int, heads: int) -> None:
        self._alive: list[object] = []  # the kernels hold their addresses
        self._heads = heads
        self._layers = pointers(self._layer(edits.of_layer(n), sequences) for n in some)

    @property
    def address(self) -> int:
        """Where the pointers of the layers are."""
        return addressof(self._layers)

    def _layer(self, edits: Sequence[Edit], sequences: int) -> int | None:
        if not edits:
            return None
        changed = (structures.Intervention * sequences)()
        scales = np.ones((len(edits), self._heads), np.float32)
        means = np.zeros(scales.shape, np.uint8)
        scales_at, means_at = self._kept(scales), self._kept(means)
        for i, edit in enumerate(edits):
            one, edges = changed[edit.number], edit.edges
            if edit.scales:
                join_heads(edit.scales, scales[i], means[i])
                one.scales, one.means = scales_at + i * scales.strides[0], means_at + i * self._heads
            if edges:
                every = edges.all
                self._alive.append(every)
                one.words, one.length = every.count, every.length
                one.heads = self._kept(edges.of_heads(self._heads))
                one.queries, one.keys = every.queries.ctypes.data, every.keys.ctypes.data
        self._alive.append(changed)
        return addressof(changed)

    def _kept(self, array: NDArray[Any]) -> int:
        self._alive.append(array)
        return array.ctypes.data


class Attended:
    """The attention of a layer that kernels have run, which they can run again to observe more of it.

    `described` is the pass that ran the layer; `qkv` are the queries, keys and values side by side.
    """

    def __init__(
        self,
        kernels: Kernels,
        described: Pass,
        config: EncoderConfig,
        block: object,
        qkv: Tensor,
        positions: PassPositions,
    ) -> None:
        self._kernels = kernels
        queries, keys, _ = (rows * qkv.element_size() for rows in config.qkv_rows)
        self._attention = structures.Attention.from_buffer_copy(described.attention)
        self._attention.q = qkv.data_ptr()
        self._attention.k = qkv.data_ptr() + queries
        self._attention.v = qkv.data_ptr() + queries + keys
        self._attention.token_stride = sum(config.qkv_rows)
        self._attention.window = block.attention.layer.window  # type: ignore[attr-defined]
        self._attention.steps = described.layers.progress  # the address of its first count, that of steps
        self._listed = positions.biases([block]), positions.distances([block])
        self._attention.bias, self._attention.distances = (one and one[0] for one in self._listed)
        self._kept = qkv, positions, described.kept
        self.heads, self.sequences = config.num_heads, described.attention.sequences

    def observe(self, observations: Observations) -> None:
        """Compute what is to be recorded of each sequence, and no outputs."""
        self._attention.observations = observations.address(0)
        check(self._kernels.attend(byref(self._attention)))
