"""`/v1/embeddings`: a vector for each text, or for each part of one."""

from base64 import b64encode
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from starlette.responses import Response

from model.contract import Encoding, ModelInfo
from model.errors import OutOfRange
from model.tokenization.tokenizer import Truncation
from service.echo import cut
from service.problems import Problem
from service.protocols.embedding import embed, vector
from service.protocols.exchange import Exchange
from service.protocols.fields import Listed
from service.protocols.openai.fields import EmbeddingsRequest
from service.protocols.openai.parts import ITEM_BYTES, Documents, embed_parts
from service.protocols.texts_or_ids import TextOrIds, tokenize_inputs
from service.tasks.embed import plan_encode
from service.tasks.prompts import choose_prompt, find_prompt
from service.tasks.results import Item

_OTHER_IDS = "If the ids come from another tokenizer, such as tiktoken, send texts instead."


class OpenAIUsage(BaseModel):
    """The work done for a request, in tokens."""

    prompt_tokens: int
    total_tokens: int


class OpenAIEmbedding(BaseModel):
    """The vector of an input."""

    object: str = "embedding"
    index: int
    embedding: list[float] | str = Field(description="The numbers, or their bytes in base64.")


class EmbeddingsResponse(BaseModel):
    """The vectors of all inputs, in their order."""

    object: str = "list"
    data: list[OpenAIEmbedding]
    model: str
    usage: OpenAIUsage


async def embeddings(exchange: Exchange, body: EmbeddingsRequest) -> Response:
    """Return the vector of each input; with `late_chunking` inputs are parts of one text."""
    exchange.frame = partial(frame, exchange.engine.name)
    exchange.cutting, exchange.names = body.cutting, body.names
    info = exchange.engine.info
    task = body.task if body.task in info.tasks else info.default_task
    way_out = f"send fewer inputs, or ask for fewer `{exchange.name('dimensions')}`"
    if body.late_chunking:
        return await _embed_parts(exchange, body, task, way_out)
    plan, prompt = plan_encode(body.options(), info, task), _choose_prompt(body, info)
    encodings = await _tokenize(exchange, body, prompt)
    exchange.value = lambda item: _one(item.columns["index"], vector(item), base64=body.base64)
    return await embed(exchange, plan, encodings, way_out, column_bytes=ITEM_BYTES)


async def _embed_parts(
    exchange: Exchange, body: EmbeddingsRequest, task: str | None, way_out: str
) -> Response:
    """Run all texts as one, and return the vector of each."""
    parts = [one for one in body.input.inputs if isinstance(one, str)]
    if len(parts) < len(body.input):
        raise Problem(
            "invalid-request",
            "late_chunking needs texts, and input has token ids: leave it out or send texts.",
            members={"field": "late_chunking"},
        )
    documents = Documents(
        [parts],
        lambda _: "input",
        lambda _, part: body.input.place("input", part),
        "With late_chunking the items of {}",
        body.windowed,
        body.overlap,
    )
    exchange.alone, exchange.value = True, partial(write_parts, base64=body.base64)
    prompt = _choose_prompt(body, exchange.engine.info)
    return await embed_parts(exchange, documents, body.options(), body.cuts, prompt, way_out, task)


def _choose_prompt(body: EmbeddingsRequest, info: ModelInfo) -> str:
    """Return the prompt for the purpose of the texts; raises the 400 if fields choose different prompts."""
    said = {"input_type": body.input_type, "task": body.task}
    purposes = {field: purpose for field, purpose in said.items() if purpose is not None}
    names = {field: find_prompt(field, purpose, info) for field, purpose in purposes.items()}
    if body.prompt_name is not None or not names:
        prompt = choose_prompt(info, body.prompt_name)
        names["prompt_name"] = body.prompt_name
    else:
        prompt = info.prompts[name] if (name := next(filter(None, names.values()), None)) else ""
    chosen = [field for field, name in names.items() if name is not None]
    for first, second in pairwise(chosen):
        if names[first] != names[second]:
            this, that = cut(getattr(body, first)), cut(getattr(body, second))
            raise Problem(
                "invalid-request",
                f'{second} is "{that}" and {first} is "{this}", which choose different prompts: send one of '
                "the two.",
                members={"field": second},
            )
    return prompt


async def _tokenize(exchange: Exchange, body: EmbeddingsRequest, prompt: str) -> list[Encoding]:
    try:
        encodings = await tokenize_inputs(exchange, body.input, body.cuts, prompt, "input")
    except OutOfRange as error:
        raise Problem(
            "invalid-request", f"{error} {_OTHER_IDS}", members={"field": error.field, "actual": error.actual}
        ) from None
    if not all(isinstance(one, str) for one in body.input.inputs):
        await _check_special(exchange, body.input)
    return encodings


async def _check_special(exchange: Exchange, listed: Listed[TextOrIds]) -> None:
    """Refuse ids that lack the special tokens around a text: another tokenizer has made them.

    Most of that tokenizer's ids exist in this model, too, but stand for other words.
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
                f"{field} does not {where} with {needed}, the special token that this model needs there. "
                f"{_OTHER_IDS}",
                members={"field": field},
            )


def frame(model: str, tokens: int) -> tuple[bytes, bytes]:
    """Return what stands before and after the items of a response, given the number of tokens run."""
    rest = {"model": model, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    return b'{"object":"list","data":', b"," + orjson.dumps(rest)[1:]


def write_parts(item: Item, *, base64: bool) -> list[dict[str, Any]]:
    """Write the vectors of a text's parts."""
    return [_one(i, vector, base64=base64) for i, vector in enumerate(item.arrays["chunks"])]


def _one(index: int, vector: NDArray[Any], *, base64: bool) -> dict[str, Any]:
    written = b64encode(vector.tobytes()).decode() if base64 else np.ascontiguousarray(vector)
    return {"object": "embedding", "index": index, "embedding": written}
