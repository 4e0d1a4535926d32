"""The maps that are asked for, and no more of them: chosen heads, rows and columns, as they are wanted."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model import measures
from model.attention import Indices, chosen
from model.blocks import Heads, Layer, in_blocks, neighbours
from model.types import Aggregate, AttentionWant, Axis, Output, Top

IntArray = NDArray[np.int64]


class Units:
    """What a map has rows or columns of, each once, in order: tokens, or words made of their pieces.

    `positions` are what they are called. `places` say which of them stands where it was listed, and `counts`
    how often; both are None where each is listed once and in order.
    """

    def __init__(self, axis: Axis | None, length: int, device: torch.device) -> None:
        self._device = device
        self.places: IntArray | None = None
        self.counts: IntArray | None = None
        self.positions = np.arange(length)
        if axis is not None:
            self.positions, places, counts = np.unique(
                np.array(axis.positions, np.int64), return_inverse=True, return_counts=True
            )
            self.places = _unless_in_order(places)
            self.counts = None if self.places is None else counts
        if axis is None or axis.tokens is None or axis.starts is None:
            self.words = False
            self._tokens, self._starts = self.positions, np.arange(len(self.positions) + 1)
        else:
            self.words = True
            self._tokens = np.array(axis.tokens, np.int64)
            self._starts = np.array((*axis.starts, len(axis.tokens)), np.int64)
        self.every = axis is None

    def __len__(self) -> int:
        """Count them."""
        return len(self.positions)

    @property
    def longest(self) -> int:
        """The tokens of the longest word."""
        return int(np.diff(self._starts).max(initial=1))

    def span(self, part: slice) -> slice:
        """Say where the tokens of some of them lie among the tokens of all."""
        return slice(int(self._starts[part.start]), int(self._starts[part.stop]))

    def tokens(self, part: slice) -> Indices:
        """Choose the tokens of some of them."""
        return neighbours(self._tokens[self.span(part)], self._device)

    def merged(self, part: slice) -> IntArray | None:
        """Say where, among those tokens, each begins; None where each is one token."""
        return self._starts[part] - self._starts[part.start] if self.words else None


class Kept:
    """What is kept of the maps of `count` sequences, in the dtype that it is wanted in.

    `shape` is that of one map but for its columns. `places` say, axis by axis of it, in which order what is
    kept was listed. Nothing is kept or computed twice, however often it is listed.
    """

    def __init__(
        self,
        want: AttentionWant,
        count: int,
        shape: Sequence[int],
        places: Sequence[IntArray | None],
        columns: Units,
    ) -> None:
        self._want = want
        self._columns = columns
        self._places = places if want.top_k is not None else (*places, columns.places)
        every = slice(0, len(columns))
        self._tokens = None if columns.every else columns.tokens(every)
        self._starts = columns.merged(every)
        self._plain = want.top_k is None and not want.renormalize and not columns.words
        self._finite = np.ones(count, bool)
        self._map: NDArray[Any] | None = None
        self._top: Top | None = None
        if want.top_k is None:
            self._map = np.empty((count, *shape, len(columns)), want.dtype)
        else:
            k = min(want.top_k, len(columns))
            self._top = Top(
                np.empty((count, *shape, k), np.int32),
                np.empty((count, *shape, k), np.float32),
                np.empty((count, *shape), np.float32),
            )

    def store(self, weights: Tensor, where: tuple[int | slice, ...], starts: IntArray | None) -> None:
        """Take rows of weights (b, …, rows, N), merge, rescale and sort them as wanted, and keep them.

        `where` is their place in what is kept; `starts` says where each row of a word begins among them.
        """
        if self._tokens is not None:
            weights = chosen(weights, -1, self._tokens)
        if self._plain and starts is None:
            self._keep(weights, where)
            return
        rows = measures.merge_pieces(weights.cpu().numpy(), rows=starts, columns=self._starts)
        if self._want.renormalize:
            rows = measures.renormalize(rows, None if self._top else self._columns.counts)
        if self._top is None:
            self._keep(torch.from_numpy(rows), where)
            return
        found = measures.top_k(rows, self._top.keys.shape[-1], self._columns.positions)
        self._top.keys[where], self._top.weights[where], self._top.residual[where] = found

    def _keep(self, weights: Tensor, where: tuple[int | slice, ...]) -> None:
        target = torch.from_numpy(cast("NDArray[Any]", self._map)[where])
        if target.dtype != torch.float32:
            self._finite[where[0]] &= weights.flatten(1).sum(1).isfinite().cpu().numpy()
        if target.dtype == torch.uint8:
            weights = (weights * 255).round_().clamp_(0, 255)
        target.copy_(weights)

    def of(self, index: int) -> Output:
        """Give what one sequence wants, each axis as it was listed."""

        def listed(array: NDArray[Any]) -> NDArray[Any]:
            one: NDArray[Any] = array[index]
            for axis, places in enumerate(self._places):
                one = one if places is None else one.take(places, axis)
            return one

        if self._map is not None:
            return Output(attention=listed(self._map), finite=bool(self._finite[index]))
        top = cast(Top, self._top)
        return Output(top=Top(listed(top.keys), listed(top.weights), listed(top.residual)))


class Maps:
    """The maps of `count` neighbouring sequences of `length` tokens that want the same."""

    def __init__(self, want: AttentionWant, count: int, length: int, device: torch.device) -> None:
        self._want = want
        self._length = length
        self._count = count
        self._heads = Heads(want.heads, device)
        self._rows = Units(want.queries, length, device)
        numbers, places = np.unique(want.layers, return_inverse=True)
        self.layers: list[int] = numbers.tolist()
        axes = [(len(numbers), _unless_in_order(places)), (len(self._rows), self._rows.places)]
        if want.aggregate == "none":
            axes.insert(1, (len(self._heads), _unless_in_order(self._heads.places)))
        shape, orders = zip(*axes, strict=True)
        self._kept = Kept(want, count, shape, orders, Units(want.keys, length, device))

    def look(self, number: int, layer: Layer) -> None:
        """Compute one layer."""
        place = self.layers.index(number)
        sizes = (self._count, len(self._heads), len(self._rows))
        for sequences, rows, parts in in_blocks(*sizes, self._length * self._rows.longest):
            starts = self._rows.merged(rows)
            blocks = layer.parts(self._want.weights, sequences, self._heads, parts, self._rows.tokens(rows))
            if self._want.aggregate != "none":
                weights = over_heads(blocks, self._want.aggregate, self._heads)
                self._kept.store(weights, (sequences, place, rows), starts)
                continue
            for part, weights in blocks:
                self._kept.store(weights, (sequences, place, part, rows), starts)

    def of(self, index: int) -> Output:
        """Give what one sequence wants."""
        return self._kept.of(index)


class Rollout:
    """Attention followed through the layers, from 0 to the last that is wanted: R = Â_last … Â_0.

    Â = ½(A + I), with A the mean over the heads (Abnar & Zuidema 2020, §3). Looks and gives like `Maps`.
    """

    def __init__(self, want: AttentionWant, count: int, length: int, device: torch.device) -> None:
        self.layers = list(range(max(want.layers) + 1))
        self._heads = Heads(want.heads, device)
        self._every, self._rows = (Units(axis, length, device) for axis in (None, want.queries))
        columns = Units(want.keys, length, device)
        self._kept = Kept(want, count, [len(self._rows)], [self._rows.places], columns)
        self._flow = torch.eye(length, device=device).repeat(count, 1, 1)  # (b, N, N)

    def look(self, number: int, layer: Layer) -> None:
        """Go through one more layer; of the last one only the wanted rows are computed."""
        if number < self.layers[-1]:
            self._flow = self._through(layer, self._every)
            return
        every = slice(0, len(self._rows))
        flow = self._through(layer, self._rows)
        self._kept.store(flow, (slice(0, len(flow)), every), self._rows.merged(every))

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
            some = torch.einsum("h,bhrn->brn", heads.shares[part], weights)
            total = some if total is None else total.add_(some)
    return cast(Tensor, total)


def _unless_in_order(places: IntArray) -> IntArray | None:
    """Forget places that change nothing."""
    return None if np.array_equal(places, np.arange(len(places))) else places
