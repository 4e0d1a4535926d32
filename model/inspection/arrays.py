"""The few array operations that inspection needs and that numpy and PyTorch spell differently."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray
from model.inspection.float16 import to_float16
from model.inspection.selection import IntArray, Places

Array = Any
"""A numpy array or a tensor, float32 unless said otherwise."""


class Operations(Protocol):
    """An array library, and the device that it computes on.

    What both libraries spell alike is not in here: arithmetic, `diagonal`, `sum`, `@`.
    """

    measured_at_once: int
    """How many scores the statistics are computed of at a time."""

    def array(self, values: NDArray[Any]) -> Array:
        """Take over a numpy array, of any dtype."""
        ...

    def numpy(self, x: Array) -> NDArray[Any]:
        """Hand an array over to numpy."""
        ...

    def numpy_float16(self, x: Array) -> NDArray[np.float16]:
        """Round to the nearest float16, ties to even, and hand over to numpy."""
        ...

    def finite(self, x: Array) -> NDArray[np.bool_]:
        """Whether all numbers of each entry of the first axis are finite: (b, …) -> (b,)."""
        ...

    def take(self, x: Array, places: Places, axis: int) -> Array:
        """Select along an axis: a view for neighbours, a copy for positions."""
        ...

    def weigh(self, scores: Array) -> tuple[Array, Array | None]:
        """Softmax over the last axis, as numbers (…, N) and what each row (…) is to be multiplied with.

        The largest score of each row is 0, which spares another pass. None in place of all ones.
        """
        ...

    def log(self, x: Array) -> Array:
        """Ln x, number by number, as a new array."""
        ...

    def sum_x_log_x(self, x: Array) -> Array:
        """Σ x ln x over the last axis, where 0 ln 0 is 0."""
        ...

    def maximum(self, one: Array, other: Array) -> Array:
        """The larger of two arrays, number by number."""
        ...

    def at_least(self, x: Array, least: float) -> Array:
        """Each number, or `least` where it is smaller; NaN stays NaN."""
        ...

    def largest(self, x: Array, axis: int) -> Array:
        """The largest along an axis, which stays with length 1."""
        ...

    def peaks(self, x: Array, *, values: bool) -> tuple[Array | None, Array]:
        """The largest along the last axis, maybe None without `values`, and where it first is."""
        ...

    def dot(self, one: Array, other: Array) -> Array:
        """Σ one·other over the last axis; `one`, which is broadcast to the other, may be overwritten."""
        ...

    def total(self, x: Array) -> Array:
        """The sum over the last axis, in float64."""
        ...

    def weigh_heads(self, weights: Array, shares: FloatArray) -> Array:
        """Σ_h shares_h weights_bhrn: (b, heads, rows, N) and (heads,) -> (b, rows, N)."""
        ...

    def merge(self, x: Array, starts: IntArray, axis: int) -> Array:
        """Add up what lies along an axis from each start to the next."""
        ...

    def stack(self, arrays: list[Array]) -> Array:
        """Join arrays of one shape along a new first axis."""
        ...

    def empty(self, *shape: int) -> Array:
        """Make an array, to be filled."""
        ...


# In the place of 0 under a logarithm, whose product with a weight of 0 is 0.
_TINY = np.finfo(np.float32).tiny


class NumpyOperations:
    """The operations in numpy; arrays are handed over as they are."""

    measured_at_once = 2**16  # with what is computed of them they stay in a core's own cache

    def array(self, values: NDArray[Any]) -> NDArray[Any]:
        """Give the same array."""
        return values

    def numpy(self, x: NDArray[Any]) -> NDArray[Any]:
        """Give the same array."""
        return x

    def numpy_float16(self, x: FloatArray) -> NDArray[np.float16]:
        """Round to the nearest float16, ties to even."""
        return to_float16(x)

    def finite(self, x: FloatArray) -> NDArray[np.bool_]:
        """Whether all numbers of each entry of the first axis are finite: (b, …) -> (b,)."""
        return np.asarray(np.isfinite(x.sum(tuple(range(1, x.ndim)))))

    def take(self, x: NDArray[Any], places: Places, axis: int) -> NDArray[Any]:
        """Select along an axis: a view for a slice, a copy for positions."""
        return np.asarray(x[(slice(None),) * (axis % x.ndim) + (places,)])

    def weigh(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Softmax over the last axis, not divided by the sums of the rows, and one over these sums."""
        e: FloatArray = np.exp(scores)
        return e, 1 / e.sum(-1)

    def log(self, x: FloatArray) -> FloatArray:
        """Ln x, number by number."""
        return np.log(x)

    def sum_x_log_x(self, x: FloatArray) -> FloatArray:
        """Σ x ln x over the last axis, where 0 ln 0 is 0."""
        return self.dot(np.log(np.maximum(x, _TINY)), x)

    def maximum(self, one: FloatArray, other: FloatArray) -> FloatArray:
        """The larger of two arrays, number by number."""
        return np.maximum(one, other)

    def at_least(self, x: FloatArray, least: float) -> FloatArray:
        """Each number, or `least` where it is smaller; NaN stays NaN."""
        return np.maximum(x, np.float32(least))

    def largest(self, x: FloatArray, axis: int) -> FloatArray:
        """The largest along an axis, which stays with length 1."""
        return np.asarray(x.max(axis, keepdims=True))

    def peaks(self, x: FloatArray, *, values: bool) -> tuple[FloatArray | None, NDArray[np.intp]]:
        """The largest along the last axis, only with `values`, and where it first is."""
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
        """Add up what lies along an axis from each start to the next."""
        return np.asarray(np.add.reduceat(x, starts, axis=axis))

    def stack(self, arrays: list[NDArray[Any]]) -> NDArray[Any]:
        """Join arrays of one shape along a new first axis."""
        return np.stack(arrays)

    def empty(self, *shape: int) -> FloatArray:
        """Make an array, to be filled."""
        return np.empty(shape, np.float32)


NUMPY = NumpyOperations()
