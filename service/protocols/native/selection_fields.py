"""The fields that choose which columns, edges and positions of a logit lens a response has of each input."""

from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any

from pydantic import BaseModel, Field, PlainValidator, WithJsonSchema, model_validator

from service.http.json_body import MAX_INDICES, REST
from service.protocols.fields import AllOrIndices, Options, first_other, invalid, whole_numbers
from service.tasks.indices import Edges
from service.tasks.results import COLUMNS, Column


def _columns(value: object) -> tuple[Column, ...]:
    """Read names of columns, each at most once, and put them in the order of the answer."""
    every = f"{', '.join(map(repr, COLUMNS[:-1]))} and {COLUMNS[-1]!r}"
    if not isinstance(value, list):
        raise invalid("columns", f"must be a list of names from {every}, or []")
    for i, name in enumerate(value[: len(COLUMNS) + 1]):
        if name not in COLUMNS or name in value[:i]:
            raise invalid(f"columns.{i}", f"must be one of {every}, each at most once")
    return tuple(name for name in COLUMNS if name in value)


_NEEDS = {
    "layers": ("tokens", "logit_lens"),
    "positions": ("logit_lens",),
    "top_k": ("sparse", "logit_lens"),
}
"""Field of `/encode` -> the outputs, of which it needs at least one."""


class WithPositions(BaseModel):
    """The field of a route with a logit lens."""

    positions: AllOrIndices = Field(
        "all",
        description="The tokens that `logit_lens` predicts words for, by position in the whole input; "
        "negative numbers count from the end.",
    )


def check_outputs(request: Options, outputs: Sequence[str]) -> None:
    """Refuse fields that have no effect on the requested `outputs`."""
    for field, needed in _NEEDS.items():
        if request.is_overridden(field) and not {*needed} & {*outputs}:
            names = " or ".join(f'"{name}"' for name in needed)
            raise invalid(field, f"has no effect without {names} in outputs: leave it out or add {names}")


_NAMES = {"type": "string", "enum": COLUMNS}
Columns = Annotated[
    tuple[Column, ...],
    PlainValidator(_columns),
    WithJsonSchema({"type": "array", "items": _NAMES, "uniqueItems": True}),
]


def _edges(value: object) -> Edges:
    if not isinstance(value, list) or not value:
        raise invalid(
            "edges", "must be a non-empty list of [query, key], or a list of such lists, one for each input"
        )
    first = value[0]
    if isinstance(first, list) and (not first or isinstance(first[0], list)):
        if (wrong := first_other(value, list)) is not None:
            raise invalid(f"edges.{wrong}", "must be a list of [query, key], as edges.0 is")
        return Edges([_of_one(one, f"edges.{i}") for i, one in enumerate(value)])
    return Edges([_of_one(value, "edges")], flat=True)


def _of_one(edges: list[Any], place: str) -> list[list[int]]:
    """Read the edges of one input."""
    if len(edges) > MAX_INDICES:
        raise invalid(place, f"has {len(edges)} items and the limit is {MAX_INDICES}: {REST}")
    pairs = set(map(type, edges)) <= {list} and set(map(len, edges)) <= {2}
    if pairs and set(map(type, chain.from_iterable(edges))) <= {int}:
        return edges
    wrong = next((i for i, one in enumerate(edges) if not isinstance(one, list) or len(one) != 2), None)
    if wrong is not None:
        raise invalid(f"{place}.{wrong}", "must be [query, key], two positions")
    return [list(whole_numbers(edge, f"{place}.{i}")) for i, edge in enumerate(edges)]


_EDGE = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
_OF_ONE = {"type": "array", "items": _EDGE, "maxItems": MAX_INDICES}
_SCHEMA = {"anyOf": [{**_OF_ONE, "minItems": 1}, {"type": "array", "items": _OF_ONE, "minItems": 1}]}
# The value is an `Edges`; if it were annotated so, the API's schema would list the types of that.
_Edges = Annotated[Any, PlainValidator(_edges), WithJsonSchema(_SCHEMA)]
_OTHERS = ("queries", "keys", "top_k", "thumbnail")
"""Fields that select a part of a map, or reduce it."""


class WithEdges(BaseModel):
    """The field of a route that returns the weights of chosen edges."""

    edges: _Edges | None = Field(
        None,
        description="Return the weights of these edges instead of the map: `[[query, key], …]` of a single "
        "input, or a list of such lists, one for each input. Positions count as in `queries`. Each weight is "
        "the same as in the whole map with the other options: `renormalize` divides by the sum of the row "
        "that `special_tokens` leaves.",
    )

    @model_validator(mode="after")
    def _alone(self) -> "WithEdges":
        for field in _OTHERS if self.edges is not None else ():
            if getattr(self, field) not in (None, "all"):
                raise invalid(field, "cannot be combined with edges: leave one of them out")
        return self
