"""`/v1/embeddings`: a vector for each text, or for each part of one."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding, ModelInfo, Role
from model.errors import InputTooLong, OutOfRange
from model.tokenization.tokenizer import Truncation
from service.echo import cut
from service.http.request_body import SEVERAL, read_request
from service.problems import Problem
from service.protocols.exchange import Exchange
from service.protocols.openai.fields import EmbeddingsRequest
from service.protocols.texts_or_ids import Listed, TextOrIds, check_inputs, tokenize_inputs
from service.replies.json_arrays import array_text
from service.tasks.chunks import NoTokens
from service.tasks.embed import EmbedOptions, plan_encode
from service.tasks.heads import plan_token_vectors
from service.tasks.prompts import choose_prompt, find_prompt, role_of
from service.tasks.results import Expected, Item
from service.tasks.view import View

_JOIN = "join some of them, or send the text to /encode with `chunks`"
ITEM_BYTES = 64
"""Of an item in JSON, with its punctuation: the names of its fields, and its index."""
_OTHER_IDS = (
    "If the client made them with another tokenizer, have it send texts: LangChain's OpenAIEmbeddings does "
    "with check_embedding_ctx_length=False."
)


class OpenAIUsage(BaseModel):
    """The work done for a request, in tokens."""

    prompt_tokens: int
    total_tokens: int


class OpenAIEmbedding(BaseModel):
    """The vector of an input."""

    object: str = "embedding"
    index: int
    embedding: list[float] | str = Field(description="The numbers, or their bytes in base64.")


class TokenEmbeddings(BaseModel):
    """With `return_multivector`, the vectors of an input's tokens."""

    object: str = "embedding"
    index: int
    embeddings: list[list[float]] = Field(description="One for each token that the model compares.")


class EmbeddingsResponse(BaseModel):
    """The vectors of all inputs, in their order."""

    object: str = "list"
    data: list[OpenAIEmbedding | TokenEmbeddings]
    model: str
    usage: OpenAIUsage


async def embeddings(request: Request) -> Response:
    """Return the vector of each input; with `late_chunking` inputs are parts of one text.

    With `return_multivector` return the vectors of its tokens.
    """
    parsed = await read_request(request, EmbeddingsRequest)
    body = parsed.body
    way_out = _JOIN if body.late_chunking else SEVERAL
    check_inputs(body.input, parsed.count, request.app.state.service.settings, "input", way_out)
    exchange = Exchange.open(request, parsed)
    exchange.frame = partial(frame, exchange.engine.name)
    exchange.cutting, exchange.names = body.cutting, body.names
    if body.return_multivector:
        return await exchange.in_time(_embed_tokens(exchange, body))
    work = _embed_parts(exchange, body) if body.late_chunking else _embed(exchange, body)
    return await exchange.in_time(work)


async def _embed(exchange: Exchange, body: EmbeddingsRequest) -> Response:
    info = exchange.engine.info
    options = EmbedOptions(normalize=body.normalized, dimensions=body.size, precision=body.precision)
    plan = plan_encode(options, info, _choose_task(body, info))
    prompt = _choose_prompt(body, info)
    truncation = Truncation(allowed=body.may_truncate)
    encodings = await _tokenize(exchange, body, truncation, prompt)
    exchange.value = partial(_embedding, base64=body.base64)
    style = exchange.style(precision=plan.precision)

    def view(index: int, encoding: Encoding) -> View:
        expected = Expected(plan.shapes(encoding), column_bytes=ITEM_BYTES)
        return View(plan.want(encoding), {"index": index}, expected, precision=plan.precision)

    response = await exchange.answer(style, encodings, view, _fewer(exchange))
    return _count_truncated(response, encodings)


async def _embed_tokens(exchange: Exchange, body: EmbeddingsRequest) -> Response:
    """Return the vectors of each text's tokens, for late interaction."""
    texts, info, engines = _texts(body, "return_multivector"), exchange.engine.info, exchange.state.engines
    plan = plan_token_vectors(exchange.engine, engines, _choose_task(body, info), "return_multivector")
    encodings = await exchange.tokenize(
        texts,
        Truncation(allowed=body.may_truncate),
        _choose_prompt(body, info),
        partial(body.input.place, "input"),
        role=_choose_role(body),
    )
    exchange.value = _token_vectors
    style = exchange.style()
    view = partial(plan.bare_view, column_bytes=ITEM_BYTES)
    response = await exchange.answer(style, encodings, view, "send fewer or shorter inputs")
    return _count_truncated(response, encodings)


def _texts(body: EmbeddingsRequest, field: str) -> list[str]:
    """Return the inputs of a request whose `field` needs texts; raises the 400 for token ids."""
    texts = [one for one in body.input.inputs if isinstance(one, str)]
    if len(texts) < len(body.input):
        raise Problem(
            "invalid-request",
            f"{field} needs texts, and input has token ids: leave it out or send texts.",
            members={"field": field},
        )
    return texts


async def _embed_parts(exchange: Exchange, body: EmbeddingsRequest) -> Response:
    """Run all texts as one, and return the vector of each."""
    parts = _texts(body, "late_chunking")
    info, spans = exchange.engine.info, tuple(pairwise(accumulate(map(len, parts), initial=0)))
    whole = "".join(parts)
    options = EmbedOptions(
        (), normalize=body.normalized, dimensions=body.size, precision=body.precision, chunks=spans
    )
    plan = plan_encode(options, info, _choose_task(body, info))
    truncation = Truncation(allowed=body.may_truncate)
    try:
        encodings = await exchange.tokenize(
            [whole], truncation, _choose_prompt(body, info), lambda _: "input"
        )
    except InputTooLong as error:
        if len(parts) == 1:
            raise
        error.way_out = "with late_chunking they run as one text, so send them in several requests"
        raise
    try:
        view = plan.view(0, encodings[0], whole)
    except NoTokens as error:
        field = body.input.place("input", error.number)
        raise no_tokens(error, field, parts[error.number], "With late_chunking the items of input") from None
    exchange.alone, exchange.value = True, partial(write_parts, base64=body.base64)
    size = Expected(view.expected.arrays, column_bytes=ITEM_BYTES * len(spans))
    style = exchange.style(precision=plan.precision)
    bare = View(view.want, {}, size, precision=plan.precision)
    response = await exchange.answer(style, encodings, lambda *_: bare, _fewer(exchange))
    return _count_truncated(response, encodings)


def _fewer(exchange: Exchange) -> str:
    return f"send fewer inputs, or ask for fewer `{exchange.name('dimensions')}`"


def no_tokens(error: NoTokens, field: str, part: str, parts: str) -> Problem:
    """Say what to do about a part without tokens, in `field`; the sentence calls all of them `parts`."""
    if not part:
        detail = f"{field} is empty, and so has no vector: leave it out."
    elif error.reason == "blank":
        detail = f"{field} is only white space, and so has no vector: leave it out."
    elif error.reason == "truncated":
        detail = (
            f"{field} was cut off. {parts} run as one text, of which {error.run} of {error.sent} tokens fit: "
            "send them in several requests."
        )
    else:
        detail = (
            f"No token begins in {field}. {parts} run as one text, and a token belongs to the one that its "
            "first character is in: join it with the one before it."
        )
    return Problem(error.kind, detail, members={"field": field})


def _choose_task(body: EmbeddingsRequest, info: ModelInfo) -> str | None:
    return body.task if body.task in info.tasks else info.default_task


def _choose_prompt(body: EmbeddingsRequest, info: ModelInfo) -> str:
    purposes = {"input_type": body.input_type, "task": body.task}
    given = {field: purpose for field, purpose in purposes.items() if purpose is not None}
    names = {field: find_prompt(field, purpose, info) for field, purpose in given.items()}
    if body.prompt_name is not None or not given:
        prompt = choose_prompt(info, body.prompt_name)
        names["prompt_name"] = body.prompt_name
    else:
        prompt = info.prompts[name] if (name := next(filter(None, names.values()), None)) else ""
    _check_agreement({field: name for field, name in names.items() if name is not None}, body)
    return prompt


def _choose_role(body: EmbeddingsRequest) -> Role:
    """Return whether texts are queries; raises the 400 if two fields say different things."""
    purposes = {"input_type": body.input_type, "task": body.task}
    roles = [(field, purpose, role_of(purpose)) for field, purpose in purposes.items() if purpose is not None]
    for (first, one, role), (second, two, other) in pairwise(roles):
        if role != other:
            raise Problem(
                "invalid-request",
                f'{second} is "{cut(two)}" and {first} is "{cut(one)}", which are different roles: send one '
                "of the two.",
                members={"field": second},
            )
    return roles[0][2] if roles else "document"


def _check_agreement(names: Mapping[str, str], body: EmbeddingsRequest) -> None:
    """Raise the 400 of fields that choose different prompts of the model, of these `names`."""
    for (first, name), (second, other) in pairwise(names.items()):
        if name != other:
            one, two = cut(getattr(body, first)), cut(getattr(body, second))
            raise Problem(
                "invalid-request",
                f'{second} is "{two}" and {first} is "{one}", which choose different prompts: send one of '
                "the two.",
                members={"field": second},
            )


async def _tokenize(
    exchange: Exchange, body: EmbeddingsRequest, truncation: Truncation, prompt: str
) -> list[Encoding]:
    try:
        encodings = await tokenize_inputs(exchange, body.input, truncation, prompt, "input")
    except OutOfRange as error:
        raise Problem(
            "invalid-request", f"{error} {_OTHER_IDS}", members={"field": error.field, "actual": error.actual}
        ) from None
    if not all(isinstance(one, str) for one in body.input.inputs):
        await _check_special(exchange, body.input)
    return encodings


async def _check_special(exchange: Exchange, listed: Listed[TextOrIds]) -> None:
    """Refuse ids without the special tokens around each text, which another tokenizer made.

    Most of its ids are also ids of this model, but of other words.
    """
    record = exchange.context.record
    counted = record.tokens
    (sample,) = await exchange.tokenize(["a"], Truncation())
    record.tokens = counted
    for place, where in ((0, "begin"), (-1, "end")):
        needed = sample.token_ids[place]
        ids = ((i, one[place]) for i, one in enumerate(listed.inputs) if not isinstance(one, str))
        wrong = next((i for i, found in ids if found != needed), None)
        if sample.special[place] and wrong is not None:
            field = listed.place("input", wrong)
            raise Problem(
                "invalid-request",
                f"{field} does not {where} with {needed}, the special token that this model has there. "
                f"{_OTHER_IDS}",
                members={"field": field},
            )


def _count_truncated(response: Response, encodings: Sequence[Encoding]) -> Response:
    if truncated := sum(one.truncated for one in encodings):
        response.headers["x-truncated-inputs"] = str(truncated)
    return response


def frame(model: str, tokens: int) -> tuple[bytes, bytes]:
    """Return what stands around the items of a response, given the number of tokens run."""
    rest = {"model": model, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    return b'{"object":"list","data":', b"," + orjson.dumps(rest)[1:]


def _embedding(item: Item, *, base64: bool) -> dict[str, Any]:
    return _one(item.columns["index"], item.arrays["embedding"], base64=base64)


def _token_vectors(item: Item) -> dict[str, Any]:
    """Write the vectors of a text's tokens, in pieces: writing holds the interpreter lock."""
    written = orjson.Fragment(b"".join(array_text(item.arrays["token_embeddings"][0], None)))
    return {"object": "embedding", "index": item.columns["index"], "embeddings": written}


def write_parts(item: Item, *, base64: bool) -> list[dict[str, Any]]:
    """Write the vectors of a text's parts."""
    return [_one(i, vector, base64=base64) for i, vector in enumerate(item.arrays["chunks"])]


def _one(index: int, vector: NDArray[Any], *, base64: bool) -> dict[str, Any]:
    written = b64encode(vector.tobytes()).decode() if base64 else np.ascontiguousarray(vector)
    return {"object": "embedding", "index": index, "embedding": written}
