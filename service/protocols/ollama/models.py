"""The served models, described as Ollama does; and routes that clients call before they ask for vectors."""

import hashlib
from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import StrictBool, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from model.contract import ModelInfo
from service.engine.engine import Engine
from service.lifecycle import VERSION, ServiceState
from service.problems import Problem
from service.protocols.contract import JSON, json_response
from service.protocols.lenient import Fields
from service.protocols.ollama.body import LATEST, find_engine, read_operation

_STARTED = datetime.now(UTC)
# The served models stay loaded. Clients read only years of four digits, and convert times to local time.
_NEVER = datetime(9000, 1, 1, tzinfo=UTC)
_FORMATS = {"torch": "safetensors", "static": "safetensors", "onnx": "onnx"}
_LEVELS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int8": "INT8"}
_UNITS = ((10**9, "B"), (10**6, "M"), (10**3, "K"))
_CAPABILITIES = ["embedding"]
_PULLED = b'{"status":"success"}'


class _Named(Fields):
    model: StrictStr | None = None
    name: StrictStr | None = None
    """An older name of `model`."""

    def find(self, request: Request) -> Engine:
        """Find the model; raises the 400 if no name was sent, and the 404."""
        asked = self.model or self.name
        if not asked:
            raise Problem("invalid-request", "model is required", members={"field": "model"})
        return find_engine(request.app.state.service, asked)


class _Pull(_Named):
    stream: StrictBool = True


async def tags(request: Request) -> Response:
    """List the served models."""
    rest = {"modified_at": _STARTED, "capabilities": _CAPABILITIES}
    return json_response({"models": [_describe(engine) | rest for engine in _engines(request)]})


async def processes(request: Request) -> Response:
    """List the loaded models, which are the served ones."""
    return json_response({"models": [_describe_loaded(engine) for engine in _engines(request)]})


async def show(request: Request) -> Response:
    """Describe a served model."""
    info = (await read_operation(request, _Named)).find(request).info
    card = {"details": _details(info), "model_info": _facts(info), "capabilities": _CAPABILITIES}
    return json_response(card | {"modified_at": _STARTED})


async def version(_: Request) -> Response:
    """Return the version of this service."""
    return json_response({"version": VERSION})


async def pull(request: Request) -> Response:
    """Say that a served model is there, which is all that clients wait for; raises the 404 for another."""
    body = await read_operation(request, _Pull)
    body.find(request)
    if body.stream:
        return Response(_PULLED + b"\n", media_type="application/x-ndjson")
    return Response(_PULLED, media_type=JSON)


async def refuse(request: Request) -> Response:
    """Refuse to write text (`generate`) or messages (`chat`), which encoders cannot."""
    body = await read_operation(request, _Named)
    body.find(request)
    what = request.scope["path"].rpartition("/")[2]
    raise Problem("unsupported", f'"{body.model or body.name}" does not support {what}')


def _engines(request: Request) -> list[Engine]:
    state: ServiceState = request.app.state.service
    state.check_ready()
    return list(state.engines.values())


def _describe(engine: Engine) -> dict[str, Any]:
    # Clients look for the name with a tag, or for one that begins with the name and a colon.
    name = engine.name if ":" in engine.name else engine.name + LATEST
    info = engine.info
    return {
        "name": name,
        "model": name,
        "size": info.weight_bytes,
        "digest": hashlib.sha256(orjson.dumps([name, info.weight_bytes, _facts(info)])).hexdigest(),
        "details": _details(info),
    }


def _describe_loaded(engine: Engine) -> dict[str, Any]:
    info = engine.info
    loaded = {"expires_at": _NEVER, "size_vram": 0 if info.device == "cpu" else info.weight_bytes}
    return _describe(engine) | loaded | {"context_length": info.max_length}


def _details(info: ModelInfo) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": _FORMATS[info.backend],
        "family": info.family,
        "families": [info.family],
        "parameter_size": "" if info.parameters is None else _in_words(info.parameters),
        "quantization_level": _LEVELS.get(info.dtype, info.dtype.upper()),
    }


def _in_words(count: int) -> str:
    """Write a number of parameters as Ollama does, such as 22.6M."""
    unit, letter = next((one for one in _UNITS if count >= one[0]), (None, ""))
    return str(count) if unit is None else f"{count / unit:.1f}{letter}"


def _facts(info: ModelInfo) -> dict[str, str | int]:
    """Describe a model under the names that Ollama takes from GGUF files."""
    family = info.family
    counted = {} if info.parameters is None else {"general.parameter_count": info.parameters}
    return {
        "general.architecture": family,
        **counted,
        f"{family}.block_count": info.layers,
        f"{family}.attention.head_count": info.heads,
        f"{family}.context_length": info.max_length,
        f"{family}.embedding_length": info.sentence_size,
    }
