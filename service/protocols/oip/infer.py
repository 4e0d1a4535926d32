"""`POST /v2/models/…/infer`: vectors of texts, as numbers or as bytes."""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding
from model.tokenization.tokenizer import Text, Truncation
from service.http.delivery import Work
from service.http.request_body import ParsedRequest
from service.protocols.exchange import Exchange
from service.protocols.oip.body import CODINGS, HEADER_LENGTH, OUTPUT, Inference, read_inference
from service.protocols.oip.models import VERSION, find_engine
from service.protocols.oip.tensors import Ids
from service.protocols.texts_or_ids import Listed, tokenize_inputs
from service.replies.answer_size import bound
from service.tasks.embed import EmbedOptions, plan_encode
from service.tasks.prompts import choose_prompt
from service.tasks.results import Expected, Item

_FEWER = "send fewer texts, or set the parameter `dimensions`"
_NAMES = {name: f"parameters.{name}" for name in ("dimensions", "normalize", "prompt_name")}
# Copies of the vectors: those of the batches, and an array of them.
_COPIES = 2
_ITEM_BYTES = 4  # of an FP32


async def infer(request: Request) -> Response:
    """Return the vectors of texts, or of token ids.

    With the header Inference-Header-Content-Length the body is JSON of that many bytes and the tensors after
    it; 0 means that the whole body is one text.
    """
    engine = find_engine(request, request.path_params["model"], request.path_params.get("version"))
    body = await read_inference(request, engine.name)
    parsed: ParsedRequest[Any] = ParsedRequest(body, "json", "float32", len(body.inputs))
    exchange = Exchange.open(request, parsed)
    exchange.names, exchange.cutting = _NAMES, 'leave out the parameter "truncate": false'
    return await exchange.in_time(_infer(exchange, body))


async def _infer(exchange: Exchange, body: Inference) -> Response:
    info, asked = exchange.engine.info, body.parameters
    options = EmbedOptions(normalize=asked.normalize, dimensions=asked.dimensions)
    plan = plan_encode(options, info, info.default_task)
    encodings = await _tokenize(exchange, body)
    shape = (len(encodings), plan.sentence_size)
    exchange.alone = True
    exchange.value = partial(_values, binary=body.binary)
    before, after = _frame(body, shape, sum(one.truncated for one in encodings))
    exchange.frame = lambda _: (before, after)
    style = exchange.style()
    exchange.reserve_arrays(shape, copies=_COPIES)
    if body.binary:
        size = len(before) + _ITEM_BYTES * shape[0] * shape[1]
    else:
        expected = [Expected({OUTPUT: (plan.sentence_size,)})] * len(encodings)
        size = len(before) + bound(style, expected)
    exchange.reserve_answer(style, size, _FEWER)
    delivery = exchange.delivery(style, Work.of(encodings), size)
    delivery.codings = CODINGS
    if body.binary:
        delivery.headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(before))}
    result = await exchange.run(delivery, encodings, [plan.want(one) for one in encodings])
    vectors = [output.sentence for output in result.outputs if output.sentence is not None]
    return await delivery.deliver(Item({}, {OUTPUT: np.stack(some)}) for some in (vectors,))


async def _tokenize(exchange: Exchange, body: Inference) -> list[Encoding]:
    prompt = choose_prompt(exchange.engine.info, body.parameters.prompt_name)
    truncation = Truncation(allowed=body.parameters.truncate)
    if isinstance(body.inputs[0], list):
        ids = cast(Sequence[Ids], body.inputs)
        return await tokenize_inputs(exchange, Listed(ids, flat=False), truncation, prompt, "input_ids")
    texts = cast(Sequence[Text], body.inputs)
    return await exchange.tokenize(texts, truncation, prompt, "text.{}".format)


def _frame(body: Inference, shape: tuple[int, int], truncated: int) -> tuple[bytes, bytes]:
    """Write what stands before and after the values."""
    output: dict[str, Any] = {"name": OUTPUT, "datatype": "FP32", "shape": shape}
    if body.binary:
        output["parameters"] = {"binary_data_size": _ITEM_BYTES * shape[0] * shape[1]}
    answer: dict[str, Any] = {"model_name": body.model, "model_version": VERSION}
    if body.id is not None:
        answer["id"] = body.id
    if truncated:
        answer["parameters"] = {"truncated_inputs": truncated}
    text = orjson.dumps({**answer, "outputs": [output]})
    return (text, b"") if body.binary else (text[: -len(b"}]}")] + b',"data":', b"}]}")


def _values(item: Item, *, binary: bool) -> Any:
    values = item.arrays[OUTPUT].astype("<f4", copy=False).reshape(-1)
    return values.data.cast("B") if binary else values
