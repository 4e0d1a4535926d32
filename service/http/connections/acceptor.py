"""Accepts connections, a few at a time, so that a burst of them does not block the event loop."""

import asyncio
import select
import socket
import time
from collections.abc import Callable

# The limits of one turn of the event loop: seconds spent accepting, and connections accepted.
_TURN_S, _MOST = 0.001, 32
# While no file descriptor is free, connections wait in the system's queue, for this many seconds at a time.
_SHORTAGE_S = 0.05

ProtocolFactory = Callable[[], asyncio.Protocol]


class Acceptor:
    """Accepts connections from a listening socket on the event loop, from when it is created until `close`.

    It takes the place of an `asyncio.Server`, which would accept all waiting connections in one go.
    """

    def __init__(self, listener: socket.socket, protocol: ProtocolFactory, backlog: int) -> None:
        listener.setblocking(False)  # noqa: FBT003 - its only argument
        listener.listen(backlog)
        self._listener = listener
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._resumption: asyncio.TimerHandle | None = None
        self._connecting: set[asyncio.Task[None]] = set()
        self._loop.add_reader(listener, self._accept)

    @property
    def waiting(self) -> bool:
        """Whether connections are waiting to be accepted."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        return bool(self._connecting or poll.poll(0))

    def close(self) -> None:
        """Stop accepting; the socket stays open, since other processes may accept from it."""
        if self._resumption is not None:
            self._resumption.cancel()
        self._loop.remove_reader(self._listener)

    async def wait_closed(self) -> None:
        """Do nothing: `close` takes effect at once."""

    def serve(self, connection: socket.socket, protocol: ProtocolFactory) -> None:
        """Serve a connection that was accepted here or elsewhere."""
        task = self._loop.create_task(_connect(self._loop, connection, protocol))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def _accept(self) -> None:
        until = time.perf_counter() + _TURN_S
        for _ in range(_MOST):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no file descriptor or memory is left for it
                self._pause()
                return
            self.serve(connection, self._protocol)
            if time.perf_counter() >= until:
                return

    def _pause(self) -> None:
        self._loop.remove_reader(self._listener)
        self._resumption = self._loop.call_later(
            _SHORTAGE_S, lambda: self._loop.add_reader(self._listener, self._accept)
        )


async def _connect(
    loop: asyncio.AbstractEventLoop, connection: socket.socket, protocol: ProtocolFactory
) -> None:
    try:
        await loop.connect_accepted_socket(protocol, connection)
    except OSError:  # the client has gone
        connection.close()
