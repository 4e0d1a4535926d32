"""How a key in a file of a model folder is treated."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from model.files import shown

Verdict = Literal["used", "harmless", "refused"]


@dataclass(frozen=True)
class Key:
    """How a key is treated, and why.

    `told` says what uses it, why it changes nothing, or why it is refused. A refused key may have one of the
    values in `served`; `instead` says what to do about any other.
    """

    verdict: Verdict
    told: str
    served: tuple[object, ...] = ()
    instead: str = ""


Table = Mapping[str, Key]
"""Keyed by the names of keys, in which `*` stands for any characters."""


def used(by: str, *names: str) -> dict[str, Key]:
    """Return the rows of keys that something reads."""
    return dict.fromkeys(names, Key("used", by))


def harmless(because: str, *names: str) -> dict[str, Key]:
    """Return the rows of keys that change no result."""
    return dict.fromkeys(names, Key("harmless", because))


def refused(because: str, instead: str, *names: str, served: tuple[object, ...] = (None,)) -> dict[str, Key]:
    """Return the rows of keys that may have only some values."""
    return dict.fromkeys(names, Key("refused", because, served, instead))


class Judged(NamedTuple):
    """How a key of some file is treated; a refused key with a value that is served is harmless."""

    name: str
    verdict: Verdict | Literal["unknown"]
    told: str


def judge_keys(content: Mapping[str, Any], table: Table) -> list[Judged]:
    """Return how each key of a file is treated."""
    return [_judge(name, value, find_key(name, table)) for name, value in content.items()]


def _judge(name: str, value: object, key: Key | None) -> Judged:
    if key is None:
        return Judged(name, "unknown", "nothing reads it")
    if key.verdict != "refused":
        return Judged(name, key.verdict, key.told)
    if _is_one_of(value, key.served):
        return Judged(name, "harmless", "it has the value that is served")
    return Judged(name, "refused", f"is {shown(value)}; {key.told}: {key.instead}")


def find_key(name: str, table: Table) -> Key | None:
    """Return a table's entry for a key, None if it has none."""
    return table.get(name) or next(
        (key for pattern, key in table.items() if "*" in pattern and fnmatchcase(name, pattern)), None
    )


def _is_one_of(value: object, served: Iterable[object]) -> bool:
    """Return whether a value equals one of these in type as well: 0 is not false."""
    return any(type(value) is type(one) and value == one for one in served)
