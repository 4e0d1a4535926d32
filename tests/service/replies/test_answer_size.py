"""An answer is never larger than was said before, in any format, and not much smaller."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from model.contract import Encoding
from model.tokenization.decoding import json_bytes
from service.replies.answer_size import bound, waiting_bytes
from service.replies.formats import FORMATS
from service.replies.json_writer import last_line, lines
from service.replies.style import AnswerStyle
from service.replies.writing import write
from service.tasks.precision import Precision, quantize
from service.tasks.results import COLUMNS, Column, Expected, Item, columns
from tests.support.doubles import tokenizer

NAMES: list[Any] = list(FORMATS)
MODEL = "a-model-of-usual-length"
TOKENS = 10**7

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
small = st.floats(min_value=-(2.0**-13), max_value=2.0**-13, width=32)

WORST = Encoding(
    token_ids=[2**31 - 1] * 3,
    segment_ids=[1] * 3,
    tokens=["\x01" * 40, '"\\' * 20, "\ufffd🙂" * 20],
    offsets=[(2_000_000, 2_000_000)] * 3,
    word_ids=[2_000_000, None, 1_999_999],
    special=[False] * 3,
    truncated=False,
    original_length=2_000_000,
)
PLAIN = Encoding(
    token_ids=[2**31 - 1] * 2,
    segment_ids=[1] * 2,
    tokens=['"' * 300, "\\" * 300],
    offsets=[(2_000_000, 2_000_000)] * 2,
    word_ids=[2_000_000] * 2,
    special=[False] * 2,
    truncated=False,
    original_length=2_000_000,
)


def size(style: AnswerStyle, items: list[Item]) -> int:
    """The bytes of an answer, the larger of its two ways to be written."""
    if style.format == "ndjson":
        return sum(map(len, lines(style, items))) + len(last_line(style, TOKENS))
    declared, pieces = write(style, items, TOKENS)
    written = sum(map(len, pieces))
    assert declared in (written, None)
    return max(written, len(b"".join(write(style, items, TOKENS, whole=True)[1])))


def expected(arrays: Mapping[str, np.ndarray[Any, Any]], **more: Any) -> Expected:
    return Expected({name: array.shape for name, array in arrays.items()}, **more)


@pytest.mark.parametrize("format_name", NAMES)
@given(value=finite | small, encoding=st.sampled_from([WORST, PLAIN]), count=st.integers(1, 3))
@example(value=-1.00000034e-05, encoding=WORST, count=1)
@example(value=-1234567900000000.0, encoding=PLAIN, count=2)
def test_vectors_are_never_larger_than_their_bound(
    format_name: Any, value: float, encoding: Encoding, count: int
) -> None:
    """Whatever the numbers and the tokens are, the size that was checked beforehand is not exceeded."""
    arrays = {
        "embedding": np.full(200, value, dtype=np.float32),
        "token_embeddings": np.full((2, 3, 100), value, dtype=np.float32),
    }
    for dtype in ("float32", "float16") if format_name in ("npz", "safetensors") else ("float32",):
        style = AnswerStyle(MODEL, format_name, dtype)
        items = [Item(columns(i, encoding), arrays) for i in range(count)]
        assert size(style, items) <= bound(style, [expected(arrays, encoding=encoding)] * count)


@pytest.mark.parametrize("format_name", NAMES)
@given(
    chosen=st.sets(st.sampled_from(COLUMNS)),
    encoding=st.sampled_from([WORST, PLAIN]),
    longer=st.integers(1, 300),
)
def test_each_column_is_bounded_by_itself(
    format_name: Any, chosen: set[Column], encoding: Encoding, longer: int
) -> None:
    """Whatever columns are left out, those that remain are never larger than their own bound."""
    named = [name for name in COLUMNS if name in chosen]
    long = replace(encoding, **{name: getattr(encoding, name) * longer for name in COLUMNS})
    style = AnswerStyle(MODEL, format_name)
    item = Item(columns(0, long, named), {})
    assert item.columns.keys() & set(COLUMNS) == chosen
    limit = bound(style, [Expected(encoding=long, columns=named)])
    assert size(style, [item]) <= limit
    assert limit <= bound(style, [Expected(encoding=long)])


@pytest.mark.in_turns
@pytest.mark.parametrize("precision", ["float32", "int8", "uint8", "binary", "ubinary"])
@pytest.mark.parametrize("format_name", NAMES)
@given(value=st.sampled_from([-1.0, -0.9, 0.0, 1.0, -1.00000034e-05]), count=st.integers(0, 200))
def test_chunks_and_quantized_vectors_are_never_larger_than_their_bound(
    format_name: Any, precision: Precision, value: float, count: int
) -> None:
    """Integers of one byte, as text or not, and the places of chunks in a long text."""
    vectors = {
        "embedding": np.full(160, value, dtype=np.float32),
        "chunks": np.full((count, 24), value, dtype=np.float32),
    }
    places = {"offsets": [[2_000_000] * 2] * count, "token_spans": [[2_000_000] * 2] * count}
    counted = expected(vectors, encoding=WORST, labels=4 * count)
    arrays = {name: quantize(array, precision) for name, array in vectors.items()}
    item = Item(columns(0, WORST) | {"chunks": places}, arrays)
    style = AnswerStyle(MODEL, format_name, precision=precision)
    written, limit = size(style, [item]), bound(style, [counted])
    assert written <= limit
    floats = 4 * sum(array.size for array in vectors.values())
    assert waiting_bytes(style, [counted]) == (0 if precision == "float32" else floats)


@pytest.mark.parametrize("precision", ["int8", "ubinary"])
@pytest.mark.parametrize("format_name", ["npz", "safetensors"])
def test_the_size_of_a_file_of_quantized_chunks_is_known_almost_exactly(
    format_name: Any, precision: Precision
) -> None:
    """A byte for each component or for eight of them, not the four of the vectors that they come from."""
    (encoding,) = tokenizer().encode(["word " * 10])
    vectors = np.full((1000, 768), 0.5, np.float32)
    places = {"offsets": [[100_000] * 2] * 1000, "token_spans": [[1000] * 2] * 1000}
    item = Item(columns(0, encoding) | {"chunks": places}, {"chunks": quantize(vectors, precision)})
    style = AnswerStyle(MODEL, format_name, precision=precision)
    limit = bound(style, [Expected({"chunks": vectors.shape}, encoding, labels=4000)])
    assert size(style, [item]) <= limit <= 1.15 * size(style, [item])


@pytest.mark.in_turns
@pytest.mark.parametrize("decimals", [1, 3, 6, 7, 9])
@pytest.mark.parametrize("format_name", NAMES)
@given(value=st.floats(min_value=0, max_value=1, width=32) | finite, unit=st.booleans())
@example(value=1.00000034e-05, unit=True)
@example(value=0.99999994, unit=True)
def test_maps_are_never_larger_than_their_bound(
    format_name: Any, decimals: int, value: float, unit: bool
) -> None:
    """The same for rounded maps, sparse ones, label lists, further texts and a summary."""
    value = min(abs(value), 1.0) if unit else abs(value)
    arrays = {
        "attention": np.full((2, 3, 60, 3), value, dtype=np.float32),
        "top_keys": np.full((2, 3, 10, 2), 2**31 - 1, dtype=np.int32),
        "top_weights": np.full((2, 3, 10, 2), value, dtype=np.float32),
        "residual": np.full((2, 3, 10), value, dtype=np.float32),
        "thumbnails": np.full((2, 3, 8, 8), value, dtype=np.float32),
    }
    labels, words = [2_000_000] * 400, ["\x02" * 9, '"' * 20]
    more = {"layers": labels, "word_offsets": [[2_000_000] * 2] * 3, "words": words}
    arrays["summary.mean_distance"] = np.full((20, 1), min(value, 9999.123), dtype=np.float32)
    item = Item(columns(0, WORST) | more, arrays)
    text = 3 * len(words) + json_bytes("".join(words))
    counted = expected(arrays, encoding=WORST, labels=406, column_bytes=text)
    for dtype in ("float32", "float16", "uint8") if format_name in ("npz", "safetensors") else ("float32",):
        style = AnswerStyle(MODEL, format_name, dtype, decimals, unit, ("layer", "head", "query", "key"))
        assert size(style, [item]) <= bound(style, [counted])


@pytest.mark.parametrize("format_name", NAMES)
@pytest.mark.parametrize("kind", ["sentence", "tokens", "maps", "columns"])
def test_the_bound_is_not_far_off(format_name: Any, kind: str) -> None:
    """A bound that is many times too large would refuse what could be served."""
    (encoding,) = tokenizer().encode(["one sentence of a few usual words that somebody might write " * 8])
    n, rng = len(encoding), np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "sentence": {"embedding": rng.normal(size=384, scale=0.05).astype(np.float32)},
        "tokens": {"token_embeddings": rng.normal(size=(2, n, 384)).astype(np.float32)},
        "maps": {"attention": rng.dirichlet(np.full(n, 0.1), size=(2, 12, n)).astype(np.float32)},
        "columns": {},
    }[kind]
    style = AnswerStyle(MODEL, format_name, decimals=6)
    written = size(style, [Item(columns(0, encoding), arrays)])
    limit = bound(style, [expected(arrays, encoding=encoding)])
    most = 1.1 if FORMATS[format_name].binary and kind in ("tokens", "maps") else 2.5
    assert written <= limit <= most * written


@pytest.mark.parametrize("format_name", ["npz", "safetensors"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_the_size_of_a_file_of_maps_is_known_almost_exactly(format_name: Any, dtype: Any) -> None:
    """Of probabilities the type is certain before they are computed."""
    (encoding,) = tokenizer().encode(["word " * 100])
    n = len(encoding)
    arrays = {"attention": np.full((6, 12, n, n), 1 / n, dtype=np.float32)}
    style = AnswerStyle(MODEL, format_name, dtype)
    written = size(style, [Item(columns(0, encoding), arrays)])
    assert written <= bound(style, [expected(arrays, encoding=encoding)]) <= 1.02 * written
