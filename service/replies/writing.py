"""Serializes a response with all its items, in any format and content coding."""

from collections.abc import Iterable, Iterator, Sequence

from service.replies import json_writer, npz, safetensors_file
from service.replies.arrays import pack
from service.replies.compression import Encoder
from service.replies.json_arrays import TABLE_DECIMALS
from service.replies.json_writer import Piece
from service.replies.style import AnswerStyle
from service.tasks.results import Item

_FILES = {"npz": npz.archive, "safetensors": safetensors_file.file}
_MANY_VALUES = 3000


def write(style: AnswerStyle, items: Iterable[Item], tokens: int) -> tuple[int | None, Iterator[Piece]]:
    """Serialize a long response: its size if known in advance, and its pieces, produced one at a time."""
    if not style.binary:
        text = json_writer.all_lines if style.format == "ndjson" else json_writer.document
        return None, text(style, items, tokens)
    size, pieces = _FILES[style.format](pack(style, items, tokens))
    return size, json_writer.gathered(pieces)


def write_whole(style: AnswerStyle, items: Iterable[Item], tokens: int) -> bytes:
    """Serialize a short response at once, holding the interpreter lock."""
    if style.format == "ndjson":
        return b"".join(json_writer.all_lines(style, items, tokens))
    if not style.binary:
        items = list(items)
        if uses_table(style, items):
            return b"".join(json_writer.document(style, items, tokens))
        return json_writer.whole(style, items, tokens)
    _, pieces = _FILES[style.format](pack(style, items, tokens))
    return b"".join(pieces)


def uses_table(style: AnswerStyle, items: Sequence[Item]) -> bool:
    """Whether a response has enough probabilities for the lookup table to be faster (three times)."""
    if not style.unit or style.decimals is None or style.decimals > TABLE_DECIMALS:
        return False
    return sum(item.arrays["attention"].size for item in items if "attention" in item.arrays) > _MANY_VALUES


def coded(pieces: Iterable[Piece], encoder: Encoder, *, end: bool) -> Iterator[Piece]:
    """Compress pieces as they arrive; at the end, finish the coding (`end`) or flush it."""
    for piece in pieces:
        if part := encoder.add(piece):
            yield part
    yield encoder.end() if end else encoder.add(b"", flush=True)
