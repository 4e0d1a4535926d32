"""A body that is JSON, read without holding the event loop for long, however many values it has.

orjson reads two megabytes of text in a millisecond, and as many of empty lists in sixty, and holds the
interpreter meanwhile. So the values of a large body are counted first, by numpy in a thread, which lets
others run. Where there are more than a request can have, its long lists are cut before it is read: it is
refused for their length, or for what else is wrong with it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import orjson

MAX_INDICES = 4096
"""Items of a list of indices: more than any model has layers or heads and most have positions."""
MOST_VALUES = 32 * 1024
"""Of a body that is read as it is; at worst that takes three milliseconds."""
_SMALL_BYTES = 128 * 1024
_MOST_CONTAINERS = 64
_MOST_DEPTH = 1024  # orjson's

Array = npt.NDArray[np.generic]


class TooManyValuesError(Exception):
    """A body has `actual` values and more, which are not in its own long lists; so no schema fits it."""

    def __init__(self, actual: int) -> None:
        super().__init__(f"The body has about {actual} values.")
        self.actual = actual


@dataclass(frozen=True, slots=True)
class Parsed:
    """A body, and the number of items of each of its fields that was cut."""

    value: object
    lengths: Mapping[str, int] = field(default_factory=dict)


async def parse(body: bytes, *, most_items: int, most_values: int) -> Parsed:
    """Read a body, off the event loop what it has too much of.

    Where it has more than `most_values` values, lists and objects that are fields are cut to `most_items`.
    Raises orjson.JSONDecodeError, and TooManyValuesError where that is not enough.
    """
    if len(body) <= _SMALL_BYTES or _most_values(body) <= most_values:
        return Parsed(orjson.loads(body))
    shorter, lengths = await asyncio.to_thread(_cut, body, most_items, most_values)
    value = orjson.loads(shorter)
    if not lengths:
        return Parsed(value)
    fields = value.items() if isinstance(value, dict) else ()
    containers = [name for name, inner in fields if isinstance(inner, list | dict)]
    if len(containers) != len(lengths):  # a field is there twice
        raise TooManyValuesError(max(lengths))
    cut = {name: n for name, n in zip(containers, lengths, strict=True) if n > most_items}
    return Parsed(value, cut)


def _most_values(body: bytes) -> int:
    """Bound the number of values: each but the first has a comma or a bracket before it."""
    marks = np.frombuffer(body, np.uint8)
    return 1 + sum(int(np.count_nonzero(marks == ord(mark))) for mark in ",[{")


def _cut(body: bytes, most_items: int, most_values: int) -> tuple[bytes, Sequence[int]]:
    """Cut long fields; returns what is left, and how many items each list and object had that is a field.

    Nothing is cut, and no number returned, where most commas are those of texts.
    """
    places, kinds = _structure(body)
    opening, commas = np.isin(kinds, _codes("[{")), kinds == ord(",")
    values = int(np.count_nonzero(opening | commas))
    if values <= most_values:
        return body, ()
    depths = np.cumsum(np.where(commas, 0, np.where(opening, 1, -1)), dtype=np.int32)
    if depths[-1] != 0 or depths.max() > _MOST_DEPTH:
        raise orjson.JSONDecodeError("brackets that are never closed, or more than 1024 in each other", "", 0)
    begins = np.flatnonzero(opening & (depths == 2))
    ends = np.flatnonzero(~opening & ~commas & (depths == 1))
    if not 0 < len(begins) == len(ends) <= _MOST_CONTAINERS or np.any(begins > ends):
        raise TooManyValuesError(values)
    between = np.flatnonzero(commas & (depths == 2))
    pieces, done, lengths, removed = [], 0, list[int](), 0
    for begin, end in zip(begins, ends, strict=True):
        own = between[np.searchsorted(between, begin) : np.searchsorted(between, end)]
        lengths.append(len(own) + 1)
        if len(own) >= most_items:
            first = own[most_items - 1]
            removed += int(np.count_nonzero((opening | commas)[first:end]))
            pieces.append(body[done : places[first]])
            done = int(places[end])
    if values - removed > most_values:
        raise TooManyValuesError(values)
    return b"".join([*pieces, body[done:]]), lengths


def _structure(body: bytes) -> tuple[Array, Array]:
    """Find commas and brackets outside of texts: their places in the body, and what they are."""
    # Of the same length, so that places stay; a backslash before a quote is of the text, unless it is itself
    # behind one.
    plain = body.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    marks = np.frombuffer(plain, np.uint8)
    in_text = np.cumsum(marks == ord('"'), dtype=np.uint8) & 1
    wanted = _WANTED[marks] & (in_text == 0)
    places = np.flatnonzero(wanted)
    return places, marks[places]


def _codes(characters: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(characters.encode(), np.uint8)


_WANTED = np.isin(np.arange(256, dtype=np.uint8), _codes(",[]{}"))
