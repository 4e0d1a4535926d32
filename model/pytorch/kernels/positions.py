"""What the layers of one pass need of positions, laid out for the native kernels."""

from collections.abc import Callable, Iterable, Sequence
from ctypes import Array, addressof, c_void_p
from typing import Any

import torch
from torch import Tensor

from model.encoder.attending.disentangled import PositionVectors
from model.encoder.attention import Angles, Bias
from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.encoder.packing import Packing
from model.encoder.parts import Rotary
from model.encoder.positions import rotary_angles
from model.pytorch.kernels import structures
from model.pytorch.kernels.library import LINE, NoKernels


class Vectors:
    """The keys and the queries of distances of one layer, in panels of `columns` words each."""

    def __init__(
        self, keys: Tensor | None, queries: Tensor | None, lay_out: Callable[[Tensor], Tensor]
    ) -> None:
        """Lay out vectors (H, R, D), those of each head with `lay_out`, as a matrix (R, D)."""
        self.number = next(len(one[0]) for one in (keys, queries) if one is not None)
        self._panels = [
            None if one is None else torch.stack([lay_out(head) for head in one]) for one in (keys, queries)
        ]
        if any(one is not None and one.data_ptr() % LINE for one in self._panels):
            raise NoKernels("this build of PyTorch does not align its memory to cache lines")

    def of(self, rows: Tensor) -> structures.Distances:
        """Describe them to the kernels; the caller keeps `rows`, int32 (2·longest − 1,), alive."""
        keys, queries = (None if one is None else one.data_ptr() for one in self._panels)
        return structures.Distances(
            keys=keys, queries=queries, rows=rows.data_ptr(), number=self.number, length=len(rows) // 2 + 1
        )


class AngleTables:
    """The angles of an encoder's rotary positions, kept for the passes to come.

    To compute them again would take a twentieth of the time of one short text.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self._kinds = {layer.rotary for layer in config.layers if layer.rotary is not None}
        self._tables: tuple[int, dict[Rotary, Angles]] = (0, {})  # first, how many positions they have

    def of(self, packing: Packing, rows: int) -> dict[Rotary, Angles]:
        """Return cosines and sines, float32 (rows, 1, angles), of each kind; padding is at position 0."""
        if not self._kinds:
            return {}
        tables = self._reaching(max(1, packing.longest))
        if packing.lengths == (rows,):
            return {kind: (cos[:rows], sin[:rows]) for kind, (cos, sin) in tables.items()}
        positions = packing.positions(torch.device("cpu"), rows - packing.tokens)
        return {kind: (cos[positions], sin[positions]) for kind, (cos, sin) in tables.items()}

    def _reaching(self, length: int) -> dict[Rotary, Angles]:
        """Return tables of at least `length` positions, which the caller may keep while others are made."""
        reached, tables = self._tables
        if length > reached:
            longer = 2 ** (length - 1).bit_length()
            positions = torch.arange(longer)
            tables = {kind: rotary_angles(positions, kind) for kind in self._kinds}
            self._tables = (longer, tables)
        return tables


class PassPositions:
    """What the positions of one pass need: rotary angles, score biases and distance vectors."""

    def __init__(
        self, encoder: Encoder, packing: Packing, rows: int, tables: AngleTables, vectors: dict[Any, Vectors]
    ) -> None:
        """Prepare one pass; `vectors` has those of each block if attention is disentangled, else none."""
        config = encoder.config
        self.longest = max(1, packing.longest)
        self._rotary = tables.of(packing, rows)
        self._bias = encoder.biases(packing)
        self._scale = config.score_scale
        self._scaled: dict[int, Tensor] = {}  # by the tensor that is scaled
        self._biased, self._vectors = config.biased, vectors
        self._rows: Tensor | None = None
        self._angles = {
            rotary: structures.Angles(
                cos=cos.data_ptr(), sin=sin.data_ptr(), pairs=cos.shape[-1], interleaved=rotary.interleaved
            )
            for rotary, (cos, sin) in self._rotary.items()
        }
        self._distances: dict[Any, structures.Distances] = {}

    def bias(self, attention: Any) -> Bias | None:
        """Return what is added to the scores of a layer, for observers in Python."""
        return self._bias(attention)

    def angles(self, blocks: Sequence[Any]) -> Array[c_void_p] | None:
        """List the address of each layer's `Angles`; None if no layer has rotary positions."""
        if not self._angles:
            return None
        found = [self._angles.get(block.attention.layer.rotary) for block in blocks]
        return pointers(None if one is None else addressof(one) for one in found)

    def biases(self, blocks: Sequence[Any]) -> Array[c_void_p] | None:
        """List the address of each layer's bias, divided by the scale; None if no layer has one."""
        if not self._biased:
            return None
        return pointers(self._divided(block.attention).data_ptr() for block in blocks)

    def distances(self, blocks: Sequence[Any]) -> Array[c_void_p] | None:
        """List the address of each layer's `Distances`; None without disentangled attention."""
        if not self._vectors:
            return None
        for block in blocks:
            if self._rows is None:
                bias = self._bias(block.attention)
                assert isinstance(bias, PositionVectors)  # noqa: S101 - for the type checker
                self._rows = bias.rows.to(torch.int32)
            self._distances[block] = self._vectors[block].of(self._rows)
        return pointers(addressof(self._distances[block]) for block in blocks)

    def _divided(self, attention: Any) -> Tensor:
        bias = self._bias(attention)
        assert isinstance(bias, Tensor)  # noqa: S101 - for the type checker: asked for only where there is one
        key = id(attention if attention.relative_bias is not None else self)
        if key not in self._scaled:
            self._scaled[key] = (bias.float() / self._scale).contiguous()
        return self._scaled[key]


def pointers(addresses: Iterable[int | None]) -> Array[c_void_p]:
    """Return an array of addresses, null for None."""
    listed = list(addresses)
    return (c_void_p * len(listed))(*listed)
