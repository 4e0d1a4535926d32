"""Converts a caller's inputs to rows: texts, or pairs of texts."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, TypeAlias

from headlight_client.errors import InputsError

Pair: TypeAlias = tuple[str, str] | list[str]
Inputs: TypeAlias = str | Iterable[str] | Iterable[tuple[str, str]] | Iterable[list[str]]
"""A text; or texts or pairs in any ordered collection: a list, an array, a column, a generator."""

_SHOWN = 5  # columns of a table, or invalid rows, that a message names
_SHORT = 60  # characters of a value that a message quotes
_PAIR = 2


def listed(inputs: object, field: str = "inputs") -> list[str] | list[Pair]:
    """List the rows; raises InputsError, naming the first that is neither a string nor a pair of strings.

    `field` is what the caller calls the inputs.

    pandas, polars, pyarrow and datasets are recognized by their attributes and never imported.
    """
    if isinstance(inputs, str):
        return [inputs]
    _refuse(inputs, field)
    rows = _rows(inputs)
    if not rows:
        raise InputsError(f"{field} is empty: pass at least one text.", field)
    kinds = set(map(type, rows))
    if kinds != {str}:
        # pandas also indexes rows by label; `iloc` counts by position, as we do.
        _check(rows, field, f"{field}.iloc" if hasattr(inputs, "iloc") else field)
    return rows


def id_lists(token_ids: Any, field: str = "token_ids") -> list[list[int]]:
    """List lists of token ids; one list of numbers is one text. Raises InputsError."""
    rows = _rows(token_ids)
    if not rows:
        raise InputsError(f"{field} is empty: pass at least one list of ids.", field)
    return [rows] if all(isinstance(row, int) for row in rows) else [list(row) for row in rows]


def _refuse(inputs: object, field: str) -> None:
    """Reject objects whose rows are not an ordered sequence of texts."""
    name = type(inputs).__name__
    for columns in ("columns", "column_names"):
        if hasattr(type(inputs), columns):  # of the class: a Series exposes its rows as attributes too
            raise InputsError(_table(name, getattr(inputs, columns), field), field)
    if isinstance(inputs, bytes | bytearray | memoryview):
        raise InputsError(f"{field} is {name}, not str: decode it, such as {field}.decode('utf-8').", field)
    if isinstance(inputs, Mapping):
        raise InputsError(f"{field} is a {name}: pass its texts, such as list({field}.values()).", field)
    if isinstance(inputs, Set):
        raise InputsError(
            f"{field} is a {name}, which has no order: pass a list, such as sorted({field}).", field
        )
    shape = getattr(inputs, "shape", None)
    if isinstance(shape, tuple) and len(shape) > 1:
        raise InputsError(
            f"{field} is a {name} of shape {shape}, not a single column: pass {field}[:, 0], or for pairs "
            f"{field}.tolist().",
            field,
        )
    if not isinstance(inputs, Iterable):
        raise InputsError(
            f"{field} is {_value(inputs)}, which cannot be sent: pass a string or a list of strings.", field
        )


def _table(name: str, columns: Iterable[object], field: str) -> str:
    names = [repr(str(column)) for column in columns]
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    one = names[0] if names else "'text'"
    return (
        f"{field} is a {name}, a table: pass the column with the texts, such as "
        f"df[{one}]. Its columns are {shown or 'none'}."
    )


def _rows(inputs: Any) -> list[Any]:
    """List the rows as Python values: arrays and columns of other libraries have their own types."""
    for name in ("to_pylist", "tolist", "to_list"):
        convert: Callable[[], Any] | None = getattr(inputs, name, None)
        if callable(convert):
            rows = convert()
            return rows if isinstance(rows, list) else [rows]
    return list(inputs)


def _check(rows: list[Any], field: str, name: str) -> None:
    """Raise for the first invalid row, or the first of another kind than row 0; `name[i]` is row i."""
    wrong = [i for i, row in enumerate(rows) if not isinstance(row, str) and not _is_pair(row)]
    if wrong:
        raise InputsError(_wrong(rows, wrong, name), f"{field}.{wrong[0]}")
    first = isinstance(rows[0], str)
    for i, row in enumerate(rows):
        if isinstance(row, str) != first:
            this, other = ("a text", "a pair") if isinstance(row, str) else ("a pair", "a text")
            raise InputsError(
                f"{name}[{i}] is {this} but {name}[0] is {other}: pass only texts or only pairs.",
                f"{field}.{i}",
            )


def _wrong(rows: list[Any], wrong: Sequence[int], name: str) -> str:
    row = rows[wrong[0]]
    others = ", ".join(map(str, wrong[1 : _SHOWN + 1])) + (", …" if len(wrong) > _SHOWN + 1 else "")
    more = f" Other invalid rows ({len(wrong) - 1}): {others}." if others else ""
    if isinstance(row, tuple | list):
        if len(row) != _PAIR:
            detail = f"{name}[{wrong[0]}] has length {len(row)}, but a pair has two strings."
        else:
            member = 0 if not isinstance(row[0], str) else 1
            detail = f"{name}[{wrong[0]}][{member}] is {_value(row[member])}, not a string."
        return detail + more
    return f"{name}[{wrong[0]}] is {_value(row)}, not a string: drop the row or use ''.{more}"


def _is_pair(row: object) -> bool:
    return isinstance(row, tuple | list) and len(row) == _PAIR and all(isinstance(text, str) for text in row)


def _value(value: object) -> str:
    """Show a value and its type; None and nan need no type."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return str(value)
    return f"{_short(value)} ({type(value).__name__})"


def _short(value: object) -> str:
    text = repr(value).partition("\n")[0]
    return text if len(text) <= _SHORT else text[:_SHORT] + "…"
