"""Attention on the CPU in bfloat16: sequences of near-equal length as rectangles, two batched products each.

PyTorch's fused kernel is made for long sequences: on short ones its own bookkeeping costs more than the
products. Two plain batched products with a softmax between are faster up to hundreds of tokens, if their
sizes suit the vector units, so each sequence is padded to the next suitable length. Padding costs only here:
in the linear layers, where most of the time goes, there is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional as F

SHORT = 16
STEP = 32
"""Rectangles are SHORT long, or a multiple of STEP: vectors of bfloat16 hold 32 numbers."""

_HIDDEN = -1e30
_SCORES_PER_HEAD = 2**14
_SCORES_AT_ONCE = 2**18
"""A megabyte of scores stays in the cache, and is not given back to the system in between."""


@dataclass(frozen=True, eq=False)
class Rectangle:
    """Neighbouring sequences, the packed tokens `start` to `stop`, padded to `count` rows of `length` cells.

    `source`, int64 (count·length,), is the token, counted from `start`, that lies in each cell; padding
    repeats a token. `cells`, int64 (stop − start,), is the cell of each token. `mask`, float32
    (count, 1, 1, length), is 0, and far below every score where a key is padding. All three are None when
    nothing is padded.
    """

    start: int
    stop: int
    count: int
    length: int
    source: Tensor | None = None
    cells: Tensor | None = None
    mask: Tensor | None = None


def make_rectangles(lengths: Sequence[int]) -> list[Rectangle]:
    """Put neighbours together that are padded to the same length; sorting makes rectangles few.

    oneDNN generates code for each new shape of a product, which takes milliseconds, and keeps it. So shapes
    are few: a rectangle has 1, 2, 3, 4, 6, 8, 12, … rows, some of them only padding.
    """
    rectangles, start = [], 0
    for length, group in groupby(lengths, key=_padded):
        members = list(group)
        most = max(1, _SCORES_PER_HEAD // length**2)
        for i in range(0, len(members), most):
            rectangles.append(_rectangle(start, length, torch.tensor(members[i : i + most])))
            start = rectangles[-1].stop
    return rectangles


def _padded(length: int) -> int:
    return SHORT if length <= SHORT else -(-length // STEP) * STEP


def _rows(count: int) -> int:
    """Round up to a power of two, or one and a half of it."""
    power = 2 ** (count - 1).bit_length()
    return 3 * power // 4 if count <= 3 * power // 4 else power


def _rectangle(start: int, length: int, members: Tensor) -> Rectangle:
    rows, tokens = _rows(len(members)), int(members.sum())
    members = F.pad(members, (0, rows - len(members)))
    position = torch.arange(length)
    real = position < members[:, None]  # (rows, length)
    if bool(real.all()):
        return Rectangle(start, start + tokens, rows, length)
    first = members.cumsum(0) - members
    source = torch.where(real, first[:, None] + position, 0)
    mask = torch.zeros(real.shape).masked_fill(~real, _HIDDEN)[:, None, None, :]
    return Rectangle(
        start, start + tokens, rows, length, source.flatten(), real.flatten().nonzero().flatten(), mask
    )


def product_attention(q: Tensor, k: Tensor, v: Tensor, rectangle: Rectangle) -> Tensor:
    """Compute the attention of a rectangle's sequences: q, k, v (T, H, D) to outputs (stop − start, H, D).

    The softmax is computed in float32.
    """
    count, length, heads, size = rectangle.count, rectangle.length, q.shape[1], q.shape[2]
    q, k, v = (_by_sequence_and_head(x, rectangle) for x in (q, k, v))  # (count, H, length, D)
    q = q * size**-0.5  # not in place: with one head, this may still be the caller's
    outputs = torch.empty_like(q)
    step = _heads_at_once(heads, count * length**2)
    for i in range(0, heads, step):
        some = slice(i, i + step)
        weights = torch.matmul(q[:, some], k[:, some].transpose(2, 3)).float()  # (count, heads, query, key)
        if rectangle.mask is not None:
            weights += rectangle.mask
        torch.softmax(weights, dim=-1, out=weights)
        outputs[:, some] = torch.matmul(weights.to(v.dtype), v[:, some])
    outputs = outputs.transpose(1, 2).reshape(-1, heads, size)
    return outputs if rectangle.cells is None else outputs.index_select(0, rectangle.cells)


def _heads_at_once(heads: int, scores: int) -> int:
    """Find the largest divisor of `heads` with room for so many scores each."""
    return max(n for n in range(1, heads + 1) if heads % n == 0 and (n == 1 or n * scores <= _SCORES_AT_ONCE))


def _by_sequence_and_head(x: Tensor, rectangle: Rectangle) -> Tensor:
    x = x[rectangle.start : rectangle.stop]
    if rectangle.source is not None:
        x = x.index_select(0, rectangle.source)
    x = x.view(rectangle.count, rectangle.length, *x.shape[1:])
    return x.transpose(1, 2).contiguous()
