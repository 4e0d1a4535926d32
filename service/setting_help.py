"""What a setting takes and has by default, in words, for `--help` and for errors; any field of Settings."""

import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

_BOUNDS = (("ge", "at least"), ("gt", "greater than"), ("le", "at most"), ("lt", "less than"))
_UNITS = (("_s", "SECONDS"), ("_bytes", "BYTES"), ("_tokens", "TOKENS"))


def kinds(field: FieldInfo) -> tuple[Any, ...]:
    """The types of a field's values, None aside."""
    both = get_origin(field.annotation) in (Union, types.UnionType)
    every = get_args(field.annotation) if both else (field.annotation,)
    return tuple(kind for kind in every if kind is not type(None))


def is_found_out(field: FieldInfo) -> bool:
    """Whether the default is a number that the service finds out: then "auto" names it."""
    return field.default is None and any(kind in (int, float) for kind in kinds(field))


def placeholder(name: str, field: FieldInfo) -> str:
    """What stands for a value in the usage: a unit, the choices, or what the setting is called."""
    (kind, *_) = kinds(field)
    if get_origin(kind) is Literal:
        return "{" + ",".join(get_args(kind)) + "}"
    if kind is bool:
        return "{true,false}"
    if kind is Path:
        return "FILE"
    for ending, unit in _UNITS:
        if name.endswith(ending):
            return unit
    return "NUMBER" if kind in (int, float) else name.rpartition("_")[2].upper()


def default(name: str, field: FieldInfo) -> str:
    """The default as one would write it."""
    value = field.default
    if value is None:
        return "auto" if is_found_out(field) else "none"
    if isinstance(value, bool):
        return str(value).lower()
    if name.endswith("_bytes"):
        return f"{value}, {value / 2**20:g} MiB"
    return f"{value:g}" if isinstance(value, float) else str(value)


def allowed(field: FieldInfo) -> str | None:
    """Which values a field takes, after "must be"; None where only a validator of the field knows."""
    (kind, *_) = kinds(field)
    if get_origin(kind) is Literal:
        return alternatives([repr(choice) for choice in get_args(kind)])
    if kind is bool:
        return "true or false"
    if kind in (int, float):
        noun = "a whole number" if kind is int else "a number"
        bounds = [
            f"{words} {getattr(rule, bound)}"
            for bound, words in _BOUNDS
            for rule in field.metadata
            if getattr(rule, bound, None) is not None
        ]
        sentence = f"{noun}, {' and '.join(bounds)}" if bounds else noun
        return f"{sentence}, or auto" if is_found_out(field) else sentence
    if any(getattr(rule, "min_length", None) for rule in field.metadata):
        return "a text that is not empty"
    return None


def alternatives(choices: Sequence[str]) -> str:
    """Join what there is to choose from: a, b or c."""
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def refusal(error: ErrorDetails, fields: dict[str, FieldInfo], prefix: str) -> str:
    """Say in one sentence which setting cannot be, its value unless that is a secret, and what can."""
    cause = error.get("ctx", {}).get("error")
    name = str(error["loc"][0]) if error["loc"] else ""
    field = fields.get(name)
    if field is None:  # of several settings together, in a sentence of ours
        return f"{str(cause or error['msg']).rstrip('.')}."
    reason = str(cause) if cause is not None else f"it must be {allowed(field) or _plain(error['msg'])}"
    value = "not usable" if SecretStr in kinds(field) else repr(error["input"])
    return f"{prefix}{name.upper()} is {value}: {reason}."


def _plain(message: str) -> str:
    """The library's own words, for a constraint that nothing here knows: "Input should be …"."""
    return message.partition(" should be ")[2] or message
