"""What the Python client takes as inputs, and what it says of the rest before anything is sent."""

import pickle
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headlight_client import Headlight, HeadlightError, InputsError
from headlight_client.inputs import listed
from tests.support.stand_in import refused, stand_in

NAN = float("nan")


class Series:
    """A column as pandas has it: `tolist`, `iloc`, and rows that are attributes, too."""

    def __init__(self, *rows: Any) -> None:
        self.rows = list(rows)
        self.columns = "a row may have any label"

    @property
    def iloc(self) -> "Series":
        return self

    @property
    def shape(self) -> tuple[int]:
        return (len(self.rows),)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def tolist(self) -> list[Any]:
        return self.rows


class DataFrame:
    """A table as pandas and polars have it; iterating it gives the names of its columns."""

    def __init__(self, *names: str) -> None:
        self.names = names

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)


class Dataset(DataFrame):
    """A table as datasets and pyarrow have it."""

    @property
    def column_names(self) -> list[str]:
        return list(self.names)


class Scalar:
    """A value of an Arrow array, which is no str."""


class Arrow:
    """An array as pyarrow has it: Python's values come from `to_pylist` alone."""

    def __iter__(self) -> Iterator[Scalar]:
        return iter([Scalar(), Scalar()])

    def to_pylist(self) -> list[str]:
        return ["a", "b"]


@pytest.mark.parametrize(
    ("inputs", "rows"),
    [
        ("a", ["a"]),
        (np.str_("a"), ["a"]),
        (("a", ""), ["a", ""]),
        ([("a", "b"), ["c", "d"]], [("a", "b"), ["c", "d"]]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array(["a", "b"], object), ["a", "b"]),
        (np.array("a"), ["a"]),
        ([np.str_("a"), "b"], ["a", "b"]),
        (Series("a", "b"), ["a", "b"]),
        (Arrow(), ["a", "b"]),
        (deque(["a", "b"]), ["a", "b"]),
        ((text for text in "ab"), ["a", "b"]),
        ({"a": 1, "b": 2}.keys(), None),
        (map(str.upper, "ab"), ["A", "B"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_texts_come_in_anything_that_has_an_order(inputs: Any, rows: Any) -> None:
    """Lists, arrays, columns and generators are texts; what has no order is not."""
    if rows is None:
        with pytest.raises(InputsError, match="no order"):
            listed(inputs)
    else:
        assert listed(inputs) == rows


@pytest.mark.parametrize(
    ("inputs", "field", "said"),
    [
        (
            ["a"] * 17 + [None],
            "inputs.17",
            "inputs[17] is None, not a string: drop the row or use ''",
        ),
        (["a", NAN, "b", None], "inputs.1", "inputs[1] is nan, not a string"),
        (["a", NAN, "b", None], "inputs.1", "Other invalid rows (1): 3."),
        (["a", *[None] * 9], "inputs.1", "Other invalid rows (8): 2, 3, 4, 5, 6, …."),
        (Series("a", "b", NAN), "inputs.2", "inputs.iloc[2] is nan, not a string"),
        (np.array(["a", np.nan], object), "inputs.1", "inputs[1] is nan, not a string"),
        (np.array([0.5, 1.5]), "inputs.0", "inputs[0] is 0.5 (float), not a string"),
        (["a", b"b"], "inputs.1", "inputs[1] is b'b' (bytes), not a string"),
        (["a", ["b" * 100]], "inputs.1", "inputs[1] has length 1, but a pair has two strings"),
        ([("a", "b"), ("c", None)], "inputs.1", "inputs[1][1] is None, not a string"),
        ([("a", "b"), (NAN, "c")], "inputs.1", "inputs[1][0] is nan, not a string"),
        (
            ["a", ("b", "c")],
            "inputs.1",
            "inputs[1] is a pair but inputs[0] is a text: pass only texts or only pairs",
        ),
        ([("b", "c"), "a"], "inputs.1", "inputs[1] is a text but inputs[0] is a pair"),
        ([{"text": "x" * 100}], "inputs.0", "inputs[0] is {'text': 'xxx"),
        (None, "inputs", "inputs is None, which cannot be sent: pass a string or a list of strings"),
        (5, "inputs", "inputs is 5 (int), which cannot be sent"),
        ([], "inputs", "inputs is empty: pass at least one text"),
        (np.array([], str), "inputs", "inputs is empty"),
        (b"a", "inputs", "inputs is bytes, not str: decode it, such as inputs.decode('utf-8')"),
        ({"a": "b"}, "inputs", "inputs is a dict: pass its texts, such as list(inputs.values())"),
        ({"a", "b"}, "inputs", "inputs is a set, which has no order: pass a list"),
        (np.array([["a", "b"]]), "inputs", "inputs is a ndarray of shape (1, 2), not a single column"),
        (DataFrame("id", "text"), "inputs", "inputs is a DataFrame, a table: pass the column with the"),
        (DataFrame("id", "text"), "inputs", "such as df['id']. Its columns are 'id', 'text'."),
        (DataFrame(*"abcdefg"), "inputs", "Its columns are 'a', 'b', 'c', 'd', 'e', …."),
        (Dataset("text"), "inputs", "inputs is a Dataset, a table: pass the column"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_text_is_named_by_its_row(inputs: Any, field: str, said: str) -> None:
    """Each wrong input has a sentence that says which, what it is, and what to do."""
    with pytest.raises(InputsError) as raised:
        listed(inputs)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 250
    assert raised.value.field == field
    copy = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 (our own bytes)
    assert (str(copy), copy.field) == (str(raised.value), field)


@pytest.mark.parametrize("route", ["encode", "attention", "stream_encode", "stream_attention"])
def test_nothing_is_sent_when_a_row_is_wrong(route: str) -> None:
    """A wrong row costs no request, and is a TypeError, a ValueError and a HeadlightError."""
    with stand_in(refused(422)) as server, Headlight(server.url) as client:
        for kind in (TypeError, ValueError, HeadlightError):
            with pytest.raises(kind, match=r"inputs\[700\] is None"):
                getattr(client, route)(["a"] * 700 + [None])
    assert server.received == []
