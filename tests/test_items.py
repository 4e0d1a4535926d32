"""Columns of an item: everything that was run."""

from service.items import columns
from tests.doubles import tokenizer


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
