"""The OpenAPI schema: request bodies that handlers read themselves, all errors, and recorded answers."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from service.endpoints import Endpoint, Endpoints
from service.http.negotiation import ARRAY_TYPES
from service.problems import KINDS, MEDIA_TYPE, NOT_OF_INFERENCE, ProblemDocument
from service.replies.formats import FORMATS
from service.replies.style import Format

_REF = "#/components/schemas/{model}"
_RETRY = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}},
    "retry-after-ms": {"description": "Milliseconds to wait.", "schema": {"type": "integer", "minimum": 1}},
}
_DTYPE = {
    "name": "dtype",
    "in": "query",
    "required": False,
    "description": "Type of arrays in binary formats. `uint8` applies to maps (embeddings stay float32), "
    "value = stored × `scale`. The response declares `dtype`, `scale` and `max_error`.",
    "schema": {"type": "string", "enum": list(ARRAY_TYPES), "default": "float32"},
}
_BINARY = {"type": "string", "format": "binary"}
_BEARER = {"type": "http", "scheme": "bearer", "description": "One of the service's API keys."}
_RECORDED = "recorded.json"
"""In the folder of a protocol: real answers by method and path, and an error with its request."""
_CUT = "Of vectors, the first four numbers."
_NOT_LISTED = {"not-found", "method-not-allowed", *NOT_OF_INFERENCE}  # occur for other paths and methods


def operation_id(endpoint: Endpoint, method: str) -> str:
    """Name an operation by its path, such as `encode`: generated clients use it as the method name.

    If a path has several methods, the names of all but the first end in the method.
    """
    name = endpoint.documented_path.strip("/").replace("/{", "_by_").replace("}", "").replace("/", "_")
    return name if method == endpoint.methods[0] else f"{name}_{method.lower()}"


def build_openapi(app: FastAPI, version: str, endpoints: Endpoints, *, keys: bool) -> dict[str, Any]:
    """Build the schema of the app; `keys` is whether it requires an API key."""
    schema = get_openapi(
        title="headlight",
        version=version,
        summary="Transformer encoders over HTTP: embeddings and attention maps.",
        routes=app.routes,
    )
    mode: JsonSchemaMode = "validation"
    requests = [endpoint.request for endpoint in endpoints if endpoint.request is not None]
    models: list[type[BaseModel]] = [*requests, *dict.fromkeys(e.error_document for e in endpoints)]
    _, definitions = models_json_schema([(model, mode) for model in models], ref_template=_REF)
    schema["components"]["schemas"].update(definitions["$defs"])
    tags = dict.fromkeys(endpoint.tag for endpoint in endpoints if endpoint.summary is not None)
    schema["tags"] = [{"name": tag} for tag in tags]
    if keys:
        schema["components"]["securitySchemes"] = {"bearer": _BEARER}
    # FastAPI's own errors, for parameters in paths: the endpoints here have errors of their own.
    for unused in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(unused, None)
    for endpoint in endpoints:
        for operation in schema["paths"].get(endpoint.documented_path, {}).values():
            _describe(operation, endpoint, keys=keys)
    _show_recorded(schema, endpoints)
    return schema


def _describe(operation: dict[str, Any], endpoint: Endpoint, *, keys: bool) -> None:
    """Add what FastAPI does not know: bodies, formats, API keys and errors."""
    operation["responses"].pop("422", None)
    parameters = [*_path_parameters(endpoint), *endpoint.headers]
    if keys and endpoint.guarded:
        operation["security"] = [{"bearer": []}]
    if endpoint.request is not None:
        names: tuple[Format, ...] = getattr(endpoint.request, "formats", ("json",))
        forms = [FORMATS[name] for name in names]
        parameters += [_DTYPE] if any(form.binary for form in forms) else []
        for form in forms:
            if form.description:
                schema = {**(_BINARY if form.binary else {"type": "string"}), "description": form.description}
                operation["responses"]["200"]["content"][form.media_type] = {"schema": schema}
        body = {"schema": _reference(endpoint.request), "examples": endpoint.examples}
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
        if endpoint.octets is not None:
            octets = {"schema": {**_BINARY, "description": endpoint.octets}}
            for content in (operation["requestBody"]["content"], operation["responses"]["200"]["content"]):
                content["application/octet-stream"] = octets
        operation["responses"].update(_problems(endpoint, set(KINDS) - _NOT_LISTED))
    else:
        operation["responses"].update(_problems(endpoint, endpoint.problems))
    if parameters:
        operation["parameters"] = parameters


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    """Describe the parameters in the path of an endpoint, whose handler does not declare them."""
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)", endpoint.path)
    ]


def _problems(endpoint: Endpoint, kinds: Collection[str]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    document = endpoint.error_document
    media_type = MEDIA_TYPE if document is ProblemDocument else "application/json"
    for kind in KINDS:
        if kind not in kinds:
            continue
        status = endpoint.error_status(kind)
        entry = responses.setdefault(
            str(int(status)),
            {"description": "", "content": {media_type: {"schema": _reference(document)}}},
        )
        entry["description"] += f"{'; ' if entry['description'] else ''}`{kind}`"
        if status in (429, 503):
            entry["headers"] = _RETRY
    return responses


def _reference(model: type) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


def _show_recorded(schema: dict[str, Any], endpoints: Endpoints) -> None:
    """Show real answers of operations, and of each protocol a real error, which its operations share."""
    folder, errors = Path(__file__).parent, dict[str, Any]()
    protocols = {endpoint.protocol for endpoint in endpoints}
    recorded = {name: orjson.loads((folder / name / _RECORDED).read_bytes()) for name in protocols}
    for endpoint in endpoints:
        path, shown = endpoint.documented_path, recorded[endpoint.protocol]
        error = shown["error"]
        name, request = f"{endpoint.protocol}_error", orjson.dumps(error["request"]).decode()
        for method, operation in schema["paths"].get(path, {}).items():
            responses = operation["responses"]
            if answer := shown["answers"].get(f"{method.upper()} {path}"):
                example = {"summary": answer["summary"], "value": answer["value"]}
                example |= {"description": _CUT} if answer["cut"] else {}
                responses["200"]["content"]["application/json"]["examples"] = {answer["name"]: example}
            if response := responses.get(str(error["status"])):
                errors[name] = {"summary": f"POST {error['path']} {request}", "value": error["value"]}
                (content,) = response["content"].values()
                content["examples"] = {"error": {"$ref": f"#/components/examples/{name}"}}
    schema["components"]["examples"] = errors
