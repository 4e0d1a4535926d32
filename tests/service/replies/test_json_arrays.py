"""Numbers as text: exact, to the nearest, in small pieces, and of the size that was said before."""

import json
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn
from numpy.typing import NDArray

from model.contract import FloatArray
from service.replies import json_arrays
from service.replies.json_arrays import PIECE_VALUES, array_text, rounded, text_size

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
probability = st.floats(min_value=0, max_value=1, width=32)
shapes = stn.array_shapes(min_dims=1, max_dims=4, max_side=5)


def text(array: NDArray[Any], decimals: int | None, *, unit: bool = False) -> str:
    return b"".join(array_text(array, decimals, unit=unit)).decode()


def values(written: str) -> list[str]:
    return written.replace("[", "").replace("]", "").split(",")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table for any size, and pieces of a few numbers."""
    monkeypatch.setattr(json_arrays, "FEW_VALUES", 0)
    monkeypatch.setattr(json_arrays, "PIECE_VALUES", 7)


@given(array=stn.arrays(np.float32, st.integers(1, 40), elements=finite))
def test_every_float_is_given_back(array: FloatArray) -> None:
    """Without rounding, the text of a number is the shortest that, read as float32, has the same bits."""
    written = text(array, None)
    assert np.array(json.loads(written), dtype=np.float32).tobytes() == array.tobytes()
    for number, value in zip(values(written), array, strict=True):
        assert float(number) == float(np.format_float_scientific(value, unique=True, trim="-"))


@pytest.mark.parametrize("decimals", [1, 2, 5, 6])
@given(array=stn.arrays(np.float32, st.integers(1, 60), elements=probability))
@example(array=np.array([0.0, 1.0, 0.5, 0.9999995, 0.99999994, 1e-7, 5e-7, 0.1234565], dtype=np.float32))
def test_a_probability_is_written_as_the_nearest_decimal(decimals: int, array: FloatArray) -> None:
    """Each number is the decimal nearest to the float32, as exact arithmetic finds it."""
    many = np.resize(array, 1200)
    step = Decimal(10) ** -decimals
    for number, value in zip(values(text(many, decimals, unit=True)), many, strict=True):
        assert abs(Decimal(number) - Decimal(float(value))) <= step / 2
        assert -Decimal(number).as_tuple().exponent == decimals  # type: ignore[operator]


def test_rounding_noise_is_not_written() -> None:
    """A mean of probabilities may be a little above one, and a residual a little below zero."""
    array = np.array([1.0000002, -3e-8, -0.0] * 500, dtype=np.float32)
    assert set(values(text(array, 6, unit=True))) == {"1.000000", "0.000000"}


@pytest.mark.usefixtures("tiny")
@given(shape=shapes, unit=st.booleans(), decimals=st.sampled_from([3, 6, None]))
@example(shape=(3, 1, 9), unit=True, decimals=6)
@example(shape=(40,), unit=True, decimals=6)
@example(shape=(2, 3, 8), unit=True, decimals=3)
def test_arrays_are_nested_lists_whatever_their_shape(
    shape: tuple[int, ...], unit: bool, decimals: int | None
) -> None:
    """Written in pieces or at once, with the table or without, the JSON is that of the nested lists."""
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 1000
    written = text(array, decimals, unit=unit)
    assert json.loads(written) == np.round(array.astype(np.float64), 3).tolist()
    if unit and decimals is not None:
        assert len(written) == text_size(shape, decimals + 3)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3), (2, 0, 3), (1, 2, 3, 0)])
def test_an_axis_may_have_no_length(shape: tuple[int, ...]) -> None:
    """Where nothing is left the lists are there and empty."""
    array = np.zeros(shape, dtype=np.float32)
    assert json.loads(text(array, 6, unit=True)) == array.tolist()
    assert len(text(array, 6, unit=True)) <= text_size(shape, 9)


def test_arrays_need_not_lie_in_order() -> None:
    """A transposed array and one with steps are written like their copies."""
    array = np.random.default_rng(0).random((60, 70), dtype=np.float32)
    for view in (array.T, array[::2, ::-1]):
        assert text(view, 6, unit=True) == text(view.copy(), 6, unit=True)
        assert text(view, None) == text(view.copy(), None)


@given(array=stn.arrays(np.float32, st.integers(1, 30), elements=finite), decimals=st.integers(1, 9))
def test_rounding_is_to_the_nearest(array: FloatArray, decimals: int) -> None:
    """A rounded number has no more decimals than asked and is as near as float32 allows; none is −0."""
    result = rounded(array, decimals)
    assert result.dtype == np.float32
    with np.errstate(over="ignore"):  # the largest float32 has no neighbour above it
        ulp = np.spacing(np.abs(array)).astype(np.float64)
    assert (np.abs(result.astype(np.float64) - array) <= 0.5 * 10.0**-decimals * (1 + 1e-9) + ulp).all()
    for value in result:
        digits = np.format_float_positional(value, unique=True, trim="-")
        assert len(digits.partition(".")[2]) <= decimals
    assert "-0.0," not in text(result, decimals) + ","


def test_integers_are_written_as_they_are() -> None:
    """Positions are no floats."""
    array = np.array([[3, 0], [12, 1]], dtype=np.int32)
    assert text(array, None) == "[[3,0],[12,1]]"


@pytest.mark.thorough
@pytest.mark.parametrize(("decimals", "unit"), [(6, True), (6, False), (None, False)])
@pytest.mark.parametrize("shape", [(3, 2, 400, 400), (500_000,), (4, 200_000), (300_000, 1)])
def test_no_piece_holds_the_interpreter_for_long(
    shape: tuple[int, ...], decimals: int | None, unit: bool
) -> None:
    """No single step writes more numbers than a piece has, and few write much less."""
    array = np.full(shape, 0.5, dtype=np.float32)
    pieces = list(array_text(array, decimals, unit=unit))
    counts = [bytes(piece).count(b"0.5") for piece in pieces]
    assert max(counts) <= PIECE_VALUES
    assert sum(counts) == array.size
    written = [count for count in counts if count]
    assert all(a + b > PIECE_VALUES // 2 for a, b in pairwise(written))
    assert orjson.loads(b"".join(pieces)) == array.tolist()
