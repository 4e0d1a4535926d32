"""Judges differences that exceed their bounds by what float32 itself rounds, with float64 as the reference.

Massive activations (Sun et al. 2024) of which a sum cancels leave few digits in float32, whoever computes
it: two exact programs then differ by more than any bound for other models.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from export.parity import Quantity, Row, compare
from model.contract import Backend, Encoding

FACTOR = 4.0
"""How many times as far from float64 as PyTorch's float32 a graph may be: both are chance, of one size."""
MOST = 0.1
"""The largest difference that is accepted: beyond it, a wrong graph could not be told from a right one."""


def judge(
    rows: Sequence[Row],
    exact: Backend,
    float32: Sequence[Callable[[], Backend]],
    written: Backend,
    inputs: Mapping[str, Sequence[Encoding]],
) -> list[Row]:
    """Compare what missed its bound with `exact`: `written`, and PyTorch's ways to compute in `float32`.

    Returns all rows. Those that had missed are differences from `exact`; their bound is the larger of two,
    their own and `FACTOR` times the difference of the way that rounds most, up to `MOST`.
    """
    missed = {row.inputs for row in rows if not row.ok}
    some = {name: encodings for name, encodings in inputs.items() if name in missed}
    ours = _largest(exact, written, some)
    theirs = [_largest(exact, make(), some) for make in float32]

    def judged(row: Row) -> Row:
        place = row.inputs, row.what
        rounding = max(largest[place] for largest in theirs)
        if row.ok or row.bound is None or not np.isfinite(rounding):
            return row
        bound = max(row.bound, min(MOST, FACTOR * rounding))
        return Row(row.inputs, row.what, ours[place], bound, rounding)

    return [judged(row) if row.inputs in missed else row for row in rows]


def _largest(
    exact: Backend, other: Backend, inputs: Mapping[str, Sequence[Encoding]]
) -> dict[tuple[str, Quantity], float]:
    rows = compare(exact, other, inputs, {name: {} for name in inputs})
    return {(row.inputs, row.what): row.largest for row in rows}
