"""Statistics of attention maps that are never built: block by block, in memory bounded by the block.

`model/measures.py` defines each statistic, and is what these are tested against.
"""

import numpy as np
import torch
from torch import Tensor

from model.blocks import Layer
from model.native.looks import Looks, Slots
from model.selection import Heads, in_blocks
from model.types import STATISTICS, FloatArray, SummaryWant


class Summaries:
    """The statistics of `count` neighbouring sequences of `length` tokens that want the same."""

    def __init__(self, want: SummaryWant, count: int, length: int, device: torch.device) -> None:
        self.layers = sorted(set(want.layers))
        self._want = want
        self._heads = Heads(want.heads)
        self._length = length
        self._special = torch.tensor(want.special, dtype=torch.int64, device=device)
        self._position = torch.arange(length, dtype=torch.float32, device=device)
        self._asked: tuple[Slots, FloatArray] | None = None
        self._means = np.zeros((len(self.layers), count, len(self._heads), len(STATISTICS)), np.float32)

    def in_pass(self, number: int, looks: Looks, first: int) -> None:
        """Have one layer measured while it attends, for the sequences from `first` on."""
        if self._asked is None:
            special = np.zeros(self._length, np.float32)
            special[self._special.numpy()] = 1
            self._asked = Slots(self._heads.numbers, looks.heads), special
        looks.statistics(first, self._means[self.layers.index(number)], *self._asked)

    def look(self, number: int, layer: Layer) -> None:
        """Measure one layer."""
        means = self._means[self.layers.index(number)]  # (b, heads, statistics)
        count, heads = means.shape[:2]
        sums = torch.zeros((len(STATISTICS), count, heads), dtype=torch.float64, device=self._position.device)
        for sequences, rows, parts in in_blocks(count, heads, self._length, self._length):
            distances = (self._position[rows, None] - self._position).abs()  # (rows, N)
            for part in parts:
                scores = layer.weights("score", sequences, self._heads.some(part), rows)
                sums[:, sequences, part] += self._measure(scores, rows.start, distances)
        means[:] = (sums / self._length).permute(1, 2, 0).cpu().numpy()

    def _measure(self, scores: Tensor, start: int, distances: Tensor) -> Tensor:
        """Sum each statistic over the rows of a block: scores (b, heads, rows, N) to (statistics, b, heads).

        The rows are those from `start` on. The entropy is log Σ exp s − Σ p s; with the largest score taken
        off first, both are small.
        """
        scores -= scores.amax(-1, keepdim=True)
        p = torch.softmax(scores, dim=-1)
        largest = p.amax(-1)  # exp(0) / Σ exp s
        entropy = (-largest.log() - scores.mul_(p).sum(-1)).clamp_min_(0)  # rounding may fall below
        distance = torch.mul(p, distances, out=scores).sum(-1)
        near = [_diagonal(p, start + shift) for shift in (0, -1, 1)]
        special = p.index_select(-1, self._special).sum(-1)
        by_row = [entropy, largest, distance, *near, special]
        return torch.stack([x.sum(-1, dtype=torch.float64) for x in by_row])

    def of(self, index: int) -> dict[str, FloatArray]:
        """Give the statistics of one sequence: each float32 (layers, heads), as they were listed."""
        layers = [self.layers.index(number) for number in self._want.layers]
        listed = self._means[layers, index][:, self._heads.places]  # (layers, heads, statistics)
        return {name: np.ascontiguousarray(listed[..., i]) for i, name in enumerate(STATISTICS)}


def _diagonal(p: Tensor, offset: int) -> Tensor:
    """Take the entries (i, i + offset) of the last two axes; there may be none."""
    return p.diagonal(offset, -2, -1) if -p.shape[-2] < offset < p.shape[-1] else p[..., 0, :0]
