"""Accepts connections, a few at a time: however many arrive at once, the event loop does not stand still."""

import asyncio
import select
import socket
import time
from collections.abc import Callable

# In one turn of the event loop it accepts for this time in seconds, and this number of connections, at most.
_TURN_S, _MOST = 0.001, 32
# Without a free file descriptor, connections wait this long in the system's queue.
_SHORTAGE_S = 0.05

ProtocolFactory = Callable[[], asyncio.Protocol]


class Acceptor:
    """Accepts from a listening socket, from its creation on the event loop until `close`.

    It takes the place of an `asyncio.Server`, which would accept all connections that wait in one go.
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
        """Whether connections wait to be accepted."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        return bool(self._connecting or poll.poll(0))

    def close(self) -> None:
        """Accept no more. The socket stays open: other processes may accept from it."""
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
