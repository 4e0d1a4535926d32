"""Pools the hidden states of a sequence into one vector, in PyTorch, on the device that holds them."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from model.contract import PoolingMode

IntArray = NDArray[np.int64]


class Bags:
    """The tokens of some sequences of a packed batch, without the first `skip` of each.

    `starts` and `lengths`, int64 (B,), are the first token and the number of tokens of each sequence. Raises
    ValueError if a sequence has no tokens left.
    """

    def __init__(self, starts: IntArray, lengths: IntArray, skip: int, device: torch.device) -> None:
        self.skip = skip
        counts = lengths - skip
        if (counts < 1).any():
            raise ValueError("a sequence has no tokens to pool")
        offsets = np.cumsum(counts) - counts
        position = np.arange(int(counts.sum())) - np.repeat(offsets, counts) + skip
        rows = np.repeat(starts, counts) + position
        self.rows, self.offsets = (torch.from_numpy(x).to(device) for x in (rows, offsets))
        self.position, self.counts = (
            torch.from_numpy(x.astype(np.float32)).to(device) for x in (position, counts)
        )

    def pool(self, hidden: Tensor, modes: Sequence[PoolingMode]) -> Tensor:
        """Pool each of B sequences of the packed hidden states (T, C): (B, len(modes)·C), in float32.

        `cls` takes the first token and `last` the last; `mean_sqrt_len` divides the sum by √N;
        `weighted_mean` weights token i (from 1) by i (Muennighoff 2022, SGPT, §3), where i includes the
        skipped tokens. Several modes are concatenated in their order.
        """
        hidden = hidden.float()
        pooled = [self._pool_one(hidden, mode) for mode in modes]
        return pooled[0] if len(pooled) == 1 else torch.cat(pooled, dim=-1)

    def _pool_one(self, hidden: Tensor, mode: PoolingMode) -> Tensor:
        match mode:
            case "cls":
                return hidden[self.rows[self.offsets]]
            case "last":
                return hidden[self.rows[self.offsets + self.counts.long() - 1]]
            case "mean" | "max":
                return self._reduce(hidden, mode)
            case "mean_sqrt_len":
                return self._reduce(hidden, "sum") / self.counts.sqrt()[:, None]
            case "weighted_mean":
                # The weights skip + 1, …, skip + n of n tokens sum to n · (2·skip + n + 1) / 2.
                total = self.counts * (2 * self.skip + self.counts + 1) / 2
                return self._reduce(hidden, "sum", self.position + 1) / total[:, None]

    def _reduce(self, hidden: Tensor, how: str, weights: Tensor | None = None) -> Tensor:
        # embedding_bag reduces rows of a table in bags: here the rows are tokens and the bags sequences.
        return F.embedding_bag(self.rows, hidden, self.offsets, mode=how, per_sample_weights=weights)
