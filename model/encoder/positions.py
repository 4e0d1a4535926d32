"""Position encodings: sinusoidal, rotary and relative."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def sinusoidal(positions: Tensor, size: int) -> Tensor:
    """Position encodings of Vaswani et al. 2017, §3.5, for any positions, even beyond those of training.

    PE(pos, 2i) = sin(pos / 10000^(2i/size)) and PE(pos, 2i + 1) = cos of the same angle; i counts the
    *pairs* of components. `positions` (T,) integers; returns float32 (T, size).
    """
    pair = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device)  # 2i
    angles = positions[:, None].double() / 10_000.0 ** (pair / size)  # (T, size/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()  # (T, size)


def rotary_angles(positions: Tensor, size: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles of rotary positions (Su et al. 2021, §3.4.2).

    `positions` (T,); returns two float32 tensors (T, 1, size/2), which apply to every head.
    """
    pair = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device)
    angles = positions[:, None].double() * base ** (-pair / size)  # (T, size/2)
    return angles.cos().float()[:, None], angles.sin().float()[:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate queries or keys by their positions, so that q·k depends only on the distance.

    Component i is paired with i + D/2, the order in which Hugging Face checkpoints store them.
    `x` (T, H, D); `cos`, `sin` (T, 1, D/2); returns x's shape and dtype.
    """
    first, second = x.float().chunk(2, dim=-1)  # (T, H, D/2) each
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)  # (T, H, D)


def relative_buckets(length: int, buckets: int, max_distance: int, device: torch.device) -> Tensor:
    """Return the bucket, of learned biases, for each query and key (Raffel et al. 2020, §2.1).

    Half of the buckets are for keys after the query. In each half, the first half holds one exact distance
    each; the rest grow logarithmically up to `max_distance`, and all larger distances share the last.
    Returns int64 (length, length), axes (query, key).
    """
    position = torch.arange(length, device=device)
    distance = position[None, :] - position[:, None]  # key - query
    half = buckets // 2
    exact = half // 2
    far = distance.abs().clamp(min=exact).double() / exact
    logarithmic = exact + (far.log() / math.log(max_distance / exact) * (half - exact)).long()
    bucket = torch.where(distance.abs() < exact, distance.abs(), logarithmic.clamp(max=half - 1))
    return bucket + half * (distance > 0)


def relative_bias(table: Tensor, length: int, max_distance: int) -> Tensor:
    """Read the bias of each distance from a table (buckets, H): its dtype, (H, length, length)."""
    buckets = relative_buckets(length, len(table), max_distance, table.device)
    return F.embedding(buckets, table).permute(2, 0, 1)
