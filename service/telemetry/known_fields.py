"""Which names of fields may be logged: those that the service knows, never one that a client made up."""

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

# Headers, the query, and fields that no schema lists: those of paths, and those of `chunks`.
_ELSEWHERE = {
    *("Accept", "Authorization", "Content-Encoding", "Content-Type", "X-Request-Timeout-Ms"),
    *("body", "query", "dtype", "model", "version", "inputs", "tokens", "overlap"),
}


def known_field(field: str | None, schema: type[BaseModel] | None) -> str | None:
    """Return the part of a field's name that the service or the body's schema knows; None if there is none.

    Indices are left out: `inputs.3` is `inputs`, so that lines about the same mistake are alike.
    """
    if field is None:
        return None
    names, known = _names(schema), []
    for part in field.split("."):
        if part in names:
            known.append(part)
        elif not (known and part.isdecimal()):
            break
    return ".".join(known) or None


@cache
def _names(schema: type[BaseModel] | None) -> frozenset[str]:
    return frozenset({*_ELSEWHERE, *_find_names(schema, set())})


def _find_names(kind: Any, seen: set[Any]) -> Iterator[str]:
    """Yield the names of all fields of a schema and of the objects within it."""
    if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in seen:
        seen.add(kind)
        for name, field in kind.model_fields.items():
            yield name
            yield from _find_names(field.annotation, seen)
    for part in get_args(kind):
        yield from _find_names(part, seen)
