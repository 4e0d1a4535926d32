"""Lays weights out as the products of the native kernels read them."""

import torch
from torch import Tensor
from torch.nn import functional as F


def lay_out(
    weight: Tensor,
    columns: int,
    *,
    dtype: torch.dtype | None = None,
    gated: bool = False,
    word: int = 4,
) -> Tensor:
    """Lay out a matrix (out, in), in `dtype`, in panels for products; the last one is filled up with zeros.

    With words of 32 bits, panels are (panels, in, columns, 1) in float32, (panels, in / 2, columns, 2) in
    bfloat16 and (panels, in / 4, columns, 4) in bytes. Words may have another size, `word` bytes; `in` is
    filled up with zeros to whole words. If a word has one bfloat16 number, columns have the order of
    linear/widened.h. If the matrix is `gated`, each panel of its first half is followed by that of its
    second. Hardly anything else is allocated: a matrix may be large.
    """
    dtype = dtype or weight.dtype
    halves = weight.chunk(2) if gated else (weight,)
    outputs, inputs = halves[0].shape
    per_word = word // dtype.itemsize
    words, (whole, rest) = -(-inputs // per_word), divmod(outputs, columns)
    if inputs % per_word:
        halves = tuple(F.pad(half, (0, -inputs % per_word)) for half in halves)
    order = (2, 2, columns // 4) if word == 2 else (1, 1, columns)
    panels = torch.empty((whole + (rest > 0), len(halves), words, *order, per_word), dtype=dtype)
    for number, half in enumerate(halves):
        full, last = half[: whole * columns], half[whole * columns :]
        filled_up = F.pad(last, (0, 0, 0, -rest % columns))
        of_half = panels[:, number].transpose(2, 3)
        for rows, laid_out in ((full, of_half[:whole]), (filled_up, of_half[whole:])):
            laid_out[:] = rows.reshape(len(laid_out), *order, words, per_word).permute(0, 4, 1, 2, 3, 5)
    return panels.flatten(3, 5).flatten(0, 1)
