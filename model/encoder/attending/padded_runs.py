"""Attention on the CPU in bfloat16: consecutive sequences padded to one length, two batched products each.

PyTorch's fused kernel is made for long sequences: on short ones its overhead exceeds the products. Two plain
batched products with a softmax between them are faster up to hundreds of tokens if their sizes suit the
vector units, so each sequence is padded to the next suitable length. Only attention pays for this padding:
the linear layers, where most of the time goes, run without it.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

SHORT = 16
STEP = 32
"""Padded runs have length SHORT or a multiple of STEP: a vector register holds 32 bfloat16 numbers."""

_HIDDEN = np.float32(-1e30)
_SCORES_PER_HEAD = 2**14
_SCORES_AT_ONCE = 2**18
"""A megabyte of scores stays in the cache, and malloc does not return it to the system between products."""


class PaddedRun(NamedTuple):
    """Consecutive sequences, the packed tokens `start` to `stop`, padded to `rows` rows of `length` cells.

    `source`, int64 (rows·length,), is the token in each cell, counted from `start`. A padding cell repeats
    the first token of its own sequence, so that a NaN cannot spread to other sequences. `cells`, int64
    (stop − start,), is the cell of each token. `mask`, float32 (rows, 1, 1, length), is 0 for tokens and far
    below every score for padding. All three are None if nothing is padded.
    """

    start: int
    stop: int
    rows: int
    length: int
    source: Tensor | None = None
    cells: Tensor | None = None
    mask: Tensor | None = None


def make_padded_runs(lengths: Sequence[int]) -> list[PaddedRun]:
    """Group consecutive sequences that pad to the same length; sort by length to get few padded runs.

    oneDNN generates and caches code for each new shape of a product, which takes milliseconds. To keep shapes
    few, a padded run has 1, 2, 3, 4, 6, 8, 12, … rows, some of them only padding.
    """
    runs, start = [], 0
    for length, group in groupby(lengths, key=_padded):
        members = list(group)
        most = max(1, _SCORES_PER_HEAD // length**2)
        for i in range(0, len(members), most):
            runs.append(_padded_run(start, length, members[i : i + most]))
            start = runs[-1].stop
    return runs


def _padded(length: int) -> int:
    return SHORT if length <= SHORT else -(-length // STEP) * STEP


def _rows(count: int) -> int:
    """Round up to a power of two, or to three quarters of one."""
    power = 2 ** (count - 1).bit_length()
    return 3 * power // 4 if count <= 3 * power // 4 else power


def _padded_run(start: int, length: int, members: Sequence[int]) -> PaddedRun:
    rows = _rows(len(members))
    lengths = np.zeros(rows, np.int64)
    lengths[: len(members)] = members
    tokens, position = int(lengths.sum()), np.arange(length)
    real = position < lengths[:, None]  # (rows, length)
    if real.all():
        return PaddedRun(start, start + tokens, rows, length)
    first = np.where(lengths > 0, lengths.cumsum() - lengths, 0)
    source = first[:, None] + np.where(real, position, 0)
    mask = np.where(real, np.float32(0), _HIDDEN)
    return PaddedRun(
        start,
        start + tokens,
        rows,
        length,
        source=torch.from_numpy(source.ravel()),
        cells=torch.from_numpy(np.flatnonzero(real)),
        mask=torch.from_numpy(mask[:, None, None, :]),
    )


def attend_in_padded_runs(
    q: Tensor, k: Tensor, v: Tensor, runs: list[PaddedRun], scale: float | None = None
) -> Tensor:
    """Attend within each sequence: q, k, v (T, H, D) to (T, H, D), zero in padding rows.

    Scores are multiplied by `scale`, 1/√D by default.
    """
    mixed = torch.empty(q.shape, dtype=q.dtype)
    for run in runs:
        mixed[run.start : run.stop] = product_attention(q, k, v, run, scale)
    mixed[runs[-1].stop if runs else 0 :] = 0
    return mixed


def product_attention(q: Tensor, k: Tensor, v: Tensor, run: PaddedRun, scale: float | None = None) -> Tensor:
    """Compute the attention of a padded run's sequences: q, k, v (T, H, D) to outputs (stop − start, H, D).

    The softmax is computed in float32.
    """
    heads, size = q.shape[1], q.shape[2]
    # Not in place: with one head, q may still be a view of the caller's tensor.
    scale = size**-0.5 if scale is None else scale
    q = _by_sequence_and_head(q, run) * scale  # (rows, H, length, D), like the others
    k, v = _by_sequence_and_head(k, run), _by_sequence_and_head(v, run)
    outputs = torch.empty(q.shape, dtype=q.dtype)
    mask = run.mask
    step = _heads_at_once(heads, run.rows * run.length * run.length)
    for i in range(0, heads, step):
        weights = torch.matmul(q[:, i : i + step], k[:, i : i + step].transpose(2, 3)).float()
        if mask is not None:
            weights += mask
        weights = torch.softmax(weights, dim=-1)  # (rows, heads, query, key)
        outputs[:, i : i + step] = torch.matmul(weights.to(v.dtype), v[:, i : i + step])
    outputs = outputs.transpose(1, 2).reshape(-1, heads, size)
    cells = run.cells
    return outputs if cells is None else outputs.index_select(0, cells)


def _heads_at_once(heads: int, scores: int, room: int = _SCORES_AT_ONCE) -> int:
    """Return the largest divisor d of `heads` for which d·`scores` fits into `room`, at least 1."""
    for count in range(heads, 1, -1):
        if heads % count == 0 and count * scores <= room:
            return count
    return 1


def _by_sequence_and_head(x: Tensor, run: PaddedRun) -> Tensor:
    x, source = x[run.start : run.stop], run.source
    if source is not None:
        x = x.index_select(0, source)
    x = x.view(run.rows, run.length, x.shape[1], x.shape[2])
    return x.transpose(1, 2).contiguous()
