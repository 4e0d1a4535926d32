"""Decompresses request bodies, within a limit: a small body may stand for gigabytes."""

import zlib

_ZLIB_WINDOW = 15
DECODINGS = {"gzip": 16 + _ZLIB_WINDOW, "x-gzip": 16 + _ZLIB_WINDOW, "deflate": _ZLIB_WINDOW}
"""The known codings: gzip (RFC 1952) and what HTTP calls deflate, zlib's (RFC 1950)."""
# Deflate encodes up to 258 bytes in two bits.
_MOST_GROWTH = 1032


class DamagedError(Exception):
    """A body is invalid in its coding, is cut short, or has bytes after its end."""


class LargerError(Exception):
    """A body has more bytes than the limit."""


def most_bytes(size: int, limit: int) -> int:
    """Bound the bytes that `decompress` returns for a body of `size` bytes."""
    return min(_MOST_GROWTH * size, limit)


def decompress(content: bytes, coding: str, limit: int) -> bytes:
    """Decompress a whole body; releases the interpreter lock.

    Raises DamagedError, and LargerError as soon as there are more than `limit` bytes.
    """
    decoder = zlib.decompressobj(DECODINGS[coding])
    try:
        body = decoder.decompress(content, limit + 1)
    except zlib.error as error:
        raise DamagedError(str(error)) from None
    if len(body) > limit:
        raise LargerError
    if not decoder.eof:
        raise DamagedError("its end is missing")
    if decoder.unused_data:
        raise DamagedError("bytes follow its end")
    return body
