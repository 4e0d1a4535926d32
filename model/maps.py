"""The maps that are asked for, and no more of them: chosen heads, rows and columns, as they are wanted."""

from collections.abc import Iterable
from typing import cast

import numpy as np
import torch
from torch import Tensor

from model.attention import chosen
from model.blocks import Layer
from model.kept import Kept
from model.selection import Heads, IntArray, Units, in_blocks, unless_in_order
from model.types import Aggregate, AttentionWant, Output


class Maps:
    """The maps of `count` neighbouring sequences of `length` tokens that want the same."""

    def __init__(self, want: AttentionWant, count: int, length: int) -> None:
        self._want = want
        self._length = length
        self._count = count
        self._heads = Heads(want.heads)
        self._rows = Units(want.queries, length)
        numbers, places = np.unique(want.layers, return_inverse=True)
        self.layers: list[int] = numbers.tolist()
        axes = [(len(numbers), unless_in_order(places)), (len(self._rows), self._rows.places)]
        if want.aggregate == "none":
            axes.insert(1, (len(self._heads), unless_in_order(self._heads.places)))
        shape, orders = zip(*axes, strict=True)
        self._kept = Kept(want, count, shape, orders, Units(want.keys, length))

    def look(self, number: int, layer: Layer) -> None:
        """Compute one layer."""
        place = self.layers.index(number)
        sizes = (self._count, len(self._heads), len(self._rows))
        for sequences, rows, parts in in_blocks(*sizes, self._length * self._rows.longest):
            starts = self._rows.merged(rows)
            blocks = layer.parts(self._want.weights, sequences, self._heads, parts, self._rows.tokens(rows))
            if self._want.aggregate != "none":
                weights = over_heads(blocks, self._want.aggregate, self._heads)
                store(self._kept, weights, (sequences, place, rows), starts)
                continue
            for part, weights in blocks:
                store(self._kept, weights, (sequences, place, part, rows), starts)

    def of(self, index: int) -> Output:
        """Give what one sequence wants."""
        return self._kept.of(index)


class Rollout:
    """Attention followed through the layers, from 0 to the last that is wanted: R = Â_last … Â_0.

    Â = ½(A + I), with A the mean over the heads (Abnar & Zuidema 2020, §3). Looks and gives like `Maps`.
    """

    def __init__(self, want: AttentionWant, count: int, length: int, device: torch.device) -> None:
        self.layers = list(range(max(want.layers) + 1))
        self._heads = Heads(want.heads)
        self._every, self._rows = (Units(axis, length) for axis in (None, want.queries))
        columns = Units(want.keys, length)
        self._kept = Kept(want, count, [len(self._rows)], [self._rows.places], columns)
        self._flow = torch.eye(length, device=device).repeat(count, 1, 1)  # (b, N, N)

    def look(self, number: int, layer: Layer) -> None:
        """Go through one more layer; of the last one only the wanted rows are computed."""
        if number < self.layers[-1]:
            self._flow = self._through(layer, self._every)
            return
        every = slice(0, len(self._rows))
        flow = self._through(layer, self._rows)
        store(self._kept, flow, (slice(0, len(flow)), every), self._rows.merged(every))

    def _through(self, layer: Layer, rows: Units) -> Tensor:
        """Multiply rows of this layer's Â with what came before: (b, rows, N)."""
        count, length, _ = self._flow.shape
        after = chosen(self._flow, 1, rows.tokens(slice(0, len(rows))))
        attention = torch.empty_like(after)
        for sequences, some, parts in in_blocks(count, len(self._heads), len(rows), length * rows.longest):
            blocks = layer.parts("probability", sequences, self._heads, parts, rows.tokens(some))
            attention[sequences, rows.span(some)] = over_heads(blocks, "mean", self._heads)
        return torch.baddbmm(after, attention, self._flow, beta=0.5, alpha=0.5)

    def of(self, index: int) -> Output:
        """Give what one sequence wants."""
        return self._kept.of(index)


def over_heads(blocks: Iterable[tuple[slice, Tensor]], how: Aggregate, heads: Heads) -> Tensor:
    """Aggregate weights (b, heads, rows, N), given in parts of the heads: (b, rows, N).

    A head that is listed twice counts twice in the mean.
    """
    total: Tensor | None = None
    for part, weights in blocks:
        if how == "max":
            some = weights.amax(1)
            total = some if total is None else torch.maximum(total, some)
        else:
            shares = torch.from_numpy(heads.shares[part]).to(weights.device)
            some = torch.einsum("h,bhrn->brn", shares, weights)
            total = some if total is None else total.add_(some)
    return cast(Tensor, total)


def store(kept: Kept, weights: Tensor, where: tuple[int | slice, ...], starts: IntArray | None) -> None:
    """Hand rows of weights (b, …, rows, N) over; what can be smaller before it leaves the device, is."""
    if kept.columns is not None:
        weights = chosen(weights, -1, kept.columns)
    if kept.only_rounds(starts) and kept.dtype == np.float16:
        finite = weights.flatten(1).sum(1).isfinite()
        kept.put(weights.half().cpu().numpy(), where, finite.cpu().numpy())
    else:
        kept.store(weights.cpu().numpy(), where, starts)
