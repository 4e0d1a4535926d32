"""A safetensors file: a header in JSON, followed by the tensors end to end.

The format allows no gaps (github.com/huggingface/safetensors, "Format"). With the largest types first, every
tensor is aligned to its own type.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import orjson

from service.replies.arrays import Stored, cut, pack
from service.replies.json_writer import Piece
from service.replies.style import AnswerStyle
from service.tasks.results import Item

METADATA_KEY = "headlight"
"""The metadata key that holds the rest of the response."""

_TYPES = {"float32": "F32", "float16": "F16", "int32": "I32", "int8": "I8", "uint8": "U8"}
_ALIGNMENT = 8


def file(style: AnswerStyle, items: Iterable[Item], tokens: int) -> tuple[int, Iterator[Piece]]:
    """Serialize a file; returns its size and its pieces."""
    packed = pack(style, items, tokens)
    arrays = sorted(packed.arrays, key=lambda stored: -stored.dtype.itemsize)
    head = _head(arrays, packed.meta)
    pieces = chain(cut(head), chain.from_iterable(stored.pieces() for stored in arrays))
    return len(head) + sum(stored.size for stored in arrays), pieces


def _head(arrays: Sequence[Stored], meta: bytes) -> bytes:
    header: dict[str, object] = {"__metadata__": {METADATA_KEY: meta.decode()}}
    offset = 0
    for stored in arrays:
        end = offset + stored.size
        dtype = _TYPES[stored.dtype.name]
        header[stored.name] = {"dtype": dtype, "shape": stored.array.shape, "data_offsets": (offset, end)}
        offset = end
    text = orjson.dumps(header)
    text += b" " * (-len(text) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text
