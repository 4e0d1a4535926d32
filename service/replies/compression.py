"""Content codings of responses: zstd, gzip and deflate, at a level that costs little more than sending."""

import gzip
import sys
from collections.abc import Callable
from functools import lru_cache

from isal import isal_zlib
from werkzeug.datastructures import Accept
from werkzeug.http import parse_accept_header

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODINGS = ("zstd", "gzip")
"""The codings that are chosen from, in order of preference, unless a protocol's clients know others."""
MIN_BYTES = 16 * 1024
"""Smaller responses are sent uncompressed."""

_LEVEL = 1
_BEST_ZSTD = 12
_ZLIB_WINDOW = 15
_GZIP_WINDOW = 16 + _ZLIB_WINDOW


class Zstd:
    """Zstandard (RFC 8878)."""

    def __init__(self) -> None:
        self._frame = zstd.ZstdCompressor(level=_LEVEL)

    def add(self, piece: bytes | memoryview, *, flush: bool = False) -> bytes:
        """Compress a piece; with `flush`, all so far can be decompressed from the output so far."""
        if flush:
            return self._frame.compress(piece, zstd.ZstdCompressor.FLUSH_BLOCK)
        return self._frame.compress(piece)

    def end(self) -> bytes:
        """End the frame."""
        return self._frame.flush()


class Gzip:
    """gzip (RFC 1952) by ISA-L, seven times faster than zlib."""

    window = _GZIP_WINDOW

    def __init__(self) -> None:
        self._member = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, self.window)

    def add(self, piece: bytes | memoryview, *, flush: bool = False) -> bytes:
        """Code a piece."""
        coded = self._member.compress(piece)
        return coded + self._member.flush(isal_zlib.Z_SYNC_FLUSH) if flush else coded

    def end(self) -> bytes:
        """End the member."""
        return self._member.flush()


class Deflate(Gzip):
    """The same in the frame that HTTP calls deflate: zlib's (RFC 1950)."""

    window = _ZLIB_WINDOW


Encoder = Zstd | Gzip
"""Compresses one response; its calls release the interpreter lock for large pieces."""
_ENCODERS: dict[str, Callable[[], Encoder]] = {"zstd": Zstd, "gzip": Gzip, "deflate": Deflate}


def encoder(coding: str) -> Encoder:
    """Create an encoder for `zstd`, `gzip` or `deflate`."""
    return _ENCODERS[coding]()


@lru_cache(maxsize=256)
def choose_coding(accept_encoding: str, codings: tuple[str, ...] = CODINGS) -> str | None:
    """Choose from an Accept-Encoding header (RFC 9110 §12.5.3), None for no coding.

    The largest q-value wins, then the order of `codings`; no coding wins only with a larger q-value. If none
    of them is allowed, an uncoded response is better than an error.
    """
    qualities: dict[str, float] = {}
    for coding, quality in parse_accept_header(accept_encoding, Accept):
        name = coding.strip().lower().removeprefix("x-")
        qualities[name] = max(quality, qualities.get(name, 0.0))
    others = qualities.get("*", 0.0)
    best = max(codings, key=lambda coding: qualities.get(coding, others))
    quality = qualities.get(best, others)
    return best if quality > 0 and quality >= qualities.get("identity", 0.0) else None


def compress(content: bytes, coding: str) -> bytes:
    """Compress what is sent many times, with one of the CODINGS, smaller than an encoder would."""
    if coding == "zstd":
        return zstd.compress(content, level=_BEST_ZSTD)
    return gzip.compress(content, mtime=0)
