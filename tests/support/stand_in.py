"""A server that answers what a test tells it to: refusals, resets and archives."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headlight_client import AttentionMaps, Encoded
from tests.support.serving import Json

PROBLEM = {
    "type": "urn:headlight:overloaded",
    "title": "The service is overloaded",
    "status": 429,
    "detail": "Wait.",
}


@dataclass
class Reply:
    """One answer. `pieces` go out one by one, the later ones when `gate` is open; `reset` says nothing."""

    status: int = 200
    pieces: Sequence[bytes] = ()
    headers: dict[str, str] = field(default_factory=dict)
    gate: threading.Event | None = None
    length: int | None = None
    after_s: float = 0.0
    reset: bool = False


@dataclass
class Received:
    """One request, and when it came, in seconds."""

    path: str
    headers: dict[str, str]
    body: Json
    at: float


Answering = Reply | Callable[[Received], Reply]
"""An answer, or what makes one of a request."""


@dataclass
class StandIn:
    """Answers with `replies` in their order, the last one for ever, and GET with `gets`, by path."""

    port: int
    replies: list[Answering]
    gets: Mapping[str, Answering]
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def stand_in(
    *replies: Answering, port: int = 0, gets: Mapping[str, Answering] | None = None
) -> Iterator[StandIn]:
    """Listen on the loopback as long as the test runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.answer(body, played.replies.pop(0) if len(played.replies) > 1 else played.replies[0])

        def do_GET(self) -> None:
            self.answer({}, played.gets.get(self.path, refused(404)))

        def answer(self, body: Json, reply: Answering) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            received = Received(self.path, headers, body, time.monotonic())
            played.received.append(received)
            send(self, reply if isinstance(reply, Reply) else reply(received))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        played = StandIn(server.server_address[1], list(replies), gets or {})
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield played
        finally:
            server.shutdown()
            thread.join()


def send(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    """Give one answer."""
    time.sleep(reply.after_s)
    if reply.reset:
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()
        handler.close_connection = True
        return
    length = sum(map(len, reply.pieces)) if reply.length is None else reply.length
    try:
        handler.send_response(reply.status)
        usual = {"Content-Length": str(length), "Connection": "close"}
        for name, value in (usual | reply.headers).items():
            handler.send_header(name, value)
        handler.end_headers()
        for i, piece in enumerate(reply.pieces):
            if i and reply.gate is not None:
                reply.gate.wait(20)
            handler.wfile.write(piece)
            handler.wfile.flush()
    except OSError:
        pass  # the client has gone, as some tests have it


def refused(status: int, members: Json | None = None, **headers: str) -> Reply:
    """A problem document; `Retry_After` is the header Retry-After."""
    document = json.dumps(PROBLEM | {"status": status} | (members or {})).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, [document], {"Content-Type": "application/problem+json"} | named)


def assert_columns(item: Encoded | AttentionMaps, shown: Json) -> None:
    """Check that an item has the columns of an answer, typed."""
    assert (item.index, item.tokens, item.word_ids) == (shown["index"], shown["tokens"], shown["word_ids"])
    assert (item.truncated, item.original_length) == (shown["truncated"], shown["original_length"])
    for name, dtype in {
        "token_ids": "int64",
        "offsets": "int64",
        "segment_ids": "int64",
        "special": "bool",
    }.items():
        column = getattr(item, name)
        assert column.dtype == dtype
        assert column.tolist() == shown[name]
