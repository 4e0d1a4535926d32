"""Numbers as text: exact, in small pieces, and never more bytes than was said before."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from model.types import AttentionWant, Encoding, FloatArray, Output, Want
from service.serialize import (
    answer,
    attention_bound,
    attention_items,
    encode_bound,
    encode_items,
    labels,
    rounded,
)
from tests.doubles import tokenizer

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
small = st.floats(min_value=-(2.0**-13), max_value=2.0**-13, width=32)
probability = st.floats(min_value=0, max_value=1, width=32)

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


def whole(items: Any, **options: Any) -> bytes:
    return b"".join(answer(items, model="a-model-of-usual-length", tokens=10**7, **options))


@given(array=stn.arrays(np.float32, st.integers(1, 40), elements=finite))
def test_every_float_is_given_back(array: FloatArray) -> None:
    """The text of a number is the shortest that, read as float32, has the same bits."""
    (item,) = json.loads(whole(encode_items([WORST], [Output(sentence=array)])))["data"]
    text = whole(encode_items([WORST], [Output(sentence=array)])).decode()
    assert np.array_equal(np.array(item["embedding"], dtype=np.float32), array)
    numbers = text[text.index('"embedding":[') + 13 :].split("]")[0].split(",")
    for number, value in zip(numbers, array, strict=True):
        shortest = np.format_float_scientific(value, unique=True, trim="-")
        assert float(number) == float(shortest)


@given(value=finite | small, count=st.integers(1, 3))
@example(value=-1.00000034e-05, count=1)
@example(value=-1234567900000000.0, count=1)
def test_an_answer_of_encode_is_never_larger_than_its_bound(value: float, count: int) -> None:
    """Whatever the numbers and the tokens are, the size that was checked beforehand is not exceeded."""
    sentence, tokens = np.full(500, value, dtype=np.float32), np.full((2, 3, 500), value, dtype=np.float32)
    output = Output(sentence=sentence, tokens=tokens)
    encodings = [WORST] * count
    written = whole(encode_items(encodings, [output] * count))
    assert len(written) <= encode_bound(encodings, sentence_size=500, layers=2, hidden_size=500)


@pytest.mark.parametrize("decimals", [1, 3, 6, 7, 9])
@pytest.mark.parametrize("aggregate", ["none", "mean"])
@given(value=probability)
@example(value=1.00000034e-05)
@example(value=0.99999994)
def test_an_answer_of_attention_is_never_larger_than_its_bound(
    aggregate: Any, decimals: int, value: float
) -> None:
    """The same for maps, with rounded numbers."""
    rows = tuple([0, 1, 2] * 20)
    want = Want(attention=AttentionWant((0, 1), (0, 1, 2), queries=rows, aggregate=aggregate))
    maps = np.full((2, 3, 60, 3) if aggregate == "none" else (2, 60, 3), value, dtype=np.float32)
    axes = ["layer", "head", "query", "key"]
    written = whole(attention_items([WORST], [want], [Output(attention=maps)], decimals), axes=axes)
    assert len(written) <= attention_bound([WORST], [want], decimals)


def test_the_bound_is_not_far_off() -> None:
    """A bound that is many times too large would refuse what could be served."""
    (encoding,) = tokenizer().encode(["one " * 100])
    vectors = np.random.default_rng(0).normal(size=(2, len(encoding), 384)).astype(np.float32)
    written = whole(encode_items([encoding], [Output(tokens=vectors)]))
    bound = encode_bound([encoding], sentence_size=0, layers=2, hidden_size=384)
    assert len(written) <= bound <= 2.5 * len(written)


@given(array=stn.arrays(np.float32, st.integers(1, 30), elements=probability), decimals=st.integers(1, 9))
def test_rounding_is_to_the_nearest(array: FloatArray, decimals: int) -> None:
    """A rounded number has no more decimals than asked and is as near as float32 allows."""
    result = rounded(array, decimals)
    assert result.dtype == np.float32
    assert np.abs(result.astype(np.float64) - array).max() <= 0.5 * 10.0**-decimals * 1.1 + 6e-8
    for value in result:
        text = np.format_float_positional(value, unique=True, trim="-")
        assert len(text.partition(".")[2]) <= decimals


def test_labels_name_what_each_index_is() -> None:
    """Rows and columns that were not chosen are all of them; an aggregated axis has no labels."""
    want = AttentionWant((1, 0), (3,), queries=(2,))
    assert labels(want, 4) == {"layers": [1, 0], "heads": [3], "queries": [2], "keys": [0, 1, 2, 3]}
    assert "heads" not in labels(replace(want, aggregate="max"), 4)
    assert labels(None, 4) == {}


@given(
    shape=st.sampled_from([(5,), (2, 3), (3, 2, 4), (2, 1, 2, 3), (1, 600, 500), (2, 3, 300, 300)]),
    both=st.booleans(),
)
def test_arrays_are_nested_lists_whatever_their_size(shape: tuple[int, ...], both: bool) -> None:
    """Written in pieces or at once, the JSON is that of the nested list."""
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    sentence = np.ones(3, dtype=np.float32) if both else None
    pieces = list(encode_items([WORST, WORST], [Output(sentence=sentence, tokens=array)] * 2))
    data = json.loads(b"[" + b"".join(pieces) + b"]")
    assert len(data) == 2
    for item in data:
        assert item["token_embeddings"] == array.tolist()
        assert ("embedding" in item) == both


def test_no_piece_holds_the_interpreter_for_long() -> None:
    """No single step writes more than a quarter of a million numbers."""
    array = np.zeros((3, 2, 400, 400), dtype=np.float32)
    want = Want(attention=AttentionWant((0, 1, 2), (0, 1)))
    pieces = list(attention_items([WORST], [want], [Output(attention=array)], 6))
    assert max(piece.count(b",") + 1 for piece in pieces) <= 250_000
    assert sum(piece.count(b"0.0") for piece in pieces) == array.size


def test_the_columns_stand_as_they_were_run() -> None:
    """Every column of the encoding is in the item, under its name of the contract."""
    (encoding,) = tokenizer().encode([("a pair", "of texts")])
    (item,) = json.loads(whole(encode_items([encoding], [Output()])))["data"]
    assert item == {
        "index": 0,
        "tokens": encoding.tokens,
        "token_ids": encoding.token_ids,
        "offsets": [list(o) for o in encoding.offsets],
        "word_ids": encoding.word_ids,
        "segment_ids": encoding.segment_ids,
        "special": encoding.special,
        "truncated": False,
        "original_length": len(encoding),
    }
