"""Sends the head of a response together with the first bytes of its body."""

import asyncio
from typing import Protocol


class Responding(Protocol):
    """The part of uvicorn's request-response cycle that is used here."""

    response_started: bool


class JoinedWrites:
    """What one response is written to: the transport of its connection, but its head waits for its body.

    uvicorn writes head and body one after the other; the client would be woken by each. A head without a body
    in the same iteration of the event loop, as that of a stream, goes out by itself at its end.
    """

    def __init__(self, response: Responding, transport: asyncio.Transport) -> None:
        self._response = response
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._head: bytes | None = None
        self._head_seen = False
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Write bytes: the first ones of the response, its head, only with the next ones.

        What is written before the response starts is `100 Continue`, which is sent at once.
        """
        if self._head is not None:
            head, self._head = self._head, None
            self._transport.writelines((head, data))
        elif self._head_seen or not self._response.response_started:
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
