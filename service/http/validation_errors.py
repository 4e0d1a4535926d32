"""What is wrong with the fields of a body, as a problem: where, what is allowed, which name was meant."""

from collections.abc import Sequence
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from service.echo import ECHO, cut
from service.problems import Problem

# Pydantic's error types, reworded for JSON: each continues a sentence after the field's name.
_DETAILS = {
    "bool_type": "must be true or false",
    "extra_forbidden": "is not a known field",
    "greater_than_equal": "must be at least {ge}",
    "int_type": "must be an integer",
    "invalid": "{message}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list of at least one item",
    "literal_error": "must be {expected}",
    "missing": "is required",
    "string_type": "must be a string",
    "too_long": "must be a list of at most {max_length} item(s)",
    "too_short": "must be a list of at least one item",
    "tuple_type": "must be a list of at least one item",
}
# The example for schemas that have no `example` of their own.
_EXAMPLE = '{"inputs": "a text"}'
_NOT_OBJECTS = ("model_attributes_type", "model_type")
# One name is taken to mean another if they share at least this part of their pairs of letters.
_ALIKE = 0.5
_LISTED = 10  # invalid fields
# Whose clients a route is for, by the first segment of its path.
_WHOSE = {"tei": "text-embeddings-inference", "v1": "Cohere, Jina and Voyage", "v2": "Cohere"}
# What other servers call a field -> what it may be called here: the first of these that a route has is meant.
_OTHER_NAMES = {
    "text": ("inputs", "texts", "input"),
    "texts": ("inputs", "input", "documents"),
    "documents": ("texts", "inputs", "input"),
    "sentences": ("texts", "inputs", "input"),
    "source_sentence": ("source",),
    "inputs": ("texts", "input", "documents"),
}


def from_validation_error(error: ValidationError, schema: type[BaseModel]) -> Problem:
    """Name the first invalid field and one unknown field, say how to fix them, and list up to ten.

    `schema` is the body's: it may have a valid body as `example`, and in `elsewhere` the routes that accept
    the fields of other servers. Objects within the body have schemas of their own.
    """
    faults = error.errors(include_url=False)
    # A missing field may be present under a wrong name, which is then the actual mistake.
    unknown = next((i for i, details in enumerate(faults) if details["type"] == "extra_forbidden"), 0)
    first = _field_error(faults[0], schema)
    listed = [{"field": first["field"], "detail": first["detail"]}]
    listed += [_brief_error(details, schema) for details in faults[1:_LISTED]]
    sentence = f"{first['field']} {first.pop('detail')}"
    other = _field_error(faults[unknown], schema) if unknown else first
    if unknown:
        sentence += f"; {other['field']} {other['detail']}"
    name = other["field"]
    if other is first and faults[0]["type"] == "missing" and (sent := _sent_instead(faults[0], schema)):
        name = sent
        sentence += f"; {name} {_advice(name, _fields_of(schema))}"
    if route := getattr(schema, "elsewhere", {}).get(name):
        base = route.split("/")[1]
        sentence += f"; clients of {_WHOSE[base]} use {route}: add /{base} to the base URL"
    return Problem("invalid-request", f"{sentence}.", members={**first, "errors": listed})


def _sent_instead(missing: ErrorDetails, schema: type[BaseModel]) -> str:
    """Return another server's field that was sent in place of a missing one; "" if there is none."""
    given, known = missing["input"], {**getattr(schema, "elsewhere", {}), **_OTHER_NAMES}
    if len(missing["loc"]) > 1 or not isinstance(given, dict):
        return ""
    return next((name for name in known if name in given and name not in schema.model_fields), "")


def _field_name(location: Sequence[str | int]) -> str:
    """Name a field by its path; blank names are quoted."""
    if not location:
        return "body"
    return ".".join(part if part.strip() else f'"{part}"' for part in map(str, location))


def _place(location: Sequence[str | int], given: str | None) -> str:
    """Name a field by its path, ending with `given` if that is set; `location` may be its object's."""
    if given is None:
        return _field_name(location)
    within = location[:-1] if location and given.partition(".")[0] == str(location[-1]) else location
    return ".".join([*map(str, within), given])


def _fields_at(schema: type[BaseModel], location: Sequence[str | int]) -> Sequence[str]:
    """List the fields that may be in the same object of the body as the field at `location`."""
    for name in location[:-1]:
        field = schema.model_fields.get(str(name))
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        schema = next(
            (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), schema
        )
    return _fields_of(schema)


@cache
def _fields_of(schema: type[BaseModel]) -> Sequence[str]:
    return tuple(schema.model_fields)


def _field_error(details: ErrorDetails, schema: type[BaseModel]) -> dict[str, Any]:
    """Describe what is wrong with one field and what is allowed: `field`, `detail` and further members."""
    location, context = details["loc"], details.get("ctx", {})
    member: dict[str, Any] = {"field": cut(_place(location, context.get("field")))}
    if details["type"] == "extra_forbidden":
        fields = _fields_at(schema, location)
        member |= {"detail": _advice(str(location[-1]), fields), "allowed": fields}
    else:
        member["detail"] = _detail(details, schema)
    limit = context.get("ge", context.get("le"))
    if limit is not None:
        member["limit"] = limit
    actual = details["input"]
    if isinstance(actual, bool | int | float) or (isinstance(actual, str) and len(actual) <= ECHO):
        member["actual"] = actual
    return member


def _brief_error(details: ErrorDetails, schema: type[BaseModel]) -> dict[str, str]:
    """Say which field is wrong and how; for an unknown field, only that it is unknown."""
    place = cut(_place(details["loc"], details.get("ctx", {}).get("field")))
    return {"field": place, "detail": _detail(details, schema)}


def _detail(details: ErrorDetails, schema: type[BaseModel]) -> str:
    if details["type"] in _NOT_OBJECTS:
        return (
            "must be a JSON object"
            if details["loc"]
            else f"must be a JSON object, such as {getattr(schema, 'example', _EXAMPLE)}"
        )
    template = _DETAILS.get(details["type"])
    return details["msg"] if template is None else template.format_map(details.get("ctx", {}))


def _advice(name: str, fields: Sequence[str]) -> str:
    other_names = _OTHER_NAMES.get(name, ())
    meant = next((field for field in other_names if field in fields), None) or closest(name, fields)
    advice = f"; the fields are {', '.join(fields)}" if meant is None else f" (did you mean {meant}?)"
    return f"is not a known field{advice}"


def closest(name: str, fields: Sequence[str]) -> str | None:
    """Return the field name that a misspelt name resembles; None if it resembles none.

    Names are compared by the pairs of letters that they share (Dice 1945), which takes a tenth of the time of
    `difflib`, which would take longer than all the rest of a refusal.
    """
    if len(name) > ECHO:
        return None
    pairs = _pairs(name)

    def likeness(field: str) -> float:
        of_field = _pairs_of_field(field)
        return 2 * len(pairs & of_field) / (len(pairs) + len(of_field))

    best = max(fields, key=likeness)
    return best if likeness(best) >= _ALIKE else None


def _pairs(name: str) -> frozenset[str]:
    return frozenset(map(str.__add__, name, name[1:]))


_pairs_of_field = cache(_pairs)
