"""Position encodings: sinusoidal, rotary and relative."""

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from model.encoder.linear import widened
from model.encoder.parts import RelativeBias, Rotary


def sinusoidal(positions: Tensor, size: int) -> Tensor:
    """Position encodings of Vaswani et al. 2017, §3.5, for any positions, even beyond those of training.

    PE(pos, 2i) = sin(pos / 10000^(2i/size)) and PE(pos, 2i + 1) = cos of the same angle; i counts the
    *pairs* of components. `positions` (…) integers; returns float32 (…, size).
    """
    pair = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device)  # 2i
    angles = positions[..., None].double() / 10_000.0 ** (pair / size)  # (…, size/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).float()  # (…, size)


def rotary_angles(positions: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles of rotary positions (Su et al. 2021, §3.4.2).

    `positions` (T,); returns two float32 tensors (T, 1, rotary.size/2), which apply to every head. The angles
    are rounded to float32, as they are in training.
    """
    frequencies = torch.tensor(rotary.frequencies, dtype=torch.float32, device=positions.device)
    angles = positions[:, None].float() * frequencies  # (T, size/2)
    return angles.cos()[:, None], angles.sin()[:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False) -> Tensor:
    """Rotate queries or keys by their positions, so that q·k depends only on the distance.

    The first components, twice as many as there are angles, turn in pairs (`Rotary`); the rest stay.
    `x` (T, H, D); `cos`, `sin` (T, 1, angles); returns x's shape and dtype.
    """
    size = 2 * cos.shape[-1]
    turning, rest = widened(x[..., :size]), x[..., size:]
    first, second = (turning[..., ::2], turning[..., 1::2]) if interleaved else turning.chunk(2, dim=-1)
    pairs = (first * cos - second * sin, second * cos + first * sin)  # (T, H, angles) each
    turned = torch.stack(pairs, dim=-1).flatten(-2) if interleaved else torch.cat(pairs, dim=-1)
    return torch.cat((turned.to(x.dtype), rest), dim=-1) if rest.shape[-1] else turned.to(x.dtype)


def distances(length: int, device: torch.device) -> Tensor:
    """List the distances between the tokens of a sequence, from the last to the first: key − query.

    Returns int64 (2·length − 1,), from 1 − length to length − 1.
    """
    return torch.arange(1 - length, length, device=device)


def by_query_and_key(x: Tensor, length: int, queries: Tensor | None = None) -> Tensor:
    """Spread numbers by distance, (…, 2·longest − 1), over queries and keys: (…, queries, length).

    `queries` int64 are positions, all `length` by default.
    """
    keys = torch.arange(length, device=x.device)
    rows = keys if queries is None else queries
    return x[..., keys[None, :] - rows[:, None] + x.shape[-1] // 2]


def relative_buckets(distance: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Return the bucket of learned biases for distances from query to key (Raffel et al. 2020, §2.1).

    Half of the buckets are for keys after the query. In each half, the first half holds one exact distance
    each; the rest grow logarithmically up to `max_distance`, and all larger distances share the last.
    `distance` int64 of any shape, and so is the result.
    """
    table = torch.tensor(_buckets_by_distance(buckets // 2, max_distance), device=distance.device)
    return table[distance.abs().clamp(max=max_distance)] + buckets // 2 * (distance > 0)


@cache
def _buckets_by_distance(half: int, max_distance: int) -> list[int]:
    """List the bucket of each distance from 0 to `max_distance`.

    Computed here and not in a graph: another rounding of the logarithm would change a bucket.
    """
    exact = half // 2
    far = np.maximum(np.arange(max_distance + 1), exact) / exact
    logarithmic = exact + (np.log(far) / math.log(max_distance / exact) * (half - exact)).astype(np.int64)
    buckets = [*range(exact), *np.minimum(logarithmic, half - 1)[exact:].tolist()]
    return buckets[: max_distance + 1]


def relative_bias(table: Tensor, length: int, relative: RelativeBias) -> Tensor:
    """Read the bias of each of the `distances` from a table (rows, H): (H, 2·length − 1), in its dtype."""
    buckets = relative_buckets(distances(length, table.device), relative.buckets, relative.max_distance)
    return F.embedding(buckets, table).t()


def alibi(heads: int, length: int, device: torch.device) -> Tensor:
    """Return the bias of ALiBi in its symmetric form, −slope·|i − j| (Press et al. 2022): (H, 2·length − 1).

    The columns are the `distances`. The slopes of n heads, n a power of two, are 2^(−8/n), 2^(−16/n), …. Any
    other number of heads has the slopes of the power of two below, and then every second slope of the power
    of two above.
    """
    slopes = torch.tensor(alibi_slopes(heads), dtype=torch.float32, device=device)
    return -slopes[:, None] * distances(length, device).abs()


def alibi_slopes(heads: int) -> list[float]:
    """List the slope of each head (Press et al. 2022, §3, and their code for other numbers of heads)."""
    power = 2 ** (heads.bit_length() - 1)
    own = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    further = [2.0 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)]
    return own + further[: heads - power]


def visible(
    length: int,
    device: torch.device,
    *,
    causal: bool = False,
    window: int = 0,
    queries: Tensor | None = None,
    unattended: int = 0,
) -> Tensor | None:
    """Return which keys each query attends to: bool (queries, N); None if it is all of them.

    Causal: none after the query. With a window: none more than `window` positions away. In any case, none of
    the last `unattended` keys. `queries` int64 are positions, all N by default.
    """
    if not causal and not window and not unattended:
        return None
    keys = torch.arange(length, device=device)
    distance = keys[None, :] - (keys if queries is None else queries)[:, None]
    seen = distance.abs() <= window if window else torch.ones_like(distance, dtype=torch.bool)
    if causal:
        seen &= distance <= 0
    return seen & (keys < length - unattended) if unattended else seen
