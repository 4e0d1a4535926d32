"""`POST /tokenize`: the tokens that `/encode` would run."""

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import BaseModel, Field
from starlette.responses import Response

from model.contract import Encoding
from model.tokenization.shortening import without_special
from service.http.delivery import Work
from service.protocols.exchange import Exchange
from service.protocols.native.responses import TokenColumns, Usage
from service.protocols.native.schemas import PromptRequest, WithInputs
from service.replies.answer_size import bound
from service.replies.style import Format
from service.tasks.prompts import choose_prompt
from service.tasks.results import Expected, Item, columns


class TokenizeRequest(PromptRequest, WithInputs):
    """Texts to tokenize."""

    formats: ClassVar[tuple[Format, ...]] = ("json", "ndjson")
    elsewhere: ClassVar[dict[str, str]] = {"add_special_tokens": "/tei/tokenize"}

    special_tokens: Literal["keep", "drop"] = Field(
        "keep", description="`drop` leaves out the tokens that the tokenizer added."
    )


class TokenizeResponse(BaseModel):
    """The response of `/tokenize`."""

    model: str
    data: list[TokenColumns]
    usage: Usage = Field(description="Always 0 tokens: no model runs.")


async def tokenize(exchange: Exchange, body: TokenizeRequest) -> Response:
    """Tokenize texts as `/encode` does, and return the tokens without running the model."""
    prompt = choose_prompt(exchange.engine.info, body.prompt_name, body.prompt)
    encodings = await exchange.tokenize(body.inputs, body.truncation, prompt, runs=False)
    style, drop = exchange.style(), body.special_tokens == "drop"

    def prepare() -> tuple[list[Encoding], int]:
        kept = [without_special(encoding) for encoding in encodings] if drop else encodings
        return kept, bound(style, (Expected(encoding=encoding) for encoding in kept))

    kept, size = await exchange.off_loop(prepare, sum(map(len, encodings)))
    exchange.reserve_answer(style, size, "send fewer or shorter inputs")
    work = replace(Work.of(encodings), tokens=0)
    items = (Item(columns(index, encoding), {}) for index, encoding in enumerate(kept))
    return await exchange.delivery(style, work, size).deliver(items)
