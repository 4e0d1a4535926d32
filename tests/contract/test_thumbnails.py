"""Thumbnails by `POST /attention`, against the definition: each cell is the largest of its weights."""

from typing import Any

import pytest

from tests.support.attention_answers import PAIR, TEXT, Subject
from tests.support.backends import both_backends

pytestmark = both_backends


@pytest.mark.in_turns
@pytest.mark.parametrize("k", [1, 4, 5.0, 256])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"heads": [3, 0, 3], "layers": [-1, 0]},
        {"weights": "score", "layers": [0, 5]},
        {"weights": "value_norm", "layers": [3]},
        {"aggregate": "mean"},
        {"aggregate": "max", "weights": "score", "layers": [2]},
        {"aggregate": "rollout"},
        {"aggregate": "rollout", "queries": [1, 2, 1, 4], "keys": [0, 3]},
        {"special_tokens": "drop", "layers": [1]},
        {"special_tokens": "drop", "renormalize": True, "layers": [2]},
        {"level": "word", "special_tokens": "drop"},
        {"level": "word", "renormalize": True, "keys": [2, 1, 1], "layers": [4]},
        {"queries": [2, 3, 5], "layers": [5]},
        {"queries": [2, -1, 2, 0, 2], "keys": [5, 2, 5, 0, -1, 1], "layers": [4]},
        {"keys": [5, 2, 5, 0, -1, 1], "renormalize": True, "layers": [2]},
        {"summary": True, "outputs": ["sentence"], "layers": [2]},
    ],
    ids=str,
)
def test_a_cell_is_the_largest_weight_of_its_rows_and_columns(mini: Subject, k: float, options: Any) -> None:
    """After all other options, of texts of several lengths; no cell is without a row or a column."""
    mini.check(TEXT, TEXT + " man", "one two three four", thumbnail=k, **options)


def test_thumbnails_of_pairs_and_of_nothing(mini: Subject) -> None:
    """Pairs are one input; where special tokens are all there is and dropped, there are no cells."""
    mini.check(PAIR, thumbnail=6, layers=[0], special_tokens="drop")
    mini.check("", TEXT, "", thumbnail=3, special_tokens="drop", level="word", layers=[1])
