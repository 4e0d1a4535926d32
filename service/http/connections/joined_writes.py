"""Sends the head of a response together with the first bytes of its body."""

import asyncio

# An interim response, which uvicorn writes for `Expect: 100-continue`.
_CONTINUE = b"HTTP/1.1 100 "


class JoinedWrites:
    """What the responses of one connection are written to: its transport, but a head waits for its body.

    uvicorn writes head and body one after the other; the client would be woken by each. A head without a body
    in the same iteration of the event loop, as that of a stream, goes out by itself at its end.

    It knows no response: a cycle of references would keep each request in memory until a garbage collection.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._head: bytes | None = None
        self._head_seen = False
        self.is_closing = transport.is_closing

    def begin(self) -> None:
        """Begin a response: the next bytes are its head."""
        self._head_seen = False

    def write(self, data: bytes) -> None:
        """Write bytes of a response: those of its head only with the next ones."""
        if self._head is not None:
            head, self._head = self._head, None
            self._transport.writelines((head, data))
        elif self._head_seen or data.startswith(_CONTINUE):
            self._transport.write(data)
        else:
            self._head, self._head_seen = data, True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send the head if it still waits."""
        if self._head is not None:
            head, self._head = self._head, None
            self._transport.write(head)

    def close(self) -> None:
        """Close the connection once everything has been sent."""
        self.flush()
        self._transport.close()
