"""A safetensors file: a header in JSON, followed by the tensors end to end.

The format allows no gaps (github.com/huggingface/safetensors, "Format"). With the largest types first, every
tensor is aligned to its own type.
"""

import struct
from collections.abc import Iterator, Sequence

import orjson

from service.replies.arrays import Member, Packed, cut
from service.replies.json_writer import Piece

METADATA_KEY = "headlight"
"""The metadata key that holds the rest of the response."""

_TYPES = {"float32": "F32", "float16": "F16", "int32": "I32", "int8": "I8", "uint8": "U8"}
_ALIGNMENT = 8


def file(packed: Packed) -> tuple[int, Iterator[Piece]]:
    """Serialize a file; returns its size and its pieces."""
    head = _head(packed.members, packed.meta)
    return len(head) + sum(member.size for member in packed.members), _pieces(packed, head)


def _pieces(packed: Packed, head: bytes) -> Iterator[Piece]:
    yield from cut(head)
    for stored in sorted(packed.arrays, key=lambda stored: -stored.member.dtype.itemsize):
        yield from stored.pieces()


def _head(members: Sequence[Member], meta: bytes) -> bytes:
    header: dict[str, object] = {"__metadata__": {METADATA_KEY: meta.decode()}}
    offset = 0
    for member in sorted(members, key=lambda member: -member.dtype.itemsize):
        end = offset + member.size
        dtype = _TYPES[member.dtype.name]
        header[member.name] = {"dtype": dtype, "shape": member.shape, "data_offsets": (offset, end)}
        offset = end
    text = orjson.dumps(header)
    text += b" " * (-len(text) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text
