"""Judges differences that exceed their bounds by how much float32 itself rounds, compared with float64.

A sum in which massive activations (Sun et al. 2024) cancel has few correct digits in float32, whoever
computes it: two correct programs then differ by more than any bound that suits other models.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from export.parity import Quantity, Row, compare
from model.contract import Backend, Encoding
from model.encoder.attention import SelfAttention
from model.encoder.encoder import Encoder
from model.encoder.feed_forward import FeedForward
from model.encoder.linear import Linear

Place = tuple[str, Quantity]
"""What identifies a row: the name of its inputs, and the quantity that is compared."""

FACTOR = 4.0
"""How many times as far from float64 as PyTorch's float32 a graph may be: both errors are random."""
MOST = 0.1
"""The largest difference that is accepted: beyond it, a wrong graph could not be told from a right one."""


def judge(
    rows: Sequence[Row],
    exact: Backend,
    float32: Iterable[Callable[[], Backend]],
    written: Backend,
    inputs: Mapping[str, Sequence[Encoding]],
) -> list[Row]:
    """Compare `written` and PyTorch's ways to compute in `float32` with `exact`, where a bound was missed.

    Returns all rows. Those that had missed now have differences from `exact`; their bound is the larger of
    their own and `FACTOR` times the difference of the way that rounds most, up to `MOST`. Ways are tried
    until no bound is missed: with only one way, a sum may have been lucky.
    """
    missed = {row.inputs for row in rows if not row.ok}
    some = {name: encodings for name, encodings in inputs.items() if name in missed}
    ours = _largest(exact, written, some)
    judged, rounding = list(rows), dict.fromkeys(ours, 0.0)
    for make in float32:
        theirs = _largest(exact, make(), some)
        rounding = {place: max(largest, theirs[place]) for place, largest in rounding.items()}
        judged = [row if row.ok else _judged(row, ours, rounding) for row in rows]
        if all(row.ok for row in judged):
            break
    return judged


def _judged(row: Row, ours: Mapping[Place, float], rounding: Mapping[Place, float]) -> Row:
    place = row.inputs, row.what
    if row.bound is None or not np.isfinite(rounding[place]):
        return row
    bound = max(row.bound, min(MOST, FACTOR * rounding[place]))
    return Row(row.inputs, row.what, ours[place], bound, rounding[place])


def reorder(encoder: Encoder, seed: int) -> None:
    """Change only the order in which an encoder adds up numbers, so that its float32 rounds differently.

    The inner components of each feed-forward layer, and those of the values of all heads, are permuted.
    """
    generator, config = torch.Generator().manual_seed(seed), encoder.config
    queries, keys, values = config.qkv_rows
    for module in encoder.modules():
        if isinstance(module, FeedForward):
            inner = torch.randperm(config.intermediate_size, generator=generator)
            halves = len(module.inner.weight) // config.intermediate_size
            rows = [inner + half * config.intermediate_size for half in range(halves)]
            _move(module.inner, module.outer, torch.cat(rows), inner)
        elif isinstance(module, SelfAttention):
            order = torch.randperm(config.head_size, generator=generator)
            first = torch.arange(queries + keys)
            rows = [first, queries + keys + _in_each(order, values // config.head_size)]
            _move(module.qkv, module.output, torch.cat(rows), _in_each(order, config.num_heads))


def _in_each(order: Tensor, heads: int) -> Tensor:
    """Repeat the order of a head's components for several heads, end to end."""
    return torch.cat([order + head * len(order) for head in range(heads)])


def _move(before: Linear, after: Linear, rows: Tensor, columns: Tensor) -> None:
    """Permute the outputs of a layer, and in the same way the inputs of the next layer."""
    before.weight.data = before.weight[rows]
    if before.bias is not None:
        before.bias.data = before.bias[rows]
    after.weight.data = after.weight[:, columns]


def _largest(exact: Backend, other: Backend, inputs: Mapping[str, Sequence[Encoding]]) -> dict[Place, float]:
    rows = compare(exact, other, inputs, {name: {} for name in inputs})
    return {(row.inputs, row.what): row.largest for row in rows}
