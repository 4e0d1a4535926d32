"""Late chunking: vectors of the parts of documents, each of which runs as a whole."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from starlette.responses import Response

from model.contract import Encoding
from model.errors import InputTooLong
from model.tokenization.tokenizer import Truncation
from service.problems import Problem
from service.protocols.exchange import Exchange
from service.tasks.chunking.chunks import NoTokens
from service.tasks.chunking.windows import LongWindows
from service.tasks.embed import EmbedOptions, EncodePlan, plan_encode
from service.tasks.results import Expected
from service.tasks.view import View

ITEM_BYTES = 64
"""Bytes of JSON for the names of an item's fields and for its index, with their punctuation."""


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents as lists of their parts, and how errors speak of them."""

    parts: Sequence[Sequence[str]]
    place: Callable[[int], str]
    """Names a document."""
    place_part: Callable[[int, int], str]
    """Names a part of a document."""
    called: str
    """How a sentence about a document's parts begins, with "{}" for the place of the document."""
    windowed: bool
    """Whether parts that are too long together are read in windows."""
    overlap: int | None
    """How many tokens a window repeats of the one before; None for a quarter of a window."""


async def embed_parts(
    exchange: Exchange,
    documents: Documents,
    options: EmbedOptions,
    truncation: Truncation,
    prompt: str,
    way_out: str,
    task: str | None = None,
) -> Response:
    """Answer with the vectors of each document's parts."""
    wholes = [*map("".join, documents.parts)]
    _plan(exchange, documents.parts[0], options, task)
    windows: Sequence[LongWindows | None] = [None] * len(wholes)
    if documents.windowed:
        encodings, windows = await exchange.tokenize_whole(
            wholes, truncation, prompt, documents.overlap, documents.place
        )
    else:
        encodings = await _tokenize(exchange, wholes, truncation, prompt, documents.place)

    def view(index: int, encoding: Encoding) -> View:
        parts = documents.parts[index]
        plan = _plan(exchange, parts, options, task)
        try:
            view = plan.view(index, encoding, wholes[index], windows[index])
        except NoTokens as error:
            field = documents.place_part(index, error.number)
            called = documents.called.format(documents.place(index))
            raise _no_tokens(error, field, parts[error.number], called) from None
        size, held = ITEM_BYTES * (1 + len(parts)), view.expected.held_bytes
        expected = Expected(view.expected.arrays, column_bytes=size, held_bytes=held)
        return replace(view, columns={"index": index}, expected=expected)

    return await exchange.answer(exchange.style(precision=options.precision), encodings, view, way_out)


def _plan(exchange: Exchange, parts: Sequence[str], options: EmbedOptions, task: str | None) -> EncodePlan:
    spans = tuple(pairwise(accumulate(map(len, parts), initial=0)))
    return plan_encode(replace(options, outputs=(), chunks=spans), exchange.engine.info, task)


async def _tokenize(
    exchange: Exchange,
    wholes: Sequence[str],
    truncation: Truncation,
    prompt: str,
    place: Callable[[int], str],
) -> list[Encoding]:
    try:
        return await exchange.tokenize(wholes, truncation, prompt, place)
    except InputTooLong as error:
        error.way_out = f"{exchange.cutting} to have it read in windows"
        raise


def _no_tokens(error: NoTokens, field: str, part: str, parts: str) -> Problem:
    """Say what to do about a part in `field` that has no tokens; all parts of the text are called `parts`."""
    if not part:
        detail = f"{field} is empty, so it has no vector: leave it out."
    elif error.reason == "blank":
        detail = f"{field} is only white space, so it has no vector: leave it out."
    elif error.reason == "truncated":
        detail = (
            f"{field} was cut off. {parts} run as one text, and {error.run} of its {error.sent} tokens fit: "
            "send them in several requests."
        )
    else:
        detail = (
            f"No token begins in {field}. {parts} run as one text, and each token belongs to the part with "
            "its first character. Join this part with the previous one."
        )
    return Problem(error.kind, detail, members={"field": field})
