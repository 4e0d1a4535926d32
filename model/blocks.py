"""Attention weights in blocks that stay in the cache, of neighbouring sequences of one length.

A map of N tokens has N² numbers a head. Whoever keeps maps writes each block where it belongs, and whoever
only measures them never needs more memory than a block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.attention import Indices, SelfAttention
from model.types import Weights

ROOM = 2**19
"""Weights in a block: two megabytes."""


class Heads:
    """The heads that are wanted, each once: `places` and `shares` say how to give them back as listed."""

    def __init__(self, listed: Sequence[int], device: torch.device) -> None:
        self.numbers, self.places, counts = np.unique(listed, return_inverse=True, return_counts=True)
        self.shares = torch.from_numpy((counts / len(listed)).astype(np.float32)).to(device)
        self._device = device

    def __len__(self) -> int:
        """Count them."""
        return len(self.numbers)

    def some(self, part: slice) -> Indices:
        """Choose a part of them out of all heads of the model."""
        return neighbours(self.numbers[part], self._device)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's queries, keys and values of b sequences of N tokens, each (b, N, H, D)."""

    attention: SelfAttention
    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None

    def weights(self, kind: Weights, sequences: slice, heads: Indices, rows: Indices) -> Tensor:
        """Compute a block, float32 (b, heads, rows, N): softmax weights, scores or weighted value norms."""
        scores = self.attention.scores(self.q[sequences], self.k[sequences], heads, rows, self.bias)
        if kind == "score":
            return scores
        weights = torch.softmax(scores, dim=-1)
        if kind == "value_norm":
            weights *= self.attention.value_norms(self.v[sequences], heads)[:, :, None, :]
        return weights

    def parts(
        self, kind: Weights, sequences: slice, heads: Heads, parts: Sequence[slice], rows: Indices
    ) -> Iterator[tuple[slice, Tensor]]:
        """Compute the `weights` of the wanted heads in parts, each with its part."""
        for part in parts:
            yield part, self.weights(kind, sequences, heads.some(part), rows)


def neighbours(positions: NDArray[np.int64], device: torch.device) -> Indices:
    """Make a slice of sorted, distinct positions where they follow each other: it needs no copy."""
    if len(positions) and positions[-1] - positions[0] == len(positions) - 1:
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return torch.from_numpy(positions).to(device)


def in_blocks(
    sequences: int, heads: int, rows: int, length: int, room: int = ROOM
) -> Iterator[tuple[slice, slice, list[slice]]]:
    """Cut sequences × heads × rows of `length` weights into blocks of at most `room`, where a row fits.

    Yields sequences, rows, and the parts that their heads are taken in. Whole sequences stay together where
    they fit, else whole heads; how one sequence is cut does not depend on how many there are.
    """
    some_rows = min(rows, max(1, room // max(1, length)))
    some_heads = min(heads, max(1, room // max(1, some_rows * length)))
    whole = some_heads == heads and some_rows == rows
    some_sequences = max(1, room // max(1, heads * rows * length)) if whole else 1
    parts = [slice(i, min(i + some_heads, heads)) for i in range(0, heads, some_heads)]
    for i in range(0, sequences, some_sequences):
        for j in range(0, rows, max(1, some_rows)):
            yield slice(i, min(i + some_sequences, sequences)), slice(j, min(j + some_rows, rows)), parts
