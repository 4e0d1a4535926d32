"""`/encode` of bert-as-service: a vector for each text, by its defaults."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StrictBool, StrictStr, ValidationInfo
from starlette.requests import Request
from starlette.responses import Response

from model.contract import ModelInfo
from model.errors import Unsupported
from model.tokenization.tokenizer import Text, Truncation
from service.http.delivery import Work
from service.http.json_body import MAX_VALUES
from service.http.request_body import read_request
from service.problems import Problem
from service.protocols.bert.errors import MissingField
from service.protocols.exchange import Exchange, check_count
from service.protocols.native.encode_plan import EncodePlan, choose_prompt, plan_encode
from service.protocols.native.fields import invalid
from service.protocols.native.schemas import OWN_VECTORS, EmbeddingOptions, PromptRequest
from service.serialization.items import Expected, Format, Item
from service.serialization.json_arrays import array_text

_POOLING_LAYER = -2
"""The layer that the original pools by default, the last but one: the last is biased to its training."""
_DEFAULTS = EmbeddingOptions(
    ("sentence",), pooling="mean", normalize=False, dimensions=None, pooling_layers=(_POOLING_LAYER,)
)
_FALLBACK = EmbeddingOptions(("sentence",), pooling=None, normalize=False, dimensions=None)
# The response has each vector twice: as `result` and as `results`.
_WRITTEN = 2
# Copies of the vectors: those of the batches, and an array of them.
_COPIES = 2
_BETWEEN_PAIR = " ||| "
MAX_TOKENS = 2 * MAX_VALUES
"""Tokens of a request with `is_tokenized`, as strings: they are read in five milliseconds at worst."""
FEWER_TOKENS = "send fewer texts, or fewer tokens of a text"
"""What to do about more."""
_MISSING = object()
# Those that orjson writes; it reads more.
_MAX_LEVELS = 253
# Marks a token that continues the word before it.
_CONTINUES = " ##"


def _texts(value: object, info: ValidationInfo) -> Sequence[Text]:
    """Read texts, or with `is_tokenized` the tokens of each."""
    tokenized = bool(info.data.get("is_tokenized"))
    what = "a list of at least one list of tokens" if tokenized else "a list of at least one string"
    if not isinstance(value, list) or not value:
        raise invalid("texts", f"must be {what}")
    return [_text(one, f"texts.{i}", tokenized=tokenized) for i, one in enumerate(value)]


def _text(value: object, field: str, *, tokenized: bool) -> Text:
    if tokenized:
        if not isinstance(value, list) or not set(map(type, value)) <= {str}:
            raise invalid(field, 'must be a list of tokens, which are strings, with "is_tokenized": true')
        value = " ".join(value).replace(_CONTINUES, "")
    if not isinstance(value, str):
        raise invalid(field, 'must be a string, or with "is_tokenized": true a list of tokens')
    first, between, second = value.rpartition(_BETWEEN_PAIR)
    return (first, second) if between else value


class BertEncodeRequest(BaseModel):
    """Texts to encode as one vector each. Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())
    listed: ClassVar[str] = "texts"
    formats: ClassVar[tuple[Format, ...]] = ("json",)
    most_values: ClassVar[int] = MAX_TOKENS
    fewer_values: ClassVar[str] = FEWER_TOKENS

    # Null is a value, too.
    id: Any = Field(_MISSING, description="Any value: the response repeats it.")
    model: StrictStr | None = Field(None, description="One of the served models; the first by default.")
    is_tokenized: StrictBool | None = Field(None, description="Whether each of `texts` is a list of tokens.")
    texts: Annotated[Sequence[Text], PlainValidator(_texts)] = Field(
        description='The texts; "a ||| b" is a pair.'
    )


async def encode(request: Request) -> Response:
    """Return the vector of each text."""
    parsed = await read_request(request, BertEncodeRequest)
    if parsed.body.id is _MISSING:
        raise MissingField("id")
    check_count(parsed.count, request.app.state.service.settings, "texts")
    head = _head(parsed.body.id)
    exchange = Exchange.open(request, parsed)
    return await exchange.in_time(_encode(exchange, parsed.body, head))


def _head(identity: object) -> bytes:
    """Write the beginning of the response; raises the 400 for an `id` that could be read but not written."""
    try:
        return orjson.dumps({"id": identity})[:-1]
    except orjson.JSONEncodeError:
        raise Problem(
            "invalid-request",
            f"id has more than {_MAX_LEVELS} levels: send a value with fewer objects and lists in another.",
            members={"field": "id", "limit": _MAX_LEVELS},
        ) from None


async def _encode(exchange: Exchange, body: BertEncodeRequest, head: bytes) -> Response:
    info, texts = exchange.engine.info, body.texts
    plan = plan_defaults(info)
    prompt = choose_prompt(PromptRequest.model_construct(), info)
    encodings = await exchange.tokenize(texts, Truncation(), prompt, "texts.{}".format)
    exchange.alone, exchange.value = True, partial(_written, head)
    exchange.reserve_arrays((len(texts), plan.sentence_size), copies=_COPIES)
    style = exchange.style()
    expected = [Expected({"embedding": (_WRITTEN * plan.sentence_size,)})] * len(texts)
    size = len(head) + await exchange.bound(style, encodings, expected)
    exchange.reserve_answer(style, size, "send fewer texts, or a shorter `id`")
    delivery = exchange.delivery(style, Work.of(encodings), size)
    result = await exchange.run(delivery, encodings, [plan.want(one) for one in encodings])
    vectors = [output.sentence for output in result.outputs if output.sentence is not None]
    return await delivery.deliver(Item({}, {"embedding": np.stack(some)}) for some in (vectors,))


def plan_defaults(info: ModelInfo) -> EncodePlan:
    """Pool as the original does by default, or as the model does if it cannot pool that layer so."""
    for options in (_DEFAULTS, _FALLBACK):
        with suppress(Unsupported):
            return plan_encode(options, info, info.default_task)
    return plan_encode(OWN_VECTORS, info, info.default_task)


def _written(head: bytes, item: Item) -> orjson.Fragment:
    """Write the response after its `head`, in pieces: writing holds the interpreter lock."""
    vectors = b"".join(array_text(item.arrays["embedding"], None))
    parts = (head, b',"result":', vectors, b',"results":', vectors, b',"status":200}')
    return orjson.Fragment(b"".join(parts))
