"""Content codings of responses: zstd, gzip and deflate, at a level that costs little more than sending."""

import gzip
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

from isal import isal_zlib
from werkzeug.datastructures import Accept
from werkzeug.http import parse_accept_header

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODINGS = ("zstd", "gzip")
"""The codings to choose from, in order of preference, unless a protocol's clients know others."""
MIN_BYTES = 16 * 1024
"""Smaller responses are sent uncompressed."""

_LEVEL = 1
_BEST_ZSTD = 12
_WINDOWS = {"gzip": 16 + 15, "deflate": 15}


class Encoder(NamedTuple):
    """Compresses one response; its calls release the interpreter lock for large pieces."""

    add: Callable[[bytes | memoryview], bytes]
    """Compresses a piece."""
    flush: Callable[[], bytes]
    """Returns the bytes that are still needed to decompress everything so far."""
    end: Callable[[], bytes]
    """Returns the end of the compressed response."""


def encoder(coding: str) -> Encoder:
    """Create an encoder for `zstd` (RFC 8878), `gzip` (RFC 1952), or `deflate`, zlib's (RFC 1950)."""
    if coding == "zstd":
        frame = zstd.ZstdCompressor(level=_LEVEL)
        return Encoder(frame.compress, partial(frame.flush, zstd.ZstdCompressor.FLUSH_BLOCK), frame.flush)
    # ISA-L is seven times faster than zlib.
    member = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _WINDOWS[coding])
    return Encoder(member.compress, partial(member.flush, isal_zlib.Z_SYNC_FLUSH), member.flush)


@lru_cache(maxsize=256)
def choose_coding(accept_encoding: str, codings: tuple[str, ...] = CODINGS) -> str | None:
    """Choose from an Accept-Encoding header (RFC 9110 §12.5.3), None for no coding.

    The largest q-value wins, then the order of `codings`; `identity` wins only with a larger q-value. If
    none is allowed, an uncoded response is better than an error.
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
    """Compress content that is sent many times with one of the CODINGS, to fewer bytes than an encoder."""
    if coding == "zstd":
        return zstd.compress(content, level=_BEST_ZSTD)
    return gzip.compress(content, mtime=0)
