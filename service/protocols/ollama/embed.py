"""`/api/embed` and the older `/api/embeddings`: vectors of texts, and of one text."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import orjson
from pydantic import BaseModel, Field, StrictBool, StrictStr, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding
from model.errors import InputTooLong
from model.tokenization.tokenizer import Truncation
from service.http.request_body import ParsedRequest, check_count
from service.problems import Problem
from service.protocols.exchange import Exchange
from service.protocols.fields import NonEmptyText, WholeNumber, first_other
from service.protocols.json_response import JSON, json_response
from service.protocols.lenient import Fields
from service.protocols.ollama.body import find_engine, read_inference
from service.protocols.ollama.errors import WRONG_INPUT
from service.replies.style import Format
from service.tasks.embed import EmbedOptions, plan_encode
from service.tasks.prompts import choose_prompt
from service.tasks.results import Expected, Item
from service.tasks.tokens import shorten
from service.tasks.view import View

_FEWER = "send fewer texts, or ask for fewer `dimensions`"
# The original raises a lower `num_ctx` to this.
_LEAST_TOKENS = 4

_TEXT = {"type": "string"}
Input = Annotated[
    Any, WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "items": _TEXT}, {"type": "null"}]})
]


class OllamaOptions(Fields):
    """Options of the model; all others have no effect."""

    num_ctx: WholeNumber | None = Field(None, description="At most this many tokens of a text are read.")


class EmbeddingRequest(Fields):
    """What requests for vectors have in common. Unknown fields are ignored."""

    listed: ClassVar[str] = "texts"
    formats: ClassVar[tuple[Format, ...]] = ("json",)

    model: NonEmptyText = Field(description="One of the served models; `:latest` after its name is ignored.")
    options: OllamaOptions | None = Field(None, description="`num_ctx` lowers the limit of tokens of a text.")
    keep_alive: Any = Field(None, description="Has no effect: the served models stay loaded.")

    @property
    def most_tokens(self) -> int | None:
        """The limit of tokens that the request sets, if it is one."""
        limit = None if self.options is None else self.options.num_ctx
        return None if limit is None else max(limit, _LEAST_TOKENS)


class OllamaEmbedRequest(EmbeddingRequest):
    """Texts to encode as one vector each, of unit length."""

    sources: ClassVar[tuple[str, ...]] = ("input",)
    example: ClassVar[str] = '{"model": "NAME", "input": "a text"}'

    input: Input = Field(None, description='A text, or a list of texts. There is no vector of a lone `""`.')
    truncate: StrictBool = Field(
        True,  # noqa: FBT003
        description="Whether texts longer than the model's limit are cut at their end, or refused.",
    )
    dimensions: WholeNumber | None = Field(
        None, description="Keep the first k components, renormalized; no effect if there are fewer, or if 0."
    )

    @property
    def texts(self) -> Sequence[str]:
        """The texts; raises the 400 for an input that is none."""
        if self.input is None or self.input == "":
            return ()
        texts = [self.input] if isinstance(self.input, str) else self.input
        if not isinstance(texts, list) or first_other(texts, str) is not None:
            raise Problem("invalid-request", WRONG_INPUT, members={"field": "input"})
        return texts


class OllamaEmbeddingsRequest(EmbeddingRequest):
    """A text to encode as a vector, which is not normalized."""

    sources: ClassVar[tuple[str, ...]] = ("prompt",)
    example: ClassVar[str] = '{"model": "NAME", "prompt": "a text"}'

    prompt: StrictStr = Field("", description="The text. There is no vector of an empty one.")

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


async def embed(request: Request) -> Response:
    """Return the vector of each text, of unit length."""
    start = time.perf_counter_ns()
    parsed = await read_inference(request, OllamaEmbedRequest)
    body, asked, texts = parsed.body, parsed.body.model, parsed.body.texts
    check_count(parsed.count, request.app.state.service.settings, "input")
    exchange = _open(request, parsed)
    exchange.frame = partial(_frame, asked, start)
    if not texts:
        return Response(b"[]".join(exchange.frame(0)), media_type=JSON)
    size = exchange.engine.info.sentence_size
    dimensions = body.dimensions if body.dimensions and 0 < body.dimensions < size else None
    options = EmbedOptions(normalize=True, dimensions=dimensions)
    truncation = Truncation(allowed=body.truncate, side="right")
    place = ("input.{}" if isinstance(body.input, list) else "input").format
    return await exchange.in_time(_embed(exchange, texts, options, truncation, place))


async def embeddings(request: Request) -> Response:
    """Return the vector of a text, which is not normalized."""
    parsed = await read_inference(request, OllamaEmbeddingsRequest)
    texts, exchange = parsed.body.texts, _open(request, parsed)
    if not texts:
        return json_response(OllamaVector(embedding=[]))
    exchange.alone, exchange.frame = True, _frame_one
    options, truncation = EmbedOptions(normalize=False), Truncation(side="right")
    return await exchange.in_time(_embed(exchange, texts, options, truncation, "prompt".format))


def _open(request: Request, parsed: ParsedRequest[Any]) -> Exchange:
    body: EmbeddingRequest = parsed.body
    body.model = find_engine(request.app.state.service, body.model).name
    exchange = Exchange.open(request, parsed)
    exchange.cutting = ""
    return exchange


async def _embed(
    exchange: Exchange,
    texts: Sequence[str],
    options: EmbedOptions,
    truncation: Truncation,
    place: Callable[[int], str],
) -> Response:
    info = exchange.engine.info
    plan = plan_encode(options, info, info.default_task)
    encodings = await exchange.tokenize(texts, truncation, choose_prompt(info), place)
    limit = exchange.parsed.body.most_tokens
    if limit is not None:
        encodings = await _shorten(exchange, encodings, limit, truncation, place)
    exchange.value = _embedding
    style = exchange.style()
    return await exchange.answer(
        style, encodings, lambda _, one: View(plan.want(one), {}, Expected(plan.shapes(one))), _FEWER
    )


async def _shorten(
    exchange: Exchange,
    encodings: Sequence[Encoding],
    limit: int,
    truncation: Truncation,
    place: Callable[[int], str],
) -> list[Encoding]:
    """Cut texts to a limit that may be below the model's; raises InputTooLong if they must not be cut."""
    for index, encoding in enumerate(encodings):
        if len(encoding) > limit and not truncation.allowed:
            raise InputTooLong(field=place(index), actual=len(encoding), limit=limit, advice="")
    tokens = sum(map(len, encodings))
    shorter = await exchange.off_loop(lambda: [shorten(one, limit) for one in encodings], tokens)
    exchange.context.record.tokens = sum(map(len, shorter))
    return shorter


def _embedding(item: Item) -> Any:
    return item.arrays["embedding"]


def _frame(asked: str, start: int, tokens: int) -> tuple[bytes, bytes]:
    """Write what stands around the vectors: the name as `asked`, and the nanoseconds since `start`."""
    rest = {
        "total_duration": time.perf_counter_ns() - start,
        "load_duration": 0,
        "prompt_eval_count": tokens,
    }
    return orjson.dumps({"model": asked})[:-1] + b',"embeddings":', b"," + orjson.dumps(rest)[1:]


def _frame_one(_: int) -> tuple[bytes, bytes]:
    return b'{"embedding":', b"}"
