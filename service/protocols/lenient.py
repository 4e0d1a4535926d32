"""Requests of other protocols: fields that are unknown or null are ignored, as the originals do."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

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

    def check_twins(self, first: str, second: str) -> None:
        """Raise the error of two fields of one meaning if a request has both, and with different values."""
        if {first, second} <= self.model_fields_set and getattr(self, first) != getattr(self, second):
            values = (json.dumps(writable(getattr(self, name))) for name in (first, second))
            raise contradiction(first, second, *values)


def contradiction(first: str, second: str, one: str, other: str) -> PydanticCustomError:
    """Make the error of two fields that mean the same, and have different values, given as JSON."""
    return invalid(second, f"is {other} and {first} is {one}, which mean the same: send one of the two")
