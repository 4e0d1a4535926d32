"""Parses JSON bodies without blocking the event loop for long, however many values they have.

orjson parses two megabytes of text in a millisecond, but two megabytes of empty lists in sixty, holding the
interpreter lock. So the values of a large body are first counted by numpy in a thread, which releases the
lock. If there are more than a valid request can have, its long lists are truncated before parsing: it is
refused anyway, for their length or another error.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from service.system.off_loop import off_loop

MAX_INDICES = 4096
"""The most items of a list of indices: more than any model has layers or heads, or most have positions."""
REST = "send the rest in another request"
"""What to do about more items than that."""
MAX_VALUES = 32 * 1024
"""The most values of a body that is parsed as it is; this takes three milliseconds at worst."""
_SMALL_BYTES = 128 * 1024
_MAX_CONTAINERS = 64
_MAX_DEPTH = 1024  # orjson's
_NONE_CUT: Mapping[str, int] = {}

Array = npt.NDArray[np.generic]


class TooManyValuesError(Exception):
    """A body has at least `actual` values outside its long top-level lists, so it matches no schema."""

    def __init__(self, actual: int) -> None:
        super().__init__(f"The body has about {actual} values.")
        self.actual = actual


async def parse(body: bytes, *, max_items: int, max_values: int) -> tuple[Any, Mapping[str, int]]:
    """Parse a body; an oversized one is truncated first, off the event loop.

    If it has more than `max_values` values, lists and objects that are fields are cut to `max_items`. Also
    returns the original length of each field that was cut.
    Raises orjson.JSONDecodeError, and TooManyValuesError if too many values remain.
    """
    if len(body) <= _SMALL_BYTES:
        return orjson.loads(body), _NONE_CUT
    if _count_bound(body) <= max_values:
        value = orjson.loads(body)
        await asyncio.sleep(0)  # validating that many values takes as long again
        return value, _NONE_CUT
    shorter, lengths = await off_loop(_cut, body, max_items, max_values)
    value = orjson.loads(shorter)
    if not lengths:
        return value, _NONE_CUT
    fields = value.items() if isinstance(value, dict) else ()
    containers = [name for name, inner in fields if isinstance(inner, list | dict)]
    if len(containers) != len(lengths):  # a field occurs twice
        raise TooManyValuesError(max(lengths))
    cut = {name: n for name, n in zip(containers, lengths, strict=True) if n > max_items}
    return value, cut


def _count_bound(body: bytes) -> int:
    """Bound the number of values from above: each but the first follows a comma or an opening bracket."""
    marks = np.frombuffer(body, np.uint8)
    return 1 + sum(int(np.count_nonzero(marks == ord(mark))) for mark in ",[{")


def _cut(body: bytes, max_items: int, max_values: int) -> tuple[bytes, Sequence[int]]:
    """Truncate long fields; returns the shortened body and the original length of each list or object field.

    If most commas are inside strings, nothing is truncated and no lengths are returned.
    """
    places, kinds = _structure(body)
    opening, commas = np.isin(kinds, _codes("[{")), kinds == ord(",")
    values = int(np.count_nonzero(opening | commas))
    if values <= max_values:
        return body, ()
    depths = np.cumsum(np.where(commas, 0, np.where(opening, 1, -1)), dtype=np.int32)
    if depths[-1] != 0 or depths.max() > _MAX_DEPTH:
        raise orjson.JSONDecodeError("unbalanced brackets, or more than 1024 levels of nesting", "", 0)
    begins = np.flatnonzero(opening & (depths == 2))
    ends = np.flatnonzero(~opening & ~commas & (depths == 1))
    if not 0 < len(begins) == len(ends) <= _MAX_CONTAINERS or np.any(begins > ends):
        raise TooManyValuesError(values)
    between = np.flatnonzero(commas & (depths == 2))
    pieces, done, lengths, removed = [], 0, list[int](), 0
    for begin, end in zip(begins, ends, strict=True):
        own = between[np.searchsorted(between, begin) : np.searchsorted(between, end)]
        lengths.append(len(own) + 1)
        if len(own) >= max_items:
            first = own[max_items - 1]
            removed += int(np.count_nonzero((opening | commas)[first:end]))
            pieces.append(body[done : places[first]])
            done = int(places[end])
    if values - removed > max_values:
        raise TooManyValuesError(values)
    return b"".join([*pieces, body[done:]]), lengths


def _structure(body: bytes) -> tuple[Array, Array]:
    """Find commas and brackets outside strings: their positions in the body, and the characters."""
    # Replaced by text of the same length, to keep positions. Escaped backslashes first: the quote after one
    # is not escaped.
    plain = body.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    marks = np.frombuffer(plain, np.uint8)
    in_string = np.cumsum(marks == ord('"'), dtype=np.uint8) & 1
    places = np.flatnonzero(_STRUCTURAL[marks] & (in_string == 0))
    return places, marks[places]


def _codes(characters: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(characters.encode(), np.uint8)


_STRUCTURAL = np.isin(np.arange(256, dtype=np.uint8), _codes(",[]{}"))
