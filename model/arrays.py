"""The array operations of pooling and inspection that have different names in numpy and PyTorch."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from model.activations import ACTIVATIONS
from model.contract import FloatArray
from model.float16 import to_float16

Array = Any
"""A numpy array or a tensor, float32 unless stated otherwise."""
IntArray = NDArray[np.int64]
Places = slice | IntArray
"""A selection along an axis: a slice of neighbours, or positions."""
Reduction = Literal["sum", "max"]


class Operations(Protocol):
    """An array library, and the device that it computes on.

    Operations that both libraries share are not listed: arithmetic, `diagonal`, `sum`, `@`.
    """

    measured_at_once: int
    """How many scores the statistics process at a time."""

    def array(self, values: NDArray[Any]) -> Array:
        """Convert a numpy array of any dtype."""
        ...

    def numpy(self, x: Array) -> NDArray[Any]:
        """Convert an array to numpy."""
        ...

    def numpy_float16(self, x: Array) -> NDArray[np.float16]:
        """Round to the nearest float16, ties to even, and convert to numpy."""
        ...

    def float32(self, x: Array) -> Array:
        """Convert numbers to float32, without a copy if they already are."""
        ...

    def finite(self, x: Array) -> NDArray[np.bool_]:
        """Whether all numbers of each entry of the first axis are finite: (b, …) -> (b,)."""
        ...

    def take(self, x: Array, places: Places, axis: int) -> Array:
        """Select along an axis: a view for neighbours, a copy for positions."""
        ...

    def weigh(self, scores: Array) -> tuple[Array, Array | None]:
        """Compute the softmax over the last axis, as unscaled numbers (…, N) and a factor for each row (…).

        The largest score of each row must be 0, which saves a pass. The factor is None if all are 1.
        """
        ...

    def log(self, x: Array) -> Array:
        """Ln x, elementwise, as a new array."""
        ...

    def sum_x_log_x(self, x: Array) -> Array:
        """Σ x ln x over the last axis, with 0 ln 0 = 0."""
        ...

    def maximum(self, one: Array, other: Array) -> Array:
        """The larger of two arrays, elementwise."""
        ...

    def at_least(self, x: Array, least: float) -> Array:
        """Replace numbers below `least` by `least`; NaN stays NaN."""
        ...

    def largest(self, x: Array, axis: int) -> Array:
        """The maximum along an axis, which is kept with length 1."""
        ...

    def maxima(self, x: Array, starts: IntArray, axis: int) -> Array:
        """The maximum of each run along an axis, from its start to before the next start; NaN stays NaN.

        `starts` (m,) is strictly increasing, and the last run goes to the end. The axis becomes m long.
        """
        ...

    def peaks(self, x: Array, *, values: bool) -> tuple[Array | None, Array]:
        """The maximum along the last axis and its first index; without `values`, the maximum may be None."""
        ...

    def dot(self, one: Array, other: Array) -> Array:
        """Σ one·other over the last axis; `one` is broadcast to `other` and may be overwritten."""
        ...

    def total(self, x: Array) -> Array:
        """The sum over the last axis, in float64."""
        ...

    def weigh_heads(self, weights: Array, shares: FloatArray) -> Array:
        """Σ_h shares_h weights_bhrn: (b, heads, rows, N) and (heads,) -> (b, rows, N)."""
        ...

    def merge(self, x: Array, starts: IntArray, axis: int) -> Array:
        """Sum the entries along an axis from each start to the next."""
        ...

    def reduce_rows(
        self, x: Array, rows: Places, starts: Sequence[int], how: Reduction, weights: FloatArray | None = None
    ) -> Array:
        """Sum groups of rows of a table (T, C), or take their maximum: (B, C).

        `starts` (B,) is where among `rows` each group begins. A sum multiplies each row by its weight, if
        there are `weights`. Each library adds in an order of its own, which rounds differently.
        """
        ...

    def stack(self, arrays: list[Array]) -> Array:
        """Join arrays of one shape along a new first axis."""
        ...

    def join(self, arrays: list[Array], axis: int) -> Array:
        """Join arrays along an axis that they have."""
        ...

    def empty(self, *shape: int) -> Array:
        """Allocate an uninitialised array."""
        ...

    def linear(self, x: Array, weight: Array, bias: Array | None) -> Array:
        """Compute x Wᵀ + b: (rows, in), (out, in) and (out,) -> (rows, out)."""
        ...

    def activate(self, x: Array, activation: str) -> Array:
        """Apply an activation, by its name in `model.activations.ACTIVATIONS`."""
        ...

    def layer_norm(self, x: Array, gain: Array, bias: Array | None, epsilon: float) -> Array:
        """Normalise the rows of (rows, C) (Ba et al. 2016)."""
        ...

    def rms_norm(self, x: Array, gain: Array, epsilon: float) -> Array:
        """Normalise the rows of (rows, C) (Zhang & Sennrich 2019)."""
        ...

    def log_sum_exp(self, x: Array) -> NDArray[np.float64]:
        """Ln Σ exp x over the last axis of finite numbers, in numpy."""
        ...

    def candidates(self, x: Array, above: FloatArray, most: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Find the `most` largest numbers in each row of (rows, V) that exceed the row's number in `above`.

        `above` is (rows,). Returns rows and columns, in order, and numbers, in numpy. There may be more than
        `most`; all numbers that tie with the smallest of the `most` are included.
        """
        ...


# Replaces 0 inside a logarithm: the product with a weight of 0 is then 0, not NaN.
_TINY = np.finfo(np.float32).tiny


class NumpyOperations:
    """The operations in numpy; conversions return the same array."""

    measured_at_once = 2**16  # the scores and their temporaries then fit into a core's own cache

    def array(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the same array."""
        return values

    def numpy(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the same array."""
        return x

    def numpy_float16(self, x: FloatArray) -> NDArray[np.float16]:
        """Round to the nearest float16, ties to even."""
        return to_float16(x)

    def float32(self, x: NDArray[Any]) -> FloatArray:
        """Convert numbers to float32, without a copy if they already are."""
        return x.astype(np.float32, copy=False)

    def finite(self, x: FloatArray) -> NDArray[np.bool_]:
        """Whether all numbers of each entry of the first axis are finite: (b, …) -> (b,)."""
        return np.asarray(np.isfinite(x.sum(tuple(range(1, x.ndim)))))

    def take(self, x: NDArray[Any], places: Places, axis: int) -> NDArray[Any]:
        """Select along an axis: a view for a slice, a copy for positions."""
        return np.asarray(x[(slice(None),) * (axis % x.ndim) + (places,)])

    def weigh(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Softmax over the last axis before division by the row sums, and one over these sums."""
        e: FloatArray = np.exp(scores)
        return e, 1 / e.sum(-1)

    def log(self, x: FloatArray) -> FloatArray:
        """Ln x, elementwise."""
        return np.log(x)

    def sum_x_log_x(self, x: FloatArray) -> FloatArray:
        """Σ x ln x over the last axis, with 0 ln 0 = 0."""
        return self.dot(np.log(np.maximum(x, _TINY)), x)

    def maximum(self, one: FloatArray, other: FloatArray) -> FloatArray:
        """The larger of two arrays, elementwise."""
        return np.maximum(one, other)

    def at_least(self, x: FloatArray, least: float) -> FloatArray:
        """Replace numbers below `least` by `least`; NaN stays NaN."""
        return np.maximum(x, np.float32(least))

    def largest(self, x: FloatArray, axis: int) -> FloatArray:
        """The maximum along an axis, which is kept with length 1."""
        return np.asarray(x.max(axis, keepdims=True))

    def maxima(self, x: FloatArray, starts: IntArray, axis: int) -> FloatArray:
        """The maximum of each run along an axis, from its start to before the next start; NaN stays NaN."""
        # One call for each run: `reduceat` compares only one number at a time.
        stops = [*starts[1:].tolist(), x.shape[axis]]
        spans = [slice(start, stop) for start, stop in zip(starts.tolist(), stops, strict=True)]
        return np.stack([self.take(x, span, axis).max(axis) for span in spans], axis)

    def peaks(self, x: FloatArray, *, values: bool) -> tuple[FloatArray | None, NDArray[np.intp]]:
        """The maximum along the last axis (None without `values`), and its first index."""
        return x.max(-1) if values else None, x.argmax(-1)

    def dot(self, one: FloatArray, other: FloatArray) -> FloatArray:
        """Σ one·other over the last axis."""
        return np.asarray(np.vecdot(one, other))

    def total(self, x: FloatArray) -> NDArray[np.float64]:
        """The sum over the last axis, in float64."""
        return np.asarray(x.sum(-1, dtype=np.float64))

    def weigh_heads(self, weights: FloatArray, shares: FloatArray) -> FloatArray:
        """Σ_h shares_h weights_bhrn: (b, heads, rows, N) and (heads,) -> (b, rows, N)."""
        return np.asarray(np.einsum("h,bhrn->brn", shares, weights))

    def merge(self, x: FloatArray, starts: IntArray, axis: int) -> FloatArray:
        """Sum the entries along an axis from each start to the next."""
        return np.asarray(np.add.reduceat(x, starts, axis=axis))

    def reduce_rows(
        self,
        x: FloatArray,
        rows: Places,
        starts: Sequence[int],
        how: Reduction,
        weights: FloatArray | None = None,
    ) -> FloatArray:
        """Sum groups of rows of a table (T, C), or take their maximum: (B, C)."""
        x = x[rows] if isinstance(rows, slice) else x.take(rows, 0)
        if weights is not None:
            x = x * weights[:, None]
        reduce = (np.maximum if how == "max" else np.add).reduce
        reduced = np.empty((len(starts), x.shape[1]), np.float32)
        # One call for each group: `reduceat` over rows takes ten times as long.
        for out, start, stop in zip(reduced, starts, [*starts[1:], len(x)], strict=True):
            reduce(x[start:stop], axis=0, out=out)
        return reduced

    def stack(self, arrays: list[NDArray[Any]]) -> NDArray[Any]:
        """Join arrays of one shape along a new first axis."""
        return np.stack(arrays)

    def join(self, arrays: list[NDArray[Any]], axis: int) -> NDArray[Any]:
        """Join arrays along an axis that they have."""
        return np.concatenate(arrays, axis)

    def empty(self, *shape: int) -> FloatArray:
        """Allocate an uninitialised array."""
        return np.empty(shape, np.float32)

    def linear(self, x: FloatArray, weight: FloatArray, bias: FloatArray | None) -> FloatArray:
        """Compute x Wᵀ + b: (rows, in), (out, in) and (out,) -> (rows, out)."""
        product: FloatArray = x @ weight.T
        return product if bias is None else product + bias

    def activate(self, x: FloatArray, activation: str) -> FloatArray:
        """Apply an activation, by its name."""
        return ACTIVATIONS[activation](x)

    def layer_norm(
        self, x: FloatArray, gain: FloatArray, bias: FloatArray | None, epsilon: float
    ) -> FloatArray:
        """Normalise the rows of (rows, C) (Ba et al. 2016)."""
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(epsilon))
        normed: FloatArray = centred / deviation * gain
        return normed if bias is None else normed + bias

    def rms_norm(self, x: FloatArray, gain: FloatArray, epsilon: float) -> FloatArray:
        """Normalise the rows of (rows, C) (Zhang & Sennrich 2019)."""
        deviation = np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(epsilon))
        return np.asarray(x / deviation * gain)

    def log_sum_exp(self, x: FloatArray) -> NDArray[np.float64]:
        """Ln Σ exp x over the last axis of finite numbers."""
        top = x.max(-1)
        with np.errstate(invalid="ignore"):  # where a number is not finite, the result is not
            return np.asarray(np.log(np.exp(x - top[:, None]).sum(-1, dtype=np.float64)) + top)

    def candidates(
        self, x: FloatArray, above: FloatArray, most: int
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Find the `most` largest numbers of each row of (rows, V) that exceed the row's one in `above`."""
        larger = x > above[:, None]
        if np.count_nonzero(larger) > len(x) * most and most < x.shape[1]:
            place = x.shape[1] - most
            larger &= x >= np.partition(x, place, -1)[:, place, None]
        places = np.flatnonzero(larger)  # ten times as fast as finding rows and columns
        return *np.divmod(places, x.shape[1]), x.ravel()[places]


NUMPY = NumpyOperations()
