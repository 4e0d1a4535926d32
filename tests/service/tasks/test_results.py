"""Columns of an item: everything that was run."""

from dataclasses import replace
from typing import Any

from service.replies.style import AnswerStyle
from service.tasks.results import columns, covered
from tests.support.doubles import tokenizer


def test_the_columns_stand_as_they_were_run() -> None:
    """Every column of the encoding is in the item, under its name of the contract."""
    (encoding,) = tokenizer().encode([("a pair", "of texts")])
    assert columns(3, encoding) == {
        "index": 3,
        "tokens": encoding.tokens,
        "token_ids": encoding.token_ids,
        "offsets": encoding.offsets,
        "word_ids": encoding.word_ids,
        "segment_ids": encoding.segment_ids,
        "special": encoding.special,
        "truncated": False,
        "original_length": len(encoding),
    }


def test_two_texts_without_a_token_between_them_are_covered_apart() -> None:
    """Those of a tokenizer that adds no special tokens, which stand one after the other in an explanation."""
    (encoding,) = tokenizer().encode([("a pair", "of texts")])
    text = [i for i, special in enumerate(encoding.special) if not special]
    names = ("token_ids", "segment_ids", "tokens", "offsets", "word_ids", "special")
    left: dict[str, Any] = {name: [getattr(encoding, name)[i] for i in text] for name in names}
    bare = replace(encoding, **left)
    assert covered(bare) == covered(encoding) == [(0, 6), (0, 8)]


def test_maps_that_are_rounded_late_are_larger_before() -> None:
    """Probabilities come in the type of the answer, other maps in float32 until they are written."""
    assert AnswerStyle("m", "npz", "uint8", unit=False).growth == 4
    assert AnswerStyle("m", "npz", "uint8", unit=True).growth == 1
    assert AnswerStyle("m", "npz", "float16", unit=False).growth == 1  # and is reckoned as float32
    assert AnswerStyle("m").growth == 1
