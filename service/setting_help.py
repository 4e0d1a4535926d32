"""Describes the accepted values and the default of any field of Settings, for `--help` and errors."""

import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

_BOUNDS = (("ge", "at least"), ("gt", "greater than"), ("le", "at most"), ("lt", "less than"))
_UNITS = (("_s", "SECONDS"), ("_bytes", "BYTES"), ("_tokens", "TOKENS"))


def kinds(field: FieldInfo) -> tuple[Any, ...]:
    """Return the types of a field's values, without None."""
    both = get_origin(field.annotation) in (Union, types.UnionType)
    every = get_args(field.annotation) if both else (field.annotation,)
    return tuple(kind for kind in every if kind is not type(None))


def is_automatic(field: FieldInfo) -> bool:
    """Whether the default is a number that the service determines at startup, written "auto"."""
    return field.default is None and any(kind in (int, float) for kind in kinds(field))


def placeholder(name: str, field: FieldInfo) -> str:
    """Return the placeholder of a value in the usage: its unit, its choices, or part of the setting."""
    (kind, *_) = kinds(field)
    if get_origin(kind) is Literal:
        return "{" + ",".join(get_args(kind)) + "}"
    if kind is Path:
        return "FILE"
    for ending, unit in _UNITS:
        if name.endswith(ending):
            return unit
    return "NUMBER" if kind in (int, float) else name.rpartition("_")[2].upper()


def default(name: str, field: FieldInfo) -> str:
    """Return the default as a user would write it."""
    value = field.default
    if value is None:
        return "auto" if is_automatic(field) else "none"
    if name.endswith("_bytes"):
        return f"{value}, {value / 2**20:g} MiB"
    return f"{value:g}" if isinstance(value, float) else str(value)


def allowed(field: FieldInfo) -> str | None:
    """Return the values a field accepts, to follow "must be"; None if only a validator of it knows them."""
    (kind, *_) = kinds(field)
    if get_origin(kind) is Literal:
        return alternatives([repr(choice) for choice in get_args(kind)])
    if kind in (int, float):
        noun = "a whole number" if kind is int else "a number"
        bounds = [
            f"{words} {getattr(rule, bound)}"
            for bound, words in _BOUNDS
            for rule in field.metadata
            if getattr(rule, bound, None) is not None
        ]
        sentence = f"{noun}, {' and '.join(bounds)}" if bounds else noun
        return f"{sentence}, or auto" if is_automatic(field) else sentence
    if any(getattr(rule, "min_length", None) for rule in field.metadata):
        return "a non-empty string"
    return None


def alternatives(choices: Sequence[str]) -> str:
    """Join alternatives: a, b or c."""
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def refusal(error: ErrorDetails, fields: Mapping[str, FieldInfo], called: Mapping[str, str]) -> str:
    """Write one sentence: the invalid setting, its value unless that is a secret, and the valid ones.

    A setting is `called` as it was given: by its flag, or by its variable.
    """
    cause = error.get("ctx", {}).get("error")
    name = str(error["loc"][0]) if error["loc"] else ""
    field = fields.get(name)
    if field is None:  # concerns several settings; the validator wrote the sentence
        return f"{str(cause or error['msg']).rstrip('.')}."
    reason = str(cause) if cause is not None else f"it must be {allowed(field)}"
    value = "invalid" if SecretStr in kinds(field) else repr(error["input"])
    return f"{called[name]} is {value}: {reason}."
