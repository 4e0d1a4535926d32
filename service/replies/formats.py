"""The formats of responses: what each is called, who writes it, and how large its arrays become."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from service.replies import arrays, json_writer, npz, safetensors_file
from service.replies.json_writer import Piece
from service.replies.style import AnswerStyle, Format
from service.tasks.results import Item


@dataclass(frozen=True, slots=True)
class Form:
    """One format: its media type, and what it is, for the documentation of the API."""

    media_type: str
    description: str
    write: Callable[[AnswerStyle, Iterable[Item], int], tuple[int | None, Iterator[Piece]]]
    """Writes items and the number of tokens run; returns the size if it is known, and the pieces."""
    array_bytes: Callable[[AnswerStyle, str, tuple[int, ...]], int]
    """Bounds the bytes of an array with this name and shape."""
    binary: bool = False
    """Whether arrays are written as bytes, not as text."""
    quoted: bool = False
    """Whether the rest of the response is JSON within a JSON string, which escapes quotes and backslashes."""


FORMATS: dict[Format, Form] = {
    "json": Form("application/json", "", json_writer.document, json_writer.array_bytes),
    "npz": Form(
        "application/x-npz",
        "A NumPy archive; `meta` is the rest of the response as JSON.",
        npz.archive,
        arrays.array_bytes,
        binary=True,
    ),
    "safetensors": Form(
        "application/x-safetensors",
        "The rest of the response is in the metadata key `headlight`.",
        safetensors_file.file,
        arrays.array_bytes,
        binary=True,
        quoted=True,
    ),
    "ndjson": Form(
        "application/x-ndjson",
        "One line per item of `data`, then one with `usage`.",
        json_writer.all_lines,
        json_writer.array_bytes,
    ),
}
"""The formats in order of preference."""
