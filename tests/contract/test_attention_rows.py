"""Rows and columns, renormalisation and the largest keys of `POST /attention`, against the definitions."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.references.comparing import distance
from tests.support.attention_answers import SHORT, TEXT, Subject
from tests.support.backends import both_backends

pytestmark = both_backends

Array = NDArray[np.float64]


def rows(item: Any) -> Array:
    return np.array(item["attention"]).sum(-1)


# -------------------------------------------------------------------------------- queries and keys


@pytest.mark.parametrize("level", ["token", "word"])
@pytest.mark.parametrize(
    "options",
    [
        {"queries": [-1]},
        {"keys": [2, 1, 1, -2]},
        {"queries": [3, 3, 0], "keys": [-1, 0]},
        {"queries": [2, -2], "special_tokens": "drop"},
        {"queries": [1.0], "keys": [-2.0, 2], "special_tokens": "drop"},
        {"queries": [1, 2], "aggregate": "rollout"},
        {"keys": [1, -1, 1], "aggregate": "max", "weights": "score"},
    ],
)
def test_positions_are_those_in_the_whole_input(mini: Subject, level: str, options: Any) -> None:
    """Of tokens or of words, counted before anything is dropped, in the order and as often as asked."""
    mini.check(TEXT, "one two three", level=level, **options)


# --------------------------------------------------------------------------------------- renormalize


@pytest.mark.parametrize(
    "options",
    [
        {"special_tokens": "drop"},
        {"special_tokens": "drop", "level": "word"},
        {"keys": [1, 1, -2]},
        {"queries": [1], "keys": [4], "level": "word"},
        {"weights": "value_norm"},
        {"weights": "value_norm", "special_tokens": "drop", "aggregate": "mean"},
        {"aggregate": "max"},
        {"aggregate": "rollout", "special_tokens": "drop"},
    ],
)
def test_renormalized_rows_sum_to_one_again(mini: Subject, options: Any) -> None:
    """Of what remains of each row; a column that was asked twice counts twice."""
    (item,) = mini.check(TEXT, renormalize=True, **options)
    assert np.abs(rows(item) - 1).max() <= 1e-6


# --------------------------------------------------------------------------------------------- top k


@pytest.mark.in_turns
@pytest.mark.parametrize("k", [1, 3, 3.0, 100])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weights": "score", "layers": [0, 5]},
        {"weights": "value_norm", "layers": [3]},
        {"aggregate": "mean"},
        {"aggregate": "rollout"},
        {"level": "word", "special_tokens": "drop"},
        {"special_tokens": "drop", "renormalize": True, "layers": [2]},
        {"queries": [2, -1], "keys": [5, 2, 5, 0, -1, 1]},
        {"keys": [5, 2, 5, 0, -1, 1], "renormalize": True, "layers": [2]},
        {"keys": [1, 1, 2], "renormalize": True, "level": "word", "layers": [2]},
    ],
)
def test_top_k_keeps_the_largest_of_each_row(mini: Subject, k: float, options: Any) -> None:
    """Positions, values and what they leave out; k is no more than there are columns."""
    mini.check(TEXT, top_k=k, **options)


def test_nothing_is_left_out_where_k_is_large(mini: Subject) -> None:
    """All of a row in another order leaves a residual of 0."""
    (item,) = mini.check(TEXT, top_k=512)
    assert set(np.array(item["residual"]).ravel().tolist()) == {0.0}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [("all", [0, 1, 2]), ([4, 2, -1, 2, 0], [0, 2, 2]), ([3, 1], [1, 3]), ([-1, -2], [3, 4])],
)
def test_ties_go_to_the_lower_position(uniform: Subject, keys: Any, expected: list[int]) -> None:
    """Where all tokens are looked at alike, the first ones are named first, however they were asked for."""
    (item,) = uniform.check(SHORT, top_k=3, keys=keys)
    found = np.array(item["top_keys"])
    assert (found == expected).all()
    assert distance(item["top_weights"], np.full(found.shape, 0.2)) <= 1e-6
