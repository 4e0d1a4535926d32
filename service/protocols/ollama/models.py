"""What is served, as Ollama describes its models; and what clients call before they ask for vectors."""

import hashlib
from datetime import UTC, datetime
from typing import Any, Literal

import orjson
from pydantic import BaseModel, Field, StrictBool, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from model.contract import ModelInfo
from service.engine.engine import Engine
from service.lifecycle import VERSION, ServiceState
from service.problems import Problem
from service.protocols.json_response import json_response
from service.protocols.lenient import Fields
from service.protocols.ollama.body import LATEST, find_engine, read_operation

_STARTED = datetime.now(UTC)
# The served models stay loaded. Clients read years of four digits, and convert them to local time.
_NEVER = datetime(9000, 1, 1, tzinfo=UTC)
_FORMATS = {"torch": "safetensors", "onnx": "onnx"}
_LEVELS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int8": "INT8"}
_UNITS = ((10**9, "B"), (10**6, "M"), (10**3, "K"))
_PULLED = b'{"status":"success"}'


class OllamaDetails(BaseModel):
    """What a model is."""

    parent_model: str = ""
    format: str
    family: str
    families: list[str]
    parameter_size: str = Field(description='Such as "22.6M"; "" for a graph.')
    quantization_level: str = Field(description="The type that the model computes in.")


class OllamaModel(BaseModel):
    """A served model."""

    name: str
    model: str
    size: int = Field(description="Bytes of the files with the weights or the graph.")
    digest: str = Field(description="Of the description of the model, not of its weights.")
    details: OllamaDetails


class OllamaListed(OllamaModel):
    """A served model, in the list of those that there are."""

    modified_at: datetime = Field(description="When the service was started.")
    capabilities: list[Literal["embedding"]] = ["embedding"]


class OllamaTags(BaseModel):
    """The served models."""

    models: list[OllamaListed]


class OllamaLoaded(OllamaModel):
    """A served model, in the list of those that are loaded."""

    expires_at: datetime = Field(description="In the year 9000: the served models stay loaded.")
    size_vram: int = Field(description="`size` on a GPU, 0 on a CPU.")
    context_length: int


class OllamaProcesses(BaseModel):
    """The loaded models, which are all that are served."""

    models: list[OllamaLoaded]


class OllamaModelCard(BaseModel):
    """A served model."""

    details: OllamaDetails
    model_info: dict[str, str | int]
    capabilities: list[Literal["embedding"]] = ["embedding"]
    modified_at: datetime = Field(description="When the service was started.")


class OllamaVersion(BaseModel):
    """The version of this service."""

    version: str


class OllamaStatus(BaseModel):
    """How fetching a model has ended, or a line of the response."""

    status: Literal["success"]


class _Named(Fields):
    model: StrictStr | None = None
    name: StrictStr | None = None
    """An older name of `model`."""

    def find(self, request: Request) -> Engine:
        """Find the model; raises the 400 without a name, and the 404."""
        asked = self.model or self.name
        if not asked:
            raise Problem("invalid-request", "model is required", members={"field": "model"})
        return find_engine(request.app.state.service, asked)


class _Pull(_Named):
    stream: StrictBool = True


async def tags(request: Request) -> Response:
    """List the served models."""
    found = [OllamaListed(**_describe(one), modified_at=_STARTED) for one in _engines(request)]
    return json_response(OllamaTags(models=found))


async def processes(request: Request) -> Response:
    """List the loaded models, which are the served ones."""
    found = [
        OllamaLoaded(
            **_describe(engine),
            expires_at=_NEVER,
            size_vram=0 if engine.info.device == "cpu" else engine.info.weight_bytes,
            context_length=engine.info.max_length,
        )
        for engine in _engines(request)
    ]
    return json_response(OllamaProcesses(models=found))


async def show(request: Request) -> Response:
    """Describe a served model."""
    info = (await read_operation(request, _Named)).find(request).info
    card = OllamaModelCard(details=_details(info), model_info=_facts(info), modified_at=_STARTED)
    return json_response(card)


async def version(_: Request) -> Response:
    """Return the version of this service."""
    return json_response(OllamaVersion(version=VERSION))


async def pull(request: Request) -> Response:
    """Say that a served model is there, which is all that clients wait for; raises the 404 for another."""
    body = await read_operation(request, _Pull)
    body.find(request)
    if body.stream:
        return Response(_PULLED + b"\n", media_type="application/x-ndjson")
    return json_response(OllamaStatus(status="success"))


async def generate(request: Request) -> Response:
    """Refuse to write text, which encoders cannot."""
    raise await _unable(request, "generate")


async def chat(request: Request) -> Response:
    """Refuse to write messages, which encoders cannot."""
    raise await _unable(request, "chat")


async def _unable(request: Request, what: str) -> Problem:
    body = await read_operation(request, _Named)
    body.find(request)
    return Problem("unsupported", f'"{body.model or body.name}" does not support {what}')


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


def _details(info: ModelInfo) -> OllamaDetails:
    return OllamaDetails(
        format=_FORMATS[info.backend],
        family=info.family,
        families=[info.family],
        parameter_size="" if info.parameters is None else _in_words(info.parameters),
        quantization_level=_LEVELS.get(info.dtype, info.dtype.upper()),
    )


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
