"""Reads a SentencePiece model: a file in protocol buffers' wire format, of which few fields matter here.

The fields are those of sentencepiece_model.proto in google/sentencepiece.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model.errors import CheckpointError
from model.files import read_bytes, reason

_BYTES = 16 * 2**20
"""The largest file that is read; those of 250,000 pieces have 5 MB."""
_MOST_PIECES = 2**21
_LONGEST_PIECE = 128
_LONGEST_REPLACEMENT = 32
"""How many characters one may be replaced with; in published files, up to 18."""
_UNIGRAM = 1
CONTROL, USER_DEFINED = 3, 4
"""Kinds of pieces that are found in texts before all others."""
_VARINT, _LONG, _BYTES_FIELD, _SHORT = 0, 1, 2, 5


@dataclass(frozen=True)
class Piece:
    """A token, the logarithm of its probability, and its kind."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePiece:
    """A unigram model: its pieces in the order of their ids, and its map of characters, b"" if none."""

    pieces: tuple[Piece, ...]
    unknown: int
    characters: bytes


def read_sentencepiece(path: Path) -> SentencePiece | None:
    """Read a SentencePiece file; None if it is not a plain unigram model. Raises CheckpointError."""
    content = read_bytes(path, _BYTES)
    try:
        return _model(content)
    except (ValueError, struct.error, IndexError, TypeError) as error:
        raise CheckpointError(
            f"{path} cannot be read as a SentencePiece model: {reason(error)}; replace it with the model's "
            "own file."
        ) from error


def longest_replacement(characters: bytes) -> int:
    """Return the most characters that a map of characters replaces one with, or 1 if it replaces none.

    A map consists of the size of its index in four bytes, the index, and the replacements, ended by zeros.
    """
    (size,) = struct.unpack("<I", characters[:4].ljust(4, b"\0"))
    replacements = characters[4 + size :].split(b"\0")
    return max(1, *(len(replacement.decode(errors="replace")) for replacement in replacements))


def _model(content: bytes) -> SentencePiece | None:
    pieces: list[Piece] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, value in _fields(content):
        if number == 1:
            fields = dict(_fields(_data(value)))
            (score,) = struct.unpack("<f", _data(fields.get(2, bytes(4))))
            pieces.append(Piece(_data(fields.get(1, b"")).decode(), score, _whole(fields.get(3, 1))))
        elif number == 2:
            trainer |= dict(_fields(_data(value)))
        elif number == 3:
            normalizer |= dict(_fields(_data(value)))
        if len(pieces) > _MOST_PIECES:
            raise ValueError(f"it has more than {_MOST_PIECES} pieces")
        if pieces and (length := len(pieces[-1].text)) > _LONGEST_PIECE:
            raise ValueError(f"a piece has {length} characters; the limit is {_LONGEST_PIECE}")
    if not pieces:
        raise ValueError("it has no pieces")
    plain = trainer.get(3, _UNIGRAM) == _UNIGRAM and not trainer.get(35, 0) and not trainer.get(24, 0)
    if not plain:  # another algorithm, unknown characters as bytes, or spaces after words
        return None
    characters = _data(normalizer.get(2, b""))
    if (length := longest_replacement(characters)) > _LONGEST_REPLACEMENT:
        raise ValueError(f"it replaces a character with {length}; the limit is {_LONGEST_REPLACEMENT}")
    return SentencePiece(tuple(pieces), _whole(trainer.get(40, 0)), characters)


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(content, at)
            yield key >> 3, value
            continue
        if kind == _BYTES_FIELD:
            size, at = _varint(content, at)
        elif kind in (_SHORT, _LONG):
            size = 4 if kind == _SHORT else 8
        else:
            raise ValueError(f"a field is of the kind {kind}")
        if at + size > len(content):
            raise ValueError("it ends within a field")
        yield key >> 3, content[at : at + size]
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    raise ValueError("a number has more than ten bytes")


def _data(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("a number stands in the place of text")
    return value


def _whole(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise TypeError("text stands in the place of a number")
    return value
