"""What kernels record arrives where it is wanted: a stand-in fills the same memory, on any processor."""

import ctypes
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import resolve
from model.choices import Axis
from model.contract import STATISTICS, AttentionWant, Batch, Output, SentenceWant, SummaryWant, Want
from model.encoder.attention import SelfAttention
from model.encoder.block import Block
from model.encoder.convolution import convolve_packed
from model.encoder.encoder import Encoder
from model.encoder.packing import Packing
from model.encoder.plan import Plan
from model.pytorch.backend import TorchBackend
from model.pytorch.kernels.structures import Observation
from tests.references import measures
from tests.references.checkpoints import MINILM
from tests.references.comparing import distance
from tests.support.product import minilm

LENGTHS = (5, 9, 5, 12, 9, 1, 5, 9, 9, 12)
SUMMARY = SummaryWant((4, 1, 4), (11, 2, 2), (0,))
WANTS = (
    Want(attention=AttentionWant((5, 0, 5), (3, 1, 1)), summary=SUMMARY),
    Want(
        token_layers=(2,),
        attention=AttentionWant((2,), tuple(range(12)), queries=Axis((8, 0)), dtype="float16"),
    ),
    Want(summary=SUMMARY),
    Want(SentenceWant(layers=(6,)), attention=AttentionWant((1, 2), (0,), aggregate="mean")),
    Want(attention=AttentionWant((3,), (7, 2), dtype="uint8"), summary=SUMMARY),
    Want(attention=AttentionWant((1,), (4,))),
    Want(attention=AttentionWant((2,), (4,), keys=Axis((0,))), summary=SUMMARY),
    Want(attention=AttentionWant((3, 1), (7, 2, 7), thumbnail=3), summary=SUMMARY),
    Want(
        attention=AttentionWant(
            (3,), (7,), queries=Axis((8, 8, 2, 0)), keys=Axis((5, 0, 4, 7, 6)), thumbnail=2
        )
    ),
    Want(attention=AttentionWant((3,), (7,), queries=Axis((1, 2, 1)), thumbnail=2)),
)


def memory(address: int, kind: Any, *shape: int) -> NDArray[Any]:
    """View what lies at an address."""
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(kind)), shape)


def record(one: Observation, weights: NDArray[np.float64]) -> None:
    """Write what is wanted of the weights (H, N, N) of a sequence to where interface.h says it goes."""
    heads, length, _ = weights.shape
    if one.maps:
        kind = ctypes.c_uint16 if one.half else ctypes.c_float
        out = memory(one.maps, kind, one.map_heads, one.map_rows, length)
        out = out.view(np.float16) if one.half else out
        slots = memory(one.head_slots, ctypes.c_int32, heads)
        rows = memory(one.row_slots, ctypes.c_int32, length) if one.row_slots else np.arange(length)
        for head, row in np.ndindex(heads, length):
            if slots[head] >= 0 and rows[row] >= 0:
                out[slots[head], rows[row]] = weights[head, row]
    if one.thumbnails:
        out = memory(one.thumbnails, ctypes.c_float, one.thumbnail_heads, one.row_cells, one.column_cells)
        slots = memory(one.thumbnail_slots, ctypes.c_int32, heads)
        cells = memory(one.cell_of_row, ctypes.c_int32, length)
        spans = memory(one.columns, ctypes.c_int32, one.spans, 3).tolist()
        for head, row in np.ndindex(heads, length):
            for column, start, stop in spans if slots[head] >= 0 <= cells[row] else ():
                place = slots[head], cells[row], column
                out[place] = max(out[place], weights[head, row, start:stop].max())
    if one.statistics:
        out = memory(one.statistics, ctypes.c_float, one.statistic_heads, len(STATISTICS))
        slots = memory(one.statistic_slots, ctypes.c_int32, heads)
        measured = measures.summary(weights, memory(one.special, ctypes.c_float, length) > 0)  # type: ignore[arg-type]
        for head in np.flatnonzero(slots >= 0):
            out[slots[head]] = [measured[name][head] for name in STATISTICS]


class StandIn:
    """Runs blocks one by one, and records as the kernels do."""

    products = None

    def __init__(self, encoder: Encoder) -> None:
        self._blocks = [cast(Block, block) for block in encoder.blocks]
        self.recorded = 0

    def __call__(self, x: Tensor, packing: Packing, plan: Plan) -> dict[int, Tensor]:
        """Run all blocks, as `model.encoder.encoder.Executor` says."""
        states = {}
        for layer, block in enumerate(self._blocks):
            observe = partial(self._observe, plan, layer, packing)
            attention = cast(SelfAttention, block.attention)
            attend = partial(attention, packing=packing, rotary=None, bias=None, observe=observe)
            x = block(x, attend, partial(convolve_packed, packing=packing))
            if layer + 1 in plan.states:
                states[layer + 1] = x
        return states

    def _observe(
        self,
        plan: Plan,
        layer: int,
        packing: Packing,
        attention: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: None,
    ) -> None:
        if layer in plan.observers:
            plan.observers[layer](attention, q, k, v, None)
        if layer in plan.in_kernels:
            self._record(plan.in_kernels[layer], packing, q, k)

    def _record(self, observations: Any, packing: Packing, q: Tensor, k: Tensor) -> None:
        each = (Observation * len(packing.lengths)).from_address(observations.address(0))
        for one, start, length in zip(each, packing.starts, packing.lengths, strict=False):
            rows = slice(start, start + length)
            scores = torch.einsum("nhd,mhd->hnm", q[rows].double(), k[rows].double()) / q.shape[-1] ** 0.5
            record(one, torch.softmax(scores, -1).numpy())
            self.recorded += bool(one.maps) + bool(one.statistics) + bool(one.thumbnails)


def test_what_is_recorded_is_what_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen heads, rows and layers of sequences of several lengths, repeats and float16 included."""
    ids = np.random.default_rng(0).integers(1000, 20000, sum(LENGTHS))
    batch = Batch(ids, np.zeros_like(ids), np.concatenate([[0], np.cumsum(LENGTHS)]), WANTS)
    backend = TorchBackend(load_checkpoint(resolve(MINILM)), device="cpu", dtype="float32", native=False)
    stand_in = StandIn(backend.encoder)
    monkeypatch.setattr(backend.encoder, "executor", stand_in)
    monkeypatch.setattr(backend, "_kernels", stand_in)
    for found, expected in zip(backend.run(batch), minilm().run(batch), strict=True):
        compare(found, expected)
    # Plain maps: two layers of the first, one of the second and of the sixth; two layers of five summaries.
    # Thumbnails: two layers of one, and one of the next; the last has a row in two cells.
    assert stand_in.recorded == 2 + 1 + 1 + 2 * 5 + 2 + 1


def compare(found: Output, expected: Output) -> None:
    """The same numbers in the same form."""
    for name in ("attention", "tokens", "thumbnails"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert ours.dtype == theirs.dtype
            bound = {"float32": 2e-5, "float16": 1e-3, "uint8": 1}[ours.dtype.name]
            assert distance(ours, theirs) <= bound
    assert (found.summary is None) == (expected.summary is None)
    for name, values in (expected.summary or {}).items():
        assert found.summary is not None
        assert distance(found.summary[name], values) <= 2e-5, name
