"""Statistics of attention maps that are never built: block by block, in memory bounded by the block.

`tests/references/measures.py` has each statistic by its formula, over whole maps; it proves these.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from model.contract import STATISTICS, FloatArray, Statistic, SummaryWant
from model.encoder.attention import chosen
from model.inspection.blocks import Layer
from model.inspection.selection import Heads, IntArray, Units, in_blocks


class Summaries:
    """The statistics of `count` neighbouring sequences of `length` tokens that want the same."""

    def __init__(self, want: SummaryWant, count: int, length: int, device: torch.device) -> None:
        self.layers = sorted(set(want.layers))
        self._want = want
        self._heads = Heads(want.heads)
        self._length = length
        self._units = Units(want.units, length)
        self._special = torch.tensor(want.special, dtype=torch.int64, device=device)
        self._position = torch.arange(len(self._units), dtype=torch.float32, device=device)
        self._means = np.zeros((len(self.layers), count, len(self._heads), len(STATISTICS)), np.float32)

    @property
    def plain(self) -> bool:
        """Whether the rows and columns are those of every token."""
        return self._units.every

    @property
    def heads(self) -> IntArray:
        """The numbers of the heads that are wanted, each once."""
        return self._heads.numbers

    @cached_property
    def special(self) -> FloatArray:
        """Which tokens are special: float32 (N,), 1 where one is."""
        special = np.zeros(self._length, np.float32)
        special[self._special.numpy()] = 1
        return special

    def buffer(self, number: int) -> FloatArray:
        """Give the buffer that a kernel fills while one layer attends; only where the want is `plain`.

        The statistics, float32 (b, heads, 10), in the order of `STATISTICS`.
        """
        return self._means[self.layers.index(number)]

    def look(self, number: int, layer: Layer) -> None:
        """Measure one layer; nothing is computed but the statistics that are wanted."""
        names, units = self._want.statistics, self._units
        means = self._means[self.layers.index(number)]  # (b, heads, statistics)
        count, heads = means.shape[:2]
        sums = torch.zeros((len(names), count, heads), dtype=torch.float64, device=self._position.device)
        for sequences, rows, parts in in_blocks(count, heads, len(units), self._length * units.longest):
            for part in parts:
                scores = layer.weights("score", sequences, self._heads.some(part), units.tokens(rows))
                block = self._block(scores, rows)
                by_row = [BY_ROW[name](block) for name in names]
                sums[:, sequences, part] += torch.stack([x.sum(-1, dtype=torch.float64) for x in by_row])
        places = [STATISTICS.index(name) for name in names]
        means[..., places] = (sums / max(1, len(units))).permute(1, 2, 0).cpu().numpy()

    def _block(self, scores: Tensor, rows: slice) -> "Block":
        """Make weights of scores (b, heads, tokens of the rows, N), and of the tokens what rows there are."""
        scores -= scores.amax(-1, keepdim=True)
        p = torch.softmax(scores, dim=-1)
        if self.plain:
            return Block(p, rows.start, self._special, self._position, scores)
        units, every = self._units, slice(0, len(self._units))
        p = chosen(p, -1, units.tokens(every))
        columns, pieces = units.merged(every), units.merged(rows)
        if columns is not None and pieces is not None:
            lengths = torch.from_numpy(np.diff(pieces, append=p.shape[-2])).to(p.device)
            p = merge(merge(p, columns, -1), pieces, -2) / lengths[:, None]
        if self._want.renormalize:
            sums = p.sum(-1, keepdim=True)
            p = torch.where(sums > 0, p / sums, 0 * sums)  # what is no number stays none
        return Block(p, rows.start, self._special, self._position)

    def of(self, index: int) -> dict[str, FloatArray]:
        """Give the statistics of one sequence: each float32 (layers, heads), as they were listed."""
        layers = [self.layers.index(number) for number in self._want.layers]
        listed = self._means[layers, index][:, self._heads.places]  # (layers, heads, statistics)
        return {
            name: np.ascontiguousarray(listed[..., STATISTICS.index(name)]) for name in self._want.statistics
        }


@dataclass
class Block:
    """Weights p (b, heads, rows, n) of the rows from `start` on, and what is read off them: (b, heads, rows).

    `scores`, where p is their softmax, are the logarithms but for the row's sum; they are used up.
    """

    p: Tensor
    start: int
    special: Tensor
    position: Tensor
    scores: Tensor | None = None

    @cached_property
    def peaks(self) -> tuple[Tensor, Tensor]:
        """The largest weight of each row, and where it first is."""
        values, places = self.p.max(-1)
        return values, places

    def entropy(self) -> Tensor:
        """−Σ p log p: log Σ exp s − Σ p s, with the largest score taken off so that both are small."""
        if self.scores is None:
            return -torch.special.xlogy(self.p, self.p).sum(-1).clamp_max_(0)
        largest = self.peaks[0]  # exp(0) / Σ exp s
        return (-largest.log() - self.scores.mul_(self.p).sum(-1)).clamp_min_(0)  # rounding may fall below

    def distance(self) -> Tensor:
        """Σ p |query − key|."""
        rows = self.position[self.start : self.start + self.p.shape[-2], None]
        return torch.mul(self.p, (rows - self.position).abs()).sum(-1)

    def near(self, offset: int) -> Tensor:
        """Take the entries (i, i + offset); there may be fewer than rows."""
        offset += self.start
        inside = -self.p.shape[-2] < offset < self.p.shape[-1]
        return self.p.diagonal(offset, -2, -1) if inside else self.p[..., 0, :0]

    def at_peak(self, offset: int) -> Tensor:
        """1 where the largest weight is at i + offset, else 0; no number where a row has none."""
        largest, places = self.peaks
        rows = torch.arange(self.start, self.start + self.p.shape[-2], device=self.p.device)
        return (places == rows + offset) + 0 * largest


BY_ROW: dict[Statistic, Callable[[Block], Tensor]] = {
    "entropy": Block.entropy,
    "confidence": lambda block: block.peaks[0],
    "mean_distance": Block.distance,
    "self": lambda block: block.near(0),
    "previous": lambda block: block.near(-1),
    "next": lambda block: block.near(1),
    "special": lambda block: block.p.index_select(-1, block.special).sum(-1),
    "argmax_self": lambda block: block.at_peak(0),
    "argmax_previous": lambda block: block.at_peak(-1),
    "argmax_next": lambda block: block.at_peak(1),
}


def merge(p: Tensor, starts: IntArray, axis: int) -> Tensor:
    """Add up what lies along an axis from each start to the next; most words have a single piece."""
    first = np.zeros(p.shape[axis], bool)
    first[starts] = True
    merged = p.index_select(axis, torch.from_numpy(starts).to(p.device))
    further = np.flatnonzero(~first)
    if len(further):
        words = torch.from_numpy(np.searchsorted(starts, further, side="right") - 1).to(p.device)
        pieces = p.index_select(axis, torch.from_numpy(further).to(p.device))
        merged.index_add_(axis, words, pieces)
    return merged
