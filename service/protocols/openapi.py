"""The OpenAPI schema: request bodies that are read by hand, and every error as problem+json."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from service.http.negotiation import ARRAY_TYPES, FORMATS
from service.problems import KINDS, MEDIA_TYPE, NOT_OF_INFERENCE, ProblemDocument
from service.protocols.native.examples import EXAMPLES
from service.protocols.native.schemas import AttentionRequest, EncodeRequest

_REF = "#/components/schemas/{model}"
_BODIES: dict[str, type[BaseModel]] = {"/encode": EncodeRequest, "/attention": AttentionRequest}
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
_OWN_PROBLEMS = {"/readyz": {"not-ready"}, "/health": {"not-ready"}, "/info": {"unauthorized"}}
_NOT_HERE = {"not-found", "method-not-allowed", *NOT_OF_INFERENCE}  # of other paths and methods


def operation_id(route: APIRoute) -> str:
    """Name an operation by its path, which is how generated clients call it: `encode`."""
    return route.path_format.strip("/")


def build_openapi(app: FastAPI, version: str, *, keys: bool) -> dict[str, Any]:
    """Write the schema of the whole app; `keys` is whether it asks for one."""
    schema = get_openapi(
        title="headlight",
        version=version,
        summary="Transformer encoders over HTTP, with their attention open to be read.",
        routes=app.routes,
    )
    mode: JsonSchemaMode = "validation"
    models: list[type[BaseModel]] = [*_BODIES.values(), ProblemDocument]
    _, definitions = models_json_schema([(model, mode) for model in models], ref_template=_REF)
    schema["components"]["schemas"].update(definitions["$defs"])
    if keys:
        schema["components"]["securitySchemes"] = {"bearer": _BEARER}
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            if keys and path in (*_BODIES, "/info"):
                operation["security"] = [{"bearer": []}]
            if path in _BODIES:
                operation["parameters"] = [_DTYPE]
                operation["responses"]["200"]["content"].update(_OTHER_FORMATS)
                operation["requestBody"] = {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": _reference(_BODIES[path]),
                            "examples": EXAMPLES[path],
                        }
                    },
                }
                operation["responses"].update(_problems(set(KINDS) - _NOT_HERE))
            elif path in _OWN_PROBLEMS:
                operation["responses"].update(_problems(_OWN_PROBLEMS[path]))
    return schema


def _problems(kinds: set[str]) -> dict[str, Any]:
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
