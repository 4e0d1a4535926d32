"""`/embed`, `/embed_all` and `/embed_sparse`: vectors of texts and of their tokens, and weights of words."""

from dataclasses import replace
from typing import ClassVar

import orjson
from pydantic import BaseModel, Field, StrictBool, StrictStr
from starlette.responses import Response

from model.contract import Encoding, Role
from service.protocols.embedding import embed, vector
from service.protocols.exchange import Exchange
from service.protocols.fields import MAX_IDS, PositiveNumber
from service.protocols.tei.fields import PROMPT_NAME, WithInputs
from service.protocols.texts_or_ids import TextsOrIds, tokenize_inputs
from service.tasks.embed import NO_VECTORS, EmbedOptions, plan_encode
from service.tasks.heads import plan_sparse, sparse_role
from service.tasks.prompts import choose_prompt
from service.tasks.results import Expected, Item
from service.tasks.view import View

_ALL_TOKENS = EmbedOptions(("tokens",))
_FEWER = "send fewer or shorter inputs"
# Bytes of JSON for the names of a word's fields, with their punctuation.
_WORD_BYTES = 24
# How many words are written without a pause for other threads, which takes three milliseconds.
_WORDS_AT_ONCE = 10_000


class EmbedAllRequest(WithInputs):
    """Texts, or token ids, to encode."""

    most_numbers: ClassVar[int] = MAX_IDS
    elsewhere: ClassVar[dict[str, str]] = {"texts": "/v2/embed"}

    inputs: TextsOrIds = Field(
        description="A text, the token ids of one, or a list of either. Ids run as they are, without further "
        "special tokens."
    )
    prompt_name: StrictStr | None = PROMPT_NAME


class EmbedSparseRequest(EmbedAllRequest):
    """Texts, or token ids, to encode as weights of words."""


class EmbedRequest(EmbedAllRequest):
    """Texts, or token ids, to encode as one vector each."""

    normalize: StrictBool = Field(default=True, description="Scale each vector to unit L2 norm.")
    dimensions: PositiveNumber | None = Field(None, description="Keep the first k components.")


class SparseValue(BaseModel):
    """A word, or feature, with a weight above 0."""

    index: int = Field(description="The number of the word in the model's vocabulary, or of the feature.")
    value: float


async def embed_texts(exchange: Exchange, body: EmbedRequest) -> Response:
    """Return the vector of each input."""
    exchange.value = vector
    return await _embed(exchange, body, EmbedOptions(normalize=body.normalize, dimensions=body.dimensions))


async def embed_all(exchange: Exchange, body: EmbedAllRequest) -> Response:
    """Return the vector of each token of each input, special ones too."""
    exchange.value = lambda item: item.arrays["token_embeddings"][0]
    return await _embed(exchange, body, _ALL_TOKENS)


async def _embed(exchange: Exchange, body: EmbedAllRequest, options: EmbedOptions) -> Response:
    info = exchange.engine.info
    plan = plan_encode(options, info, info.default_task)
    return await embed(exchange, plan, await _tokenize(exchange, body), _FEWER)


async def embed_sparse(exchange: Exchange, body: EmbedSparseRequest) -> Response:
    """Return the weights above 0 of the words of each input."""
    info = exchange.engine.info
    role = sparse_role(None, info)
    sparse = plan_sparse(None, exchange.engine, exchange.state.engines, needs="this route", role=role)
    encodings = await _tokenize(exchange, body, role)
    want = plan_encode(NO_VECTORS, info, info.default_task).want
    exchange.value = _words

    def view(_: int, encoding: Encoding) -> View:
        extended = sparse.extend(View(want(encoding), {}, Expected()), encoding)
        expected = replace(extended.expected, column_bytes=_WORD_BYTES * sparse.most(encoding))
        return replace(extended, expected=expected)

    return await exchange.answer(exchange.style(), encodings, view, _FEWER)


async def _tokenize(exchange: Exchange, body: EmbedAllRequest, role: Role | None = None) -> list[Encoding]:
    prompt = choose_prompt(exchange.engine.info, body.prompt_name)
    return await tokenize_inputs(exchange, body.inputs, body.truncation, prompt, "inputs", role)


def _words(item: Item) -> orjson.Fragment:
    """Write the words of an input as objects, some at a time, since writing holds the interpreter lock."""
    ids, weights = item.arrays["sparse_ids"], item.arrays["sparse_weights"]
    parts = []
    for start in range(0, len(ids), _WORDS_AT_ONCE):
        some = slice(start, start + _WORDS_AT_ONCE)
        words = [{"index": i, "value": w} for i, w in zip(ids[some].tolist(), weights[some], strict=True)]
        parts.append(orjson.dumps(words, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1])
    return orjson.Fragment(b"[" + b",".join(parts) + b"]")
