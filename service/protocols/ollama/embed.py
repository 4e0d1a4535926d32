"""`/api/embed` for the vectors of texts, and the older `/api/embeddings` for the vector of one."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import orjson
from pydantic import BaseModel, Field, StrictBool, StrictStr, WithJsonSchema
from starlette.responses import Response

from model.tokenization.tokenizer import Truncation
from service.http.request_schema import check_count
from service.problems import Problem
from service.protocols.contract import JSON, elapsed_s
from service.protocols.embedding import embed, vector
from service.protocols.exchange import Exchange
from service.protocols.fields import TEXT, WholeNumber, first_other
from service.protocols.ollama.body import EmbeddingRequest
from service.protocols.ollama.errors import WRONG_INPUT
from service.tasks.embed import EmbedOptions, plan_encode
from service.tasks.prompts import choose_prompt

_FEWER = "send fewer texts, or ask for fewer `dimensions`"

Input = Annotated[Any, WithJsonSchema({"anyOf": [TEXT, {"type": "array", "items": TEXT}, {"type": "null"}]})]


class OllamaEmbedRequest(EmbeddingRequest):
    """Texts to encode as one vector each, of unit length."""

    sources: ClassVar[tuple[str, ...]] = ("input",)
    example: ClassVar[str] = '{"model": "NAME", "input": "a text"}'

    input: Input = Field(None, description='A text, or a list of texts. A single `""` has no vector.')
    truncate: StrictBool = Field(
        default=True,
        description="Whether texts longer than the model's limit are cut at their end, or refused.",
    )
    dimensions: WholeNumber | None = Field(
        None, description="Keep the first k components, renormalized; no effect if there are fewer, or if 0."
    )

    @property
    def texts(self) -> Sequence[str]:
        """The texts."""
        if self.input is None or self.input == "":
            return ()
        texts: Sequence[str] = [self.input] if isinstance(self.input, str) else self.input
        return texts

    def check(self, count: int, limit: int) -> None:
        """Raise a problem if too many texts (`count`) were sent, or something other than texts."""
        check_count(count, limit, "input")
        if not isinstance(self.texts, Sequence) or first_other([*self.texts], str) is not None:
            raise Problem("invalid-request", WRONG_INPUT, members={"field": "input"})


class OllamaEmbeddingsRequest(EmbeddingRequest):
    """A text to encode as a vector, which is not normalized."""

    sources: ClassVar[tuple[str, ...]] = ("prompt",)
    example: ClassVar[str] = '{"model": "NAME", "prompt": "a text"}'

    prompt: StrictStr = Field("", description="The text. An empty text has no vector.")

    @property
    def texts(self) -> Sequence[str]:
        """The text, if there is one."""
        return (self.prompt,) if self.prompt else ()


class OllamaVectors(BaseModel):
    """The vectors of all texts, in their order."""

    model: str = Field(description="The name as it was asked for.")
    embeddings: list[list[float]]
    total_duration: int = Field(description="Nanoseconds until the response was written.")
    load_duration: int = Field(description="0: the served models are loaded.")
    prompt_eval_count: int = Field(description="The tokens that ran.")


class OllamaVector(BaseModel):
    """The vector of a text."""

    embedding: list[float]


async def embed_texts(exchange: Exchange, body: OllamaEmbedRequest) -> Response:
    """Return the vector of each text, of unit length."""
    size = exchange.engine.info.sentence_size
    dimensions = body.dimensions if body.dimensions and 0 < body.dimensions < size else None
    options = EmbedOptions(normalize=True, dimensions=dimensions)
    truncation = Truncation(body.truncate, "right", body.most_tokens)
    place = ("input.{}" if isinstance(body.input, list) else "input").format
    return await _embed(exchange, body, options, truncation, place, partial(_frame, exchange, body.asked))


async def embed_text(exchange: Exchange, body: OllamaEmbeddingsRequest) -> Response:
    """Return the vector of a text, which is not normalized."""
    exchange.alone = True
    options, truncation = EmbedOptions(normalize=False), Truncation(side="right", limit=body.most_tokens)
    frame = b'{"embedding":', b"}"
    return await _embed(exchange, body, options, truncation, "prompt".format, lambda _: frame)


async def _embed(
    exchange: Exchange,
    body: OllamaEmbedRequest | OllamaEmbeddingsRequest,
    options: EmbedOptions,
    truncation: Truncation,
    place: Callable[[int], str],
    frame: Callable[[int], tuple[bytes, bytes]],
) -> Response:
    if not body.texts:
        return Response(b"[]".join(frame(0)), media_type=JSON)
    exchange.cutting, exchange.value, exchange.frame = "", vector, frame
    info = exchange.engine.info
    plan = plan_encode(options, info, info.default_task)
    encodings = await exchange.tokenize(body.texts, truncation, choose_prompt(info), place)
    return await embed(exchange, plan, encodings, _FEWER)


def _frame(exchange: Exchange, asked: str, tokens: int) -> tuple[bytes, bytes]:
    """Write what stands before and after the vectors: the name as `asked`, and the time that they took."""
    rest = {
        "total_duration": int(1e9 * elapsed_s(exchange)),
        "load_duration": 0,
        "prompt_eval_count": tokens,
    }
    return orjson.dumps({"model": asked})[:-1] + b',"embeddings":', b"," + orjson.dumps(rest)[1:]
