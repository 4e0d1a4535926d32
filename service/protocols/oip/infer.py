"""`POST /v2/models/…/infer`: vectors of texts, as numbers or as bytes."""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import orjson
from starlette.responses import Response

from model.contract import Encoding
from model.tokenization.tokenizer import Text, Truncation
from service.http.negotiation import CODINGS
from service.protocols.embedding import embed_together, vector
from service.protocols.exchange import Exchange
from service.protocols.fields import Listed
from service.protocols.oip.body import HEADER_LENGTH, Inference
from service.protocols.oip.models import VERSION
from service.protocols.oip.tensors import OUTPUT, Ids
from service.protocols.texts_or_ids import tokenize_inputs
from service.tasks.embed import EmbedOptions, plan_encode
from service.tasks.prompts import choose_prompt
from service.tasks.results import Item

_FEWER = "send fewer texts, or set the parameter `dimensions`"
_NAMES = {name: f"parameters.{name}" for name in ("dimensions", "normalize", "prompt_name")}
_ITEM_BYTES = 4  # of an FP32


async def infer(exchange: Exchange, body: Inference) -> Response:
    """Return the vectors of texts, or of token ids.

    With the header Inference-Header-Content-Length the body is JSON of that many bytes and the tensors after
    it; 0 means that the whole body is one text.
    """
    exchange.names, exchange.cutting = _NAMES, 'leave out the parameter "truncate": false'
    info, asked = exchange.engine.info, body.parameters
    options = EmbedOptions(normalize=asked.normalize, dimensions=asked.dimensions)
    plan = plan_encode(options, info, info.default_task)
    encodings = await _tokenize(exchange, body)
    shape, truncated = (len(encodings), plan.sentence_size), sum(one.truncated for one in encodings)
    before, after = _frame(body, shape, truncated)
    exchange.alone, exchange.frame = True, lambda _: (before, after)
    exchange.value = partial(_values, binary=body.binary)
    length = b"%d" % len(before)
    headers = {b"content-type": b"application/octet-stream", HEADER_LENGTH.lower().encode(): length}
    return await embed_together(
        exchange,
        plan,
        encodings,
        _FEWER,
        more_bytes=len(before),
        binary=body.binary,
        codings=CODINGS,
        headers=headers if body.binary else {},
    )


async def _tokenize(exchange: Exchange, body: Inference) -> list[Encoding]:
    prompt = choose_prompt(exchange.engine.info, body.parameters.prompt_name)
    truncation = Truncation(allowed=body.parameters.truncate)
    if isinstance(body.inputs[0], list):
        ids = Listed(cast(Sequence[Ids], body.inputs), flat=False)
        return await tokenize_inputs(exchange, ids, truncation, prompt, "input_ids")
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
    values = vector(item).astype("<f4", copy=False).reshape(-1)
    return values.data.cast("B") if binary else values
