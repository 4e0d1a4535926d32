"""A NumPy archive: a ZIP file of uncompressed members (APPNOTE.TXT 6.3, with ZIP64 if needed).

The size is known before the first byte. A member's checksum precedes its data, so arrays are read and
converted twice: ZIP allows the checksum after the data, but not every reader supports that.
"""

import io
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from isal.isal_zlib import crc32  # eight times faster than zlib's

from service.replies.arrays import Stored, pack
from service.replies.json_writer import Piece
from service.replies.style import AnswerStyle
from service.tasks.results import Item

META = "meta"
"""The member with the rest of the response."""

# Sizes, offsets and counts that reach these limits are written in ZIP64's own fields; the ordinary fields
# then hold the limits as markers.
LIMIT = _SEE_64 = 0xFFFFFFFF
COUNT_LIMIT = _SEE_64_COUNT = 0xFFFF
_VERSION, _VERSION_64 = 20, 45
_UNIX = 3 << 8
_MODE = 0o100600 << 16
_MIDNIGHT_1980 = 0x00210000  # not the current time: equal responses are equal bytes


@dataclass(frozen=True, slots=True)
class _Entry:
    """One member of the archive: `head` is NumPy's header, included in `size`."""

    name: bytes
    head: bytes
    size: int

    @classmethod
    def of(cls, stored: Stored) -> "_Entry":
        head = io.BytesIO()
        description = {
            "descr": np.lib.format.dtype_to_descr(stored.dtype),
            "fortran_order": False,
            "shape": stored.array.shape,
        }
        np.lib.format.write_array_header_1_0(head, description)
        return cls(f"{stored.name}.npy".encode(), head.getvalue(), len(head.getvalue()) + stored.size)

    @property
    def large(self) -> bool:
        return self.size >= LIMIT

    def local(self, checksum: int) -> bytes:
        """Write the member's local header."""
        size = _SEE_64 if self.large else self.size
        extra = struct.pack("<2H2Q", 1, 16, self.size, self.size) if self.large else b""
        version = _VERSION_64 if self.large else _VERSION
        fixed = (version, 0, 0, _MIDNIGHT_1980, checksum, size, size, len(self.name), len(extra))
        return struct.pack("<4s3H4I2H", b"PK\x03\x04", *fixed) + self.name + extra

    def central(self, checksum: int, offset: int) -> bytes:
        """Write the member's entry in the central directory."""
        size = _SEE_64 if self.large else self.size
        long = [self.size] * 2 * self.large + [offset] * (offset >= LIMIT)
        extra = struct.pack(f"<2H{len(long)}Q", 1, 8 * len(long), *long) if long else b""
        version = _VERSION_64 if long else _VERSION
        fixed = (_UNIX | version, version, 0, 0, _MIDNIGHT_1980, checksum, size, size)
        place = _SEE_64 if offset >= LIMIT else offset
        lengths = (len(self.name), len(extra), 0, 0, 0, _MODE, place)
        return struct.pack("<4s4H4I5H2I", b"PK\x01\x02", *fixed, *lengths) + self.name + extra


def archive(style: AnswerStyle, items: Iterable[Item], tokens: int) -> tuple[int, Iterator[Piece]]:
    """Serialize an archive of the arrays in order, followed by the rest as the uint8 array `meta`.

    Returns the archive's size and its pieces.
    """
    packed = pack(style, items, tokens)
    meta = np.frombuffer(packed.meta, np.uint8)
    parts = [(_Entry.of(stored), stored) for stored in (*packed.arrays, Stored(META, meta, meta.dtype))]
    return _size([entry for entry, _ in parts]), _pieces(parts)


def _size(entries: Sequence[_Entry]) -> int:
    offset = directory = 0
    for entry in entries:
        directory += len(entry.central(0, offset))
        offset += len(entry.local(0)) + entry.size
    return offset + directory + len(_end(len(entries), directory, offset))


def _pieces(parts: Sequence[tuple[_Entry, Stored]]) -> Iterator[Piece]:
    directory, offset = [], 0
    for entry, stored in parts:
        checksum = crc32(entry.head)
        for piece in stored.pieces():
            checksum = crc32(piece, checksum)
        directory.append(entry.central(checksum, offset))
        local = entry.local(checksum)
        yield local + entry.head
        yield from stored.pieces()
        offset += len(local) + entry.size
    lines = b"".join(directory)
    yield lines + _end(len(directory), len(lines), offset)


def _end(count: int, size: int, offset: int) -> bytes:
    """Write the end record: the directory has `count` entries and `size` bytes, and starts at `offset`."""
    short = (0, 0, count, count, size, offset, 0)
    long = b""
    if count >= COUNT_LIMIT or size >= LIMIT or offset >= LIMIT:
        fixed = (44, _VERSION_64, _VERSION_64, 0, 0, count, count, size, offset)
        long = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", *fixed)
        long += struct.pack("<4sIQI", b"PK\x06\x07", 0, offset + size, 1)
        short = (0, 0, _SEE_64_COUNT, _SEE_64_COUNT, _SEE_64, _SEE_64, 0)
    return long + struct.pack("<4s4H2IH", b"PK\x05\x06", *short)
