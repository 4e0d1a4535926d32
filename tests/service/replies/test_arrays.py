"""Arrays as bytes: what readers of NumPy and safetensors get, and how far off it can be."""

import io
import json
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn
from safetensors.numpy import load

from service.replies import npz
from service.replies.arrays import pack
from service.replies.style import AnswerStyle
from service.replies.writing import write
from service.tasks.results import Item
from tests.support.serving import read_npz, read_safetensors

Arrays = dict[str, Any]

READERS = {"npz": read_npz, "safetensors": read_safetensors}
FORMATS: list[Any] = list(READERS)

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
small = st.floats(min_value=-(2.0**-13), max_value=2.0**-13, width=32)
probability = st.floats(min_value=0, max_value=1, width=32)
shapes = stn.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5)


def item(index: int = 0, summary: Any = None, **arrays: Any) -> Item:
    statistics = {f"summary.{name}": array for name, array in (summary or {}).items()}
    return Item({"index": index, "tokens": ["a"]}, arrays | statistics)


def written(style: AnswerStyle, *items: Item) -> bytes:
    size, pieces = write(style, items, 7)
    whole = b"".join(pieces)
    assert len(whole) == size, "the size is known before the first byte"
    return whole


def read(style: AnswerStyle, *items: Item) -> tuple[Arrays, dict[str, Any]]:
    return READERS[style.format](written(style, *items))


def restored(stored: np.ndarray[Any, Any], scale: float) -> np.ndarray[Any, Any]:
    """What a reader computes, in float32."""
    numbers = stored.astype(np.float32)
    return numbers * np.float32(scale) if stored.dtype == np.uint8 else numbers


@pytest.mark.parametrize("format_name", FORMATS)
@given(array=stn.arrays(np.float32, shapes, elements=finite))
def test_float32_is_kept_bit_by_bit(format_name: Any, array: Any) -> None:
    """Whatever the shape and the numbers, axes without a length included."""
    arrays, meta = read(AnswerStyle("m", format_name), item(embedding=array))
    assert arrays["0.embedding"].dtype == np.float32
    assert arrays["0.embedding"].shape == array.shape
    assert arrays["0.embedding"].tobytes() == array.tobytes()
    assert (meta["dtype"], meta["scale"], meta["max_error"]) == ("float32", 1.0, 0.0)


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_rest_of_the_answer_is_json(format_name: Any) -> None:
    """Everything that is no array is there; positions stay integers, and statistics float32 arrays."""
    third = np.full((2, 1), 1 / 3, dtype=np.float32)
    keys, weights = np.array([[2, 0]], dtype=np.int32), np.array([[0.5, 0.25]], dtype=np.float32)
    style = AnswerStyle('m"x', format_name, "uint8", 2, axes=("query", "key"))
    first = item(0, {"entropy": third}, embedding=third, attention=weights)
    arrays, meta = read(style, first, item(1, top_keys=keys, top_weights=weights))
    assert set(arrays) == {"0.embedding", "0.attention", "0.summary.entropy", "1.top_keys", "1.top_weights"}
    assert arrays["1.top_keys"].dtype == np.int32
    assert arrays["1.top_keys"].tolist() == [[2, 0]]
    assert arrays["0.embedding"].dtype == np.float32
    assert arrays["1.top_weights"].dtype == np.uint8
    assert list(meta) == ["model", "axes", "dtype", "scale", "max_error", "data", "usage"]
    assert (meta["model"], meta["axes"], meta["usage"]) == ('m"x', ["query", "key"], {"input_tokens": 7})
    assert arrays["0.summary.entropy"].dtype == np.float32
    assert np.array_equal(arrays["0.summary.entropy"], third)
    assert meta["data"] == [{"index": 0, "tokens": ["a"]}, {"index": 1, "tokens": ["a"]}]


@given(array=stn.arrays(np.float32, st.integers(1, 40), elements=probability))
@example(array=np.array([1.0000002, -1e-8, 0.50196074, 0.49803925, 0.0019607844], dtype=np.float32))
def test_bytes_of_probabilities_are_as_near_as_declared(array: Any) -> None:
    """uint8: steps of 1/255, and no number is further off than `max_error`, in float32 arithmetic too."""
    arrays, meta = read(AnswerStyle("m", "npz", "uint8"), item(attention=array))
    assert meta["scale"] == 1 / 255
    off = np.abs(restored(arrays["0.attention"], meta["scale"]).astype(np.float64) - array)
    assert off.max() <= meta["max_error"] <= 0.5001 / 255
    same = (array * np.float32(255)).round().clip(0, 255).astype(np.uint8)
    arrays, already = read(AnswerStyle("m", "npz", "uint8"), item(attention=same))
    assert arrays["0.attention"].tobytes() == same.tobytes(), "what has the type is written as it is"
    assert already["max_error"] == meta["max_error"]
    assert np.abs(restored(same, meta["scale"]).astype(np.float64) - array).max() <= meta["max_error"]


@given(
    array=stn.arrays(np.float32, st.integers(1, 40), elements=finite.map(abs)),
    other=stn.arrays(np.float32, st.integers(0, 5), elements=finite.map(abs)),
)
@example(array=np.array([1e-45], dtype=np.float32), other=np.array([0], dtype=np.float32))
@example(array=np.array([3.4028235e38, 1.7e38], dtype=np.float32), other=np.array([], dtype=np.float32))
@example(array=np.array([0], dtype=np.float32), other=np.array([], dtype=np.float32))
def test_bytes_of_other_weights_are_as_near_as_declared(array: Any, other: Any) -> None:
    """uint8 where numbers are no probabilities: the largest of the answer is 255 steps."""
    items = item(0, attention=array), item(1, attention=other)
    arrays, meta = read(AnswerStyle("m", "npz", "uint8", unit=False), *items)
    largest = max(float(array.max()), float(other.max(initial=0)))
    assert meta["scale"] == (max(largest / 255, 2.0**-126) if largest else 1 / 255)
    for name, exact in (("0.attention", array), ("1.attention", other)):
        with np.errstate(over="ignore"):
            got = restored(arrays[name], meta["scale"]).astype(np.float64)
        got = np.minimum(got, np.finfo(np.float32).max)  # 255 × scale may be past the largest float32
        assert (np.abs(got - exact) <= meta["max_error"]).all()


@given(array=stn.arrays(np.float32, st.integers(1, 40), elements=finite | small))
@example(array=np.array([65504.0, 1.0], dtype=np.float32))
@example(array=np.array([-65505.0], dtype=np.float32))
@example(array=np.array([0.99999994, 2**-25], dtype=np.float32))
@example(array=np.array([0.0, -0.0], dtype=np.float32))
@example(array=np.array([2049.0, -0.5], dtype=np.float32))
def test_half_precision_is_as_near_as_declared(array: Any) -> None:
    """float16: no number is further off than `max_error`, and arrays with larger ones stay float32."""
    arrays, meta = read(AnswerStyle("m", "safetensors", "float16"), item(embedding=array))
    fits = np.abs(array).max() <= 65504
    assert arrays["0.embedding"].dtype == (np.float16 if fits else np.float32)
    off = np.abs(arrays["0.embedding"].astype(np.float64) - array).max()
    assert off <= meta["max_error"] <= 2.0**-11 * max(np.abs(array).max(), 2.0**-14) * fits
    if fits:
        scores = AnswerStyle("m", "npz", "float16", unit=False)
        _, already = read(scores, item(attention=array.astype(np.float16)))
        assert off <= already["max_error"]


@pytest.mark.parametrize("format_name", FORMATS)
def test_arrays_that_half_precision_cannot_hold_are_named(format_name: Any) -> None:
    """They stay float32; −inf, the score of a key that is not seen, is a number of both types."""
    hidden = np.array([[1.0, -np.inf], [-np.inf, -3.0]], np.float32)
    large = np.array([1e5, 1.0], np.float32)
    style = AnswerStyle("m", format_name, "float16", unit=False)
    arrays, meta = read(style, item(0, attention=hidden), item(1, attention=large, embedding=large / 10))
    assert {name: array.dtype.name for name, array in arrays.items() if name != "meta"} == {
        "0.attention": "float16",
        "1.attention": "float32",
        "1.embedding": "float16",
    }
    assert meta["float32_arrays"] == ["1.attention"]
    assert np.array_equal(arrays["0.attention"], hidden)
    _, fitting = read(style, item(0, attention=hidden))
    assert "float32_arrays" not in fitting


def test_the_error_of_an_answer_is_that_of_its_worst_array() -> None:
    """One bound for all, exact arrays beside others included."""
    big, one = np.full(3, 1000.3, dtype=np.float32), np.ones(2, dtype=np.float32)
    style = AnswerStyle("m", "npz", "float16")
    _, meta = read(style, item(0, embedding=big, attention=one), item(1, attention=one))
    assert meta["max_error"] == 0.25


def test_readers_that_know_only_zip_read_the_archive() -> None:
    """Its checksums hold, its members are stored, named .npy, in the answer's order, without a date."""
    array = np.arange(300_000, dtype=np.float32)
    style = AnswerStyle("m", "npz", "float16")
    whole = written(style, item(0, embedding=array[:5], attention=array / 300_000), item(1, embedding=array))
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.testzip() is None
        names = ["0.embedding.npy", "0.attention.npy", "1.embedding.npy", "meta.npy"]
        assert archive.namelist() == names
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {info.flag_bits for info in archive.infolist()} == {0}


@pytest.mark.parametrize(("limit", "count"), [(1000, 0xFFFF), (0xFFFFFFFF, 4), (0, 0)])
def test_what_is_large_for_zip_has_fields_of_64_bits(
    monkeypatch: pytest.MonkeyPatch, limit: int, count: int
) -> None:
    """Sizes, offsets and counts past the old limits, which are lowered here, are read all the same."""
    array = np.arange(2000, dtype=np.float32)
    items = [item(i, embedding=array[: 10 * i + 1], attention=array) for i in range(5)]
    style = AnswerStyle("m", "npz")
    usual = written(style, *items)
    assert b"PK\x06\x06" not in usual
    monkeypatch.setattr(npz, "LIMIT", limit)
    monkeypatch.setattr(npz, "COUNT_LIMIT", count)
    whole = written(style, *items)
    assert b"PK\x06\x06" in whole
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.testzip() is None
    arrays, meta = read_npz(whole)
    assert arrays["4.embedding"].tolist() == array[:41].tolist()
    assert len(arrays) == 10
    assert meta == read_npz(usual)[1]


def test_tensors_are_aligned_and_without_gaps() -> None:
    """The header is padded to eight bytes, and each tensor begins at a multiple of its own size."""
    byte, two, four = np.ones(3, np.uint8), np.ones(5, np.float16), np.ones(7, np.float32)
    items = item(0, attention=byte, residual=two, embedding=four), item(1, attention=byte, embedding=four)
    whole = written(AnswerStyle("m", "safetensors", "uint8", unit=False), *items)
    assert len(load(whole)) == 5
    size = int.from_bytes(whole[:8], "little")
    assert size % 8 == 0
    header = json.loads(whole[8 : 8 + size])
    assert header.pop("__metadata__").keys() == {"headlight"}
    end = 0
    for tensor in header.values():
        start, stop = tensor["data_offsets"]
        assert start == end
        assert start % {"F32": 4, "F16": 2, "U8": 1}[tensor["dtype"]] == 0
        end = stop
    assert 8 + size + end == len(whole)


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_large_arrays_leave_in_pieces(format_name: Any, dtype: Any) -> None:
    """No piece has more than a megabyte; an array that has its type is not copied, nor laid out anew."""
    array = np.random.default_rng(0).random((3, 500, 700), dtype=np.float32)
    style = AnswerStyle("m", format_name, dtype)
    _, pieces = write(style, [item(attention=array)], 7)
    assert max(map(len, pieces)) <= 2**20
    (stored,) = pack(style, [item(attention=array)], 7).arrays
    if dtype == "float32":
        assert all(np.shares_memory(np.frombuffer(piece, np.uint8), array) for piece in stored.pieces())
    arrays, meta = read(style, item(attention=array.transpose(2, 0, 1)))
    got = restored(arrays["0.attention"], meta["scale"])
    assert np.abs(got.transpose(1, 2, 0) - array).max() <= meta["max_error"] + 1e-9


def test_equal_answers_are_equal_bytes() -> None:
    """Nothing of the clock or of chance is in a file."""
    array = np.ones((2, 3), dtype=np.float32)
    for format_name in FORMATS:
        style = AnswerStyle("m", format_name)
        assert written(style, item(embedding=array)) == written(style, item(embedding=array.copy()))
