"""Files that are read, compressed and hashed once, and sent many times."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from service.http.negotiation import is_short, listed
from service.http.streaming_response import WholeResponse
from service.replies.compression import CODINGS, choose_coding, compress

T = TypeVar("T")

HTML = "text/html; charset=utf-8"
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file as it is sent: its media type, and its bytes by content coding, where None means uncoded."""

    media_type: str
    bodies: Mapping[str | None, bytes]
    tag: str
    """Its entity tag: weak, because it is the same for every content coding."""
    headers: Mapping[str, str]

    @classmethod
    def of(cls, content: bytes, media_type: str, headers: Mapping[str, str]) -> "StaticFile":
        """Compress content with each coding, which takes a while for large files."""
        bodies = {None: content} | {coding: compress(content, coding) for coding in CODINGS}
        tag = f'W/"{digest(content)}"'
        return cls(media_type, bodies, tag, {**headers, "Vary": "Accept-Encoding", "ETag": tag})

    def response(self, request: Request) -> Response:
        """Build the response in the coding that the client prefers, or the 304 if it has the file."""
        if _has(request, self.tag):
            return Response(status_code=304, headers=self.headers)
        accepted = listed(request, b"accept-encoding")
        coding = choose_coding(accepted) if is_short(accepted) else None
        coded = {} if coding is None else {"Content-Encoding": coding}
        return WholeResponse(self.bodies[coding], 200, {**self.headers, **coded}, self.media_type)


class Once(Generic[T]):
    """A value that is made in a thread when it is first needed, and kept."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return the value; raises what making it raised, and the next call tries again."""
        if self._made is None or (self._made.done() and self._made.exception() is not None):
            self._made = asyncio.create_task(asyncio.to_thread(self._make))
        return await asyncio.shield(self._made)


def digest(content: bytes) -> str:
    """Name content by the first digits of its SHA-256."""
    return sha256(content).hexdigest()[:_DIGITS]


def _has(request: Request, tag: str) -> bool:
    """Compare the tags in If-None-Match weakly (RFC 9110 §13.1.2); a very long list matches nothing."""
    given = listed(request, b"if-none-match")
    if not given or not is_short(given):
        return False
    tags = {one.strip().removeprefix("W/") for one in given.split(",")}
    return "*" in tags or tag.removeprefix("W/") in tags
