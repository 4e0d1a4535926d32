"""The field `columns`: what a response says of each token."""

from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema

from service.protocols.fields import invalid
from service.tasks.results import COLUMNS, Column


def _columns(value: object) -> tuple[Column, ...]:
    """Read names of columns, each at most once, and put them in the order of the answer."""
    every = f"{', '.join(map(repr, COLUMNS[:-1]))} and {COLUMNS[-1]!r}"
    if not isinstance(value, list):
        raise invalid("columns", f"must be a list of any of {every}, or []")
    for i, name in enumerate(value[: len(COLUMNS) + 1]):
        if name not in COLUMNS or name in value[:i]:
            raise invalid(f"columns.{i}", f"must be {'another one' if i else 'one'} of {every}")
    return tuple(name for name in COLUMNS if name in value)


_NAMES = {"type": "string", "enum": COLUMNS}
Columns = Annotated[
    tuple[Column, ...],
    PlainValidator(_columns),
    WithJsonSchema({"type": "array", "items": _NAMES, "uniqueItems": True}),
]
