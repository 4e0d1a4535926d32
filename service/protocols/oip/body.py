"""Reads an inference request: JSON and the bytes after it, which may be compressed together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from starlette.requests import Request

from model.tokenization.tokenizer import Text
from service.echo import cut
from service.http.negotiation import content_coding
from service.http.request_body import INLINE_BYTES, ParsedRequest, parse_body, receive_body
from service.http.request_schema import SPLIT
from service.lifecycle import ServiceState
from service.protocols.fields import MAX_IDS
from service.protocols.lenient import checked
from service.protocols.oip.errors import invalid
from service.protocols.oip.models import find_engine
from service.protocols.oip.schemas import InferenceParameters, InferenceRequest
from service.protocols.oip.tensors import OUTPUT, Ids, read_inputs, text_of
from service.system.off_loop import off_loop

HEADER_LENGTH = "Inference-Header-Content-Length"
# No body has a size with more digits.
_MAX_DIGITS = 18
# The most values in the JSON: the ids of texts, and their mask.
_MAX_VALUES = 2 * MAX_IDS
_BYTES_OR_FEWER = f"send tensors as bytes after the JSON, or {SPLIT}"


@dataclass(frozen=True, slots=True)
class Inference:
    """What a request asks for: the vectors of texts or pairs, or of the token ids of texts."""

    listed: ClassVar[str] = "inputs"

    model: str
    inputs: Sequence[Text] | Sequence[Ids]
    parameters: InferenceParameters
    binary: bool
    """Whether the vectors are returned as bytes."""
    id: str | None = None


async def read_inference(request: Request, _: type[InferenceRequest]) -> ParsedRequest[Any]:
    """Read a request to a model, of any Content-Type; raises Problem, or ClientDisconnect."""
    engine = find_engine(request, request.path_params["model"], request.path_params.get("version"))
    body = await _receive(request, engine.name)
    return ParsedRequest(body, "json", "float32")


async def _receive(request: Request, model: str) -> Inference:
    coding, length = content_coding(request), _header_length(request)
    content = await receive_body(request, coding)
    if length == 0:
        return Inference(model, [text_of(memoryview(content))], InferenceParameters(), binary=True)
    length = len(content) if length is None else length
    if length > len(content):
        raise invalid(
            HEADER_LENGTH,
            f"The header {HEADER_LENGTH} is {length}, but the body has only {len(content)} bytes: send the "
            "size of the JSON.",
        )
    return await _read(request, model, content, length)


async def _read(request: Request, model: str, content: bytes, length: int) -> Inference:
    """Read a body whose first `length` bytes are JSON."""
    state: ServiceState = request.app.state.service
    parsed = await parse_body(request, content[:length], MAX_IDS, _MAX_VALUES, _BYTES_OR_FEWER)
    body = checked(InferenceRequest, parsed.value)
    binary = _is_binary(body)
    octets = memoryview(content)[length:]

    def read() -> list[Text] | list[Ids]:
        return read_inputs(body.inputs, octets, state.settings)

    inputs = read() if len(content) <= INLINE_BYTES else await off_loop(read)
    state.memory.release_part(request.state.context.permit, parsed.transient)
    return Inference(model, inputs, body.parameters, binary, body.id)


def _is_binary(body: InferenceRequest) -> bool:
    """Whether the output is returned as bytes; raises the 400 for unknown outputs and unsupported forms."""
    for i, output in enumerate(body.outputs):
        if output.name != OUTPUT or i:
            raise invalid(
                f"outputs.{i}.name",
                f'outputs.{i}.name is "{cut(output.name)}": send {OUTPUT}, the only output, once.',
            )
        for name in ("shared_memory_region", "classification"):
            if getattr(output.parameters, name) is not None:
                raise invalid(
                    f"outputs.{i}.parameters.{name}",
                    f"outputs.{i} has the parameter {name}, which is not supported: leave it out.",
                )
    if body.outputs:
        return body.outputs[0].parameters.binary_data
    return body.parameters.binary_data_output


def _header_length(request: Request) -> int | None:
    """Return the size of the JSON, None if that is the whole body; raises the 400."""
    given = request.headers.get(HEADER_LENGTH)
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= _MAX_DIGITS):
        raise invalid(
            HEADER_LENGTH,
            f"The header {HEADER_LENGTH} is {cut(given)}: send the size of the JSON in bytes, as digits, at "
            f"most {_MAX_DIGITS}.",
        )
    return int(given)
