"""Serializes a response with all its items, in any format and content coding."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from service.replies.compression import Encoder
from service.replies.formats import FORMATS
from service.replies.json_writer import Piece, gathered
from service.replies.style import AnswerStyle
from service.tasks.results import Item

# For more values than this, the table of formatted probabilities is faster (three times).
_MANY_VALUES = 3000


def write(
    style: AnswerStyle, items: Iterable[Item], tokens: int, *, whole: bool = False
) -> tuple[int | None, Iterator[Piece]]:
    """Serialize a response; returns its size if known in advance, and its pieces, produced one at a time.

    The pieces of a short response, which is sent as a `whole`, are not joined into larger ones.
    """
    if whole and style.decimals is not None and style.format == "json":
        items = list(items)
        values = sum(item.arrays["attention"].size for item in items if "attention" in item.arrays)
        style = replace(style, unit=style.unit and values > _MANY_VALUES)
    size, pieces = FORMATS[style.format].write(style, items, tokens)
    return size, pieces if whole else gathered(pieces)


def coded(pieces: Iterable[Piece], encoder: Encoder, *, end: bool) -> Iterator[Piece]:
    """Compress pieces as they arrive; then finish the coding, if `end`, or flush it."""
    for piece in pieces:
        if part := encoder.add(piece):
            yield part
    yield encoder.end() if end else encoder.flush()
