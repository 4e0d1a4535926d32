"""Bodies that were compressed: which codings there are, and what becomes of their bytes."""

from starlette.requests import Request

from service.echo import cut
from service.http.body_limits import too_large
from service.lifecycle import ServiceState
from service.memory_limits import ARRIVING
from service.problems import Problem
from service.replies.decompression import DECODINGS, DamagedError, LargerError, decompress, most_bytes
from service.system.off_loop import off_loop

CODINGS = ("gzip", "deflate")
"""Those that clients know, of requests and of responses."""
INLINE_BYTES = 64 * 1024
"""What is as small is read, and decompressed, on the event loop: in less than a millisecond."""
_NO_CODING = ("", "identity")


def content_coding(request: Request) -> str | None:
    """Return the content coding of a body, None for no coding; raises the 415."""
    coding = request.headers.get("content-encoding", "").strip().lower()
    if coding in _NO_CODING:
        return None
    if coding not in DECODINGS:
        raise Problem(
            "unsupported-media-type",
            f"The Content-Encoding is {cut(coding)}: send the body as gzip or deflate, or uncompressed.",
            headers={"Accept-Encoding": ", ".join(CODINGS)},
            members={"field": "Content-Encoding", "actual": coding, "allowed": [*CODINGS, "identity"]},
        )
    return coding


async def decompressed(request: Request, content: bytes, coding: str) -> bytes:
    """Decompress a body, and charge its memory; raises the 400, the 413 and the 429."""
    state: ServiceState = request.app.state.service
    permit, limit = request.state.context.permit, state.settings.max_body_bytes
    most = ARRIVING * most_bytes(len(content), limit)
    state.memory.take(permit, most)
    try:
        if most <= INLINE_BYTES:
            body = decompress(content, coding, limit)
        else:
            body = await off_loop(decompress, content, coding, limit)
    except LargerError:
        raise too_large(limit + 1, limit) from None
    except DamagedError as error:
        raise Problem(
            "malformed-json", f"The body is not valid {coding}: {error}.", members={"field": "body"}
        ) from None
    state.memory.release_part(permit, most - ARRIVING * len(body))
    permit.body_bytes = len(body)
    return body
