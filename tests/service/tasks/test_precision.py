"""Embeddings in fewer bits: formulas that depend on one vector alone."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.tasks.precision import Precision, quantize, stored_size


def definition(vector: list[float], precision: str) -> list[int]:
    """Each number by the definition in `docs/formats.md`, one at a time.

    The bits are those of `sentence_transformers.quantize_embeddings`: the first of eight is the highest.
    """
    if precision in ("int8", "uint8"):
        steps = [max(-127, min(127, round(float(np.float32(127) * np.float32(x))))) for x in vector]
        return [step + (128 if precision == "uint8" else 0) for step in steps]
    bits = "".join("1" if x > 0 else "0" for x in vector)
    numbers = [int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)]
    return [number - (128 if precision == "binary" else 0) for number in numbers]


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("int8", np.int8), ("uint8", np.uint8), ("binary", np.int8), ("ubinary", np.uint8)],
)
@given(vector=st.lists(st.floats(-1.125, 1.125, width=32), min_size=16, max_size=16))
def test_each_precision_is_its_definition(precision: Precision, dtype: Any, vector: list[float]) -> None:
    """Steps are rounded to even and clipped; a bit is set above 0, and neither by 0 nor by −0."""
    vectors = np.array([vector, vector[::-1]], np.float32)
    found = quantize(vectors, precision)
    assert found.dtype == dtype
    assert found.tolist() == [definition(vector, precision), definition(vector[::-1], precision)]
    assert found.shape == (2, stored_size(16, precision))
    assert np.array_equal(quantize(vectors[0], precision), found[0])


def test_bits_of_known_bytes() -> None:
    """The bits 10011010 are the byte 154, and 26 in the offset form."""
    vector = np.array([1, -1, 0, 0.5, 1e-9, -0.0, 3, -2], np.float32)
    assert quantize(vector, "ubinary").tolist() == [154]
    assert quantize(vector, "binary").tolist() == [26]
    assert np.array_equal(np.unpackbits(quantize(vector, "ubinary")), vector > 0)


def test_float32_is_left_as_it_is() -> None:
    """Without a precision nothing is copied."""
    vector = np.ones(5, np.float32)
    assert quantize(vector, "float32") is vector


def test_bits_that_fill_no_byte_are_refused() -> None:
    """Padding would change the distance between vectors."""
    with pytest.raises(ValueError, match="12 components"):
        quantize(np.ones((2, 12), np.float32), "binary")
