"""Columns and labels of an item: everything that was run, and what each index of a map is."""

from dataclasses import replace

import pytest

from model.types import Aggregate, AttentionWant
from service.items import columns, labels, map_shape
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


def test_labels_name_what_each_index_is() -> None:
    """Rows and columns that were not chosen are all of them; an aggregated axis has no labels."""
    want = AttentionWant((1, 0), (3,), queries=(2,))
    assert labels(want, 4) == {"layers": [1, 0], "heads": [3], "queries": [2], "keys": [0, 1, 2, 3]}
    assert "heads" not in labels(replace(want, aggregate="max"), 4)
    assert labels(None, 4) == {}


@pytest.mark.parametrize("aggregate", ["none", "mean"])
@pytest.mark.parametrize("queries", [None, (0, 0, 1)])
def test_the_shape_of_a_map_is_that_of_its_labels(
    aggregate: Aggregate, queries: tuple[int, ...] | None
) -> None:
    """One length for each list, in their order."""
    want = AttentionWant((1, 0, 1), (3, 2), queries, (1,), aggregate)
    assert map_shape(want, 4) == tuple(map(len, labels(want, 4).values()))
    assert map_shape(None, 4) == ()
