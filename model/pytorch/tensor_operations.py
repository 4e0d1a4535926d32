"""The array operations of pooling and inspection in PyTorch, on the device that holds the data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from model.arrays import IntArray, Places, Reduction
from model.contract import FloatArray
from model.encoder.attention import Indices, chosen


class TensorOperations:
    """`model.arrays.Operations` on a device."""

    measured_at_once = 2**19  # two megabytes: smaller steps are slower on several cores and on a GPU

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def array(self, values: NDArray[Any]) -> Tensor:
        """Convert a numpy array of any dtype; on the CPU both share their memory."""
        return torch.from_numpy(values).to(self._device)

    def numpy(self, x: Tensor) -> NDArray[Any]:
        """Convert a tensor to numpy; on the CPU both share their memory."""
        array: NDArray[Any] = x.cpu().numpy()
        return array

    def numpy_float16(self, x: Tensor) -> NDArray[np.float16]:
        """Round on the device to the nearest float16, ties to even, and convert to numpy."""
        return self.numpy(x.half())

    def float32(self, x: Tensor) -> Tensor:
        """Convert numbers to float32, without a copy if they already are."""
        return x.float()

    def finite(self, x: Tensor) -> NDArray[np.bool_]:
        """Whether all numbers of each entry of the first axis are finite: (b, …) -> (b,)."""
        return self.numpy(x.flatten(1).sum(1).isfinite())

    def take(self, x: Tensor, places: Indices, axis: int) -> Tensor:
        """Select along an axis: a view for a slice, a copy for positions."""
        return chosen(x, axis, places)

    def weigh(self, scores: Tensor) -> tuple[Tensor, None]:
        """Compute the softmax over the last axis."""
        return torch.softmax(scores, dim=-1), None

    def log(self, x: Tensor) -> Tensor:
        """Ln x, elementwise."""
        return x.log()

    def sum_x_log_x(self, x: Tensor) -> Tensor:
        """Σ x ln x over the last axis, with 0 ln 0 = 0."""
        return torch.special.xlogy(x, x).sum(-1)

    def maximum(self, one: Tensor, other: Tensor) -> Tensor:
        """The larger of two tensors, elementwise."""
        return torch.maximum(one, other)

    def at_least(self, x: Tensor, least: float) -> Tensor:
        """Replace numbers below `least` by `least`; NaN stays NaN."""
        return x.clamp_min(least)

    def peaks(self, x: Tensor, *, values: bool) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """The maximum along the last axis (always: it costs nothing extra), and its first index."""
        largest, places = x.max(-1)
        return largest, places

    def largest(self, x: Tensor, axis: int) -> Tensor:
        """The maximum along an axis, which is kept with length 1."""
        return x.amax(axis, keepdim=True)

    def maxima(self, x: Tensor, starts: IntArray, axis: int) -> Tensor:
        """The maximum along an axis from each start up to the next; NaN stays NaN."""
        stops = np.append(starts[1:], x.shape[axis])
        # Shorter spans repeat their last entry, so that one call compares all of them.
        steps = np.arange((stops - starts).max())
        places = np.minimum(starts[:, None] + steps, stops[:, None] - 1)  # (m, longest)
        axis %= x.ndim
        entries = x.index_select(axis, self.array(places.ravel()))
        return entries.view(*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]).amax(axis + 1)

    def dot(self, one: Tensor, other: Tensor) -> Tensor:
        """Σ one·other over the last axis; `one` is overwritten if both have the same shape."""
        product = one.mul_(other) if one.shape == other.shape else one * other
        return product.sum(-1)

    def total(self, x: Tensor) -> Tensor:
        """The sum over the last axis, in float64."""
        return x.sum(-1, dtype=torch.float64)

    def weigh_heads(self, weights: Tensor, shares: FloatArray) -> Tensor:
        """Σ_h shares_h weights_bhrn: (b, heads, rows, N) and (heads,) -> (b, rows, N)."""
        return torch.einsum("h,bhrn->brn", self.array(shares), weights)

    def merge(self, x: Tensor, starts: IntArray, axis: int) -> Tensor:
        """Sum the entries along an axis from each start to the next; fast if most words have one piece."""
        first = np.zeros(x.shape[axis], bool)
        first[starts] = True
        merged = x.index_select(axis, self.array(starts))
        further = np.flatnonzero(~first)
        if len(further):
            words = self.array(np.searchsorted(starts, further, side="right") - 1)
            merged.index_add_(axis, words, x.index_select(axis, self.array(further)))
        return merged

    def reduce_rows(
        self,
        x: Tensor,
        rows: Places,
        starts: Sequence[int],
        how: Reduction,
        weights: FloatArray | None = None,
    ) -> Tensor:
        """Sum groups of rows of a table (T, C), or take their maxima: (B, C)."""
        if isinstance(rows, slice):
            positions = torch.arange(rows.start, rows.stop, device=self._device)
        else:
            positions = self.array(rows)
        factors = None if weights is None else self.array(weights)
        # embedding_bag gathers and reduces in one pass, without a copy of the rows.
        return F.embedding_bag(
            positions, x, torch.tensor(starts, device=self._device), mode=how, per_sample_weights=factors
        )

    def stack(self, arrays: list[Tensor]) -> Tensor:
        """Join tensors of one shape along a new first axis."""
        return torch.stack(arrays)

    def join(self, arrays: list[Tensor], axis: int) -> Tensor:
        """Join tensors along an axis that they have."""
        return torch.cat(arrays, axis)

    def empty(self, *shape: int) -> Tensor:
        """Allocate an uninitialised tensor."""
        return torch.empty(shape, device=self._device)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute x Wᵀ + b: (rows, in), (out, in) and (out,) -> (rows, out)."""
        return F.linear(x, weight, bias)

    def activate(self, x: Tensor, activation: str) -> Tensor:
        """Apply an activation, by its name."""
        if activation == "GELUTanh":
            return F.gelu(x, approximate="tanh")
        activated: Tensor = getattr(torch.nn, activation)()(x)
        return activated

    def layer_norm(self, x: Tensor, gain: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
        """Normalise the rows of (rows, C) (Ba et al. 2016)."""
        return F.layer_norm(x, gain.shape, gain, bias, epsilon)

    def rms_norm(self, x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
        """Normalise the rows of (rows, C) (Zhang & Sennrich 2019)."""
        return F.rms_norm(x, gain.shape, gain, epsilon)

    def log_sum_exp(self, x: Tensor) -> NDArray[np.float64]:
        """Ln Σ exp x over the last axis of finite numbers."""
        return self.numpy(x.logsumexp(-1).double())

    def candidates(self, x: Tensor, above: FloatArray, most: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Find the `most` largest numbers of each row of (rows, V) that exceed the row's entry in `above`."""
        larger = x > self.array(above)[:, None]
        if most < x.shape[1] and int(larger.count_nonzero()) > len(x) * most:
            larger &= x >= x.topk(most).values[:, -1:]
        places = larger.ravel().nonzero().ravel()
        return *np.divmod(self.numpy(places), x.shape[1]), self.numpy(x.ravel()[places])
