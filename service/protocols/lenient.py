"""Requests of other protocols: unknown fields and null ones are ignored, as the original servers do."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictStr, ValidationError, model_validator

from model.tokenization.tokenizer import Side, Truncation
from service.http.request_schema import RequestSchema
from service.http.validation_errors import from_validation_error
from service.problems import writable
from service.protocols.fields import invalid


def _allow_nulls(schema: dict[str, Any]) -> None:
    """Say in a schema that optional fields may be null."""
    for name, one in schema.get("properties", {}).items():
        nullable = {"type": "null"} in one.get("anyOf", ())
        if name in schema.get("required", ()) or nullable:
            continue
        said = {key: one.pop(key) for key in ("description", "default", "title") if key in one}
        schema["properties"][name] = {"anyOf": [one, {"type": "null"}], **said}


class Fields(BaseModel):
    """An object of a request: unknown fields and null ones are ignored, as the original does."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=(), json_schema_extra=_allow_nulls)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        if isinstance(value, Mapping) and None in value.values():
            return {name: given for name, given in value.items() if given is not None}
        return value


class Asked(Fields, RequestSchema):
    """The body of a request that a model answers. Unknown fields are ignored."""

    model: StrictStr | None = Field(None, description="One of the served models; the first by default.")

    def sent(self, *names: str) -> dict[str, Any]:
        """Return the values of these fields, without the fields that the request does not have."""
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}


TRUNCATION_SIDE = Field(
    None,
    description="vLLM's: where tokens are removed from texts that are too long; by default `left` with "
    "`truncate_prompt_tokens`, else the model's own side.",
)
CUT_AND_NOT = "truncates texts, but truncation is switched off: leave out one of the two fields"
"""Why vLLM's limit cannot stand beside a field that refuses long texts."""

FieldsT = TypeVar("FieldsT", bound=Fields)


def checked(schema: type[FieldsT], value: object) -> FieldsT:
    """Check a parsed body against a schema; raises Problem."""
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise from_validation_error(error, schema) from None


def cut_to(most: int | None, side: Side | None, *, allowed: bool) -> Truncation:
    """Return the truncation for vLLM's `truncate_prompt_tokens`: from the left, unless a `side` is given.

    `most` is its limit, -1 for the model's. With None, texts are cut to the model's limit, if `allowed`.
    """
    if most is None:
        return Truncation(allowed=allowed, side=side)
    return Truncation(side=side or "left", limit=None if most == -1 else most)


def agree(fields: Mapping[str, object]) -> None:
    """Raise an error if fields that mean the same have different values."""
    for (first, one), (second, other) in pairwise(fields.items()):
        if one != other:
            this, that = (json.dumps(writable(value)) for value in (one, other))
            same = "the two fields mean the same: send only one of them"
            raise invalid(second, f"is {that} and {first} is {this}, but {same}")
