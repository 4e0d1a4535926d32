"""The OpenAPI schema: request bodies that are read by hand, and every error as problem+json."""

from collections.abc import Collection
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from service.endpoints import Endpoint, Endpoints
from service.http.negotiation import ARRAY_TYPES, FORMATS
from service.problems import KINDS, MEDIA_TYPE, NOT_OF_INFERENCE, ProblemDocument

_REF = "#/components/schemas/{model}"
_RETRY = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}}
_DTYPE = {
    "name": "dtype",
    "in": "query",
    "required": False,
    "description": "Type of the arrays in a binary format. `uint8` is for maps (embeddings stay float32): "
    "value = stored × `scale`. The answer declares `dtype`, `scale` and `max_error`.",
    "schema": {"type": "string", "enum": list(ARRAY_TYPES), "default": "float32"},
}
_BINARY = {"type": "string", "format": "binary"}
_OTHER_FORMATS = {
    FORMATS["npz"]: {
        "schema": {**_BINARY, "description": "A NumPy archive; `meta` is the rest of the answer as JSON."}
    },
    FORMATS["safetensors"]: {
        "schema": {**_BINARY, "description": "The rest of the answer is under the metadata key `headlight`."}
    },
    FORMATS["ndjson"]: {
        "schema": {"type": "string", "description": "A line for each item of `data`, then one with `usage`."}
    },
}
_BEARER = {"type": "http", "scheme": "bearer", "description": "One of the service's API keys."}
_NOT_HERE = {"not-found", "method-not-allowed", *NOT_OF_INFERENCE}  # of other paths and methods


def operation_id(route: APIRoute) -> str:
    """Name an operation by its path, which is how generated clients call it: `encode`."""
    return route.path_format.strip("/")


def build_openapi(app: FastAPI, version: str, endpoints: Endpoints, *, keys: bool) -> dict[str, Any]:
    """Write the schema of the whole app; `keys` is whether it asks for one."""
    schema = get_openapi(
        title="headlight",
        version=version,
        summary="Transformer encoders over HTTP, with their attention open to be read.",
        routes=app.routes,
    )
    mode: JsonSchemaMode = "validation"
    requests = [endpoint.request for endpoint in endpoints if endpoint.request is not None]
    models: list[type[BaseModel]] = [*requests, ProblemDocument]
    _, definitions = models_json_schema([(model, mode) for model in models], ref_template=_REF)
    schema["components"]["schemas"].update(definitions["$defs"])
    if keys:
        schema["components"]["securitySchemes"] = {"bearer": _BEARER}
    for endpoint in endpoints:
        for operation in schema["paths"].get(endpoint.path, {}).values():
            _describe(operation, endpoint, keys=keys)
    return schema


def _describe(operation: dict[str, Any], endpoint: Endpoint, *, keys: bool) -> None:
    """Add what the framework does not know: bodies that are read by hand, formats, keys and errors."""
    operation["responses"].pop("422", None)
    if keys and endpoint.guarded:
        operation["security"] = [{"bearer": []}]
    if endpoint.request is not None:
        operation["parameters"] = [_DTYPE]
        operation["responses"]["200"]["content"].update(_OTHER_FORMATS)
        body = {"schema": _reference(endpoint.request), "examples": endpoint.examples}
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
        operation["responses"].update(_problems(set(KINDS) - _NOT_HERE))
    else:
        operation["responses"].update(_problems(endpoint.problems))


def _problems(kinds: Collection[str]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for kind, (status, _) in KINDS.items():
        if kind not in kinds:
            continue
        entry = responses.setdefault(
            str(int(status)),
            {"description": "", "content": {MEDIA_TYPE: {"schema": _reference(ProblemDocument)}}},
        )
        entry["description"] += f"{'; ' if entry['description'] else ''}`{kind}`"
        if status in (429, 503):
            entry["headers"] = _RETRY
    return responses


def _reference(model: type) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}
