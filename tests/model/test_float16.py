"""float16 numbers are those that IEEE rounding gives, whatever computes them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from model.float16 import to_float16


def same(values: np.ndarray) -> bool:
    """Bit for bit what numpy's own conversion gives."""
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16)
    found = to_float16(values)
    assert found.dtype == np.float16
    assert found.shape == values.shape
    return bool(np.array_equal(found.view(np.uint16), expected.view(np.uint16)))


@given(hnp.arrays(np.float32, hnp.array_shapes(), elements=st.floats(width=32, allow_nan=False)))
def test_every_number_is_rounded_as_numpy_rounds(values: np.ndarray) -> None:
    """Normal, subnormal, negative, zero, too large."""
    assert same(values)


def test_every_half_and_its_neighbours_are_exact() -> None:
    """All finite float16 numbers, the middles between them, and the float32 numbers next to those."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    exact = np.sort(halves[np.isfinite(halves)].astype(np.float32))
    middles = (exact[1:] + exact[:-1]) / 2
    for values in (exact, middles):
        assert same(values)
        assert same(np.nextafter(values, np.float32(np.inf))[values < 65504])
        assert same(np.nextafter(values, np.float32(-np.inf))[values > -65504])


@pytest.mark.parametrize("size", [0, 1, (1 << 16) - 1, (1 << 16) + 1])
def test_any_number_of_numbers_is_converted(size: int) -> None:
    """Also where they are more than one piece; what is not finite stays so."""
    values = np.random.default_rng(size).random(size, np.float32)
    assert same(values)
    assert same(values.reshape(1, -1)[:, ::2])
    if size:
        values[0] = np.nan
        assert np.isnan(to_float16(values)[0])
