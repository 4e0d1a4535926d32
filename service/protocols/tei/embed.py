"""`/embed`, `/embed_all` and `/embed_sparse`: vectors of texts, of their tokens, and of words."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import orjson
from pydantic import BaseModel, Field, StrictBool, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding
from service.http.request_body import read_request
from service.protocols.exchange import Exchange
from service.protocols.fields import MAX_IDS, PositiveNumber
from service.protocols.tei.errors import EmptyInput
from service.protocols.tei.fields import PROMPT_NAME, TeiRequest, Truncated
from service.protocols.tei.headers import add_headers
from service.protocols.texts_or_ids import TextsOrIds, check_inputs, tokenize_inputs
from service.tasks.embed import NO_VECTORS, EmbedOptions, EncodePlan, plan_encode
from service.tasks.heads import plan_sparse
from service.tasks.prompts import choose_prompt
from service.tasks.results import Expected, Item
from service.tasks.view import View

_ALL_TOKENS = EmbedOptions(("tokens",))
_FEWER = "send fewer or shorter inputs"
# With its punctuation: the names of a word's fields.
_WORD_BYTES = 24
# Words that are written without a pause for other threads: three milliseconds.
_WORDS_AT_ONCE = 10_000


class EmbedAllRequest(TeiRequest, Truncated):
    """Texts, or token ids, to encode."""

    most_numbers: ClassVar[int] = MAX_IDS

    inputs: TextsOrIds = Field(
        description="A text, the token ids of one, or a list of either. Ids run as they are, without further "
        "special tokens."
    )
    prompt_name: StrictStr | None = PROMPT_NAME


class EmbedSparseRequest(EmbedAllRequest):
    """Texts, or token ids, to encode as weights of words."""


class EmbedRequest(EmbedAllRequest):
    """Texts, or token ids, to encode as one vector each."""

    normalize: StrictBool = Field(True, description="Scale each vector to unit L2 norm.")  # noqa: FBT003
    dimensions: PositiveNumber | None = Field(None, description="Keep the first k components.")


class SparseValue(BaseModel):
    """A word with a weight above 0."""

    index: int = Field(description="The number of the word in the model's vocabulary.")
    value: float


async def embed(request: Request) -> Response:
    """Return the vector of each input."""
    exchange, body = await _open(request, EmbedRequest)
    return await exchange.in_time(_embed(exchange, body))


async def embed_all(request: Request) -> Response:
    """Return the vector of each token of each input, special ones too."""
    exchange, body = await _open(request, EmbedAllRequest)
    return await exchange.in_time(_embed_all(exchange, body))


async def embed_sparse(request: Request) -> Response:
    """Return the weights above 0 of the words of each input."""
    exchange, body = await _open(request, EmbedSparseRequest)
    return await exchange.in_time(_embed_sparse(exchange, body))


async def _open(request: Request, schema: type[Any]) -> tuple[Exchange, Any]:
    parsed = await read_request(request, schema)
    inputs = parsed.body.inputs
    check_inputs(inputs, parsed.count, request.app.state.service.settings, "inputs")
    if not all(len(one) for one in inputs.inputs):
        raise EmptyInput("`inputs`", "inputs")
    return Exchange.open(request, parsed), parsed.body


async def _embed(exchange: Exchange, body: EmbedRequest) -> Response:
    plan = _plan(exchange, EmbedOptions(normalize=body.normalize, dimensions=body.dimensions))
    exchange.value = _embedding
    return await _answer(exchange, body, partial(_view, plan))


async def _embed_all(exchange: Exchange, body: EmbedAllRequest) -> Response:
    exchange.value = _token_embeddings
    return await _answer(exchange, body, partial(_view, _plan(exchange, _ALL_TOKENS)))


async def _embed_sparse(exchange: Exchange, body: EmbedAllRequest) -> Response:
    sparse = plan_sparse(None, exchange.engine, exchange.state.engines, needs="this route")
    plan = _plan(exchange, NO_VECTORS)
    exchange.value = _words

    def view(index: int, encoding: Encoding) -> View:
        extended = sparse.extend(_view(plan, index, encoding))
        return replace(extended, expected=_with_names(extended.expected))

    return await _answer(exchange, body, view)


async def _answer(
    exchange: Exchange, body: EmbedAllRequest, view: Callable[[int, Encoding], View]
) -> Response:
    encodings, style = await _tokenize(exchange, body), exchange.style()
    response = await exchange.answer(style, encodings, view, _FEWER)
    return add_headers(response, exchange, _characters(body))


def _plan(exchange: Exchange, options: EmbedOptions) -> EncodePlan:
    info = exchange.engine.info
    return plan_encode(options, info, info.default_task)


def _view(plan: EncodePlan, _: int, encoding: Encoding) -> View:
    return View(plan.want(encoding), {}, Expected(plan.shapes(encoding)))


async def _tokenize(exchange: Exchange, body: EmbedAllRequest) -> list[Encoding]:
    prompt = choose_prompt(exchange.engine.info, body.prompt_name)
    return await tokenize_inputs(exchange, body.inputs, body.truncation, prompt, "inputs")


def _characters(body: EmbedAllRequest) -> int:
    return sum(map(len, body.inputs.inputs))


def _embedding(item: Item) -> Any:
    return item.arrays["embedding"]


def _token_embeddings(item: Item) -> Any:
    return item.arrays["token_embeddings"][0]


def _with_names(expected: Expected) -> Expected:
    (words,) = expected.arrays["sparse_ids"]
    return replace(expected, column_bytes=_WORD_BYTES * words)


def _words(item: Item) -> orjson.Fragment:
    """Write the words of an input as objects, some at a time: writing holds the interpreter lock."""
    ids, weights = item.arrays["sparse_ids"], item.arrays["sparse_weights"]
    parts = []
    for start in range(0, len(ids), _WORDS_AT_ONCE):
        some = slice(start, start + _WORDS_AT_ONCE)
        words = [{"index": i, "value": w} for i, w in zip(ids[some].tolist(), weights[some], strict=True)]
        parts.append(orjson.dumps(words, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1])
    return orjson.Fragment(b"[" + b",".join(parts) + b"]")
