"""Spreads connections over workers: connections that send requests move to workers that have fewer.

All workers accept from one socket, and whichever is quickest gets a connection, which its client may then
keep for hours. So that no worker is busy while others idle, a connection may move between two requests: its
file descriptor is sent to a sibling, which serves the next request on it. The client notices nothing.
"""

import os
import socket
import time
from collections.abc import Sequence

from service.sharing.metric_values import MetricValues
from service.sharing.published import Published
from service.sharing.scoreboard import CONNECTIONS, HEARTBEAT, Counters

# A sibling whose event loop has not run for this long gets no connections: it beats every tenth of a second.
_ALIVE_NS = 500_000_000
# At most this many are received at once; more wait in the channel.
_MOST = 64


class Channel:
    """Carries connections to one worker; all processes hold both ends, so it outlives a worker's death."""

    def __init__(self) -> None:
        self.entrance, self.exit = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self.entrance, self.exit):
            end.settimeout(0)

    def send(self, connection: socket.socket) -> bool:
        """Send a connection; False if the channel is full."""
        try:
            socket.send_fds(self.entrance, [b"c"], [connection.fileno()])
        except OSError:
            return False
        return True

    def receive(self) -> list[socket.socket]:
        """Return the connections that have arrived."""
        arrived: list[socket.socket] = []
        while len(arrived) < _MOST:
            try:
                # Without a free file descriptor the system would close the connection that arrives.
                os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
                _, numbers, _, _ = socket.recv_fds(self.exit, 16, 1)
            except OSError:  # nothing left, or no file descriptor
                break
            if not numbers:
                break
            arrived += [socket.socket(fileno=number) for number in numbers]
        return arrived


class Siblings:
    """One worker among its siblings: how many connections each serves, and where some should go."""

    def __init__(
        self,
        counters: Counters,
        channels: Sequence[Channel],
        values: MetricValues,
        keys: Published | None = None,
    ) -> None:
        self.counters = counters
        self.channels = channels
        self.metrics = values.part(counters.slot)
        """Where this process keeps the values of its metrics."""
        self.keys = keys
        """The digests of the key file's keys, None without one; the supervisor publishes them."""

    @property
    def channel(self) -> Channel:
        """The channel to this worker."""
        return self.channels[self.counters.slot]

    def surplus(self, active: int) -> list[int]:
        """Publish how many connections are active here; returns the siblings to which some should move.

        A sibling is listed once for each connection. Once all workers have followed this, none has more than
        the mean, rounded up. Two that choose the same sibling may overshoot; the next call corrects that.
        """
        self.counters.own[CONNECTIONS] = active
        alive_since = time.monotonic_ns() - _ALIVE_NS
        slots = [slot for slot in range(self.counters.processes) if slot != self.counters.slot]
        others = {
            slot: other[CONNECTIONS]
            for slot, other in zip(slots, self.counters.others, strict=True)
            if other[HEARTBEAT] > alive_since
        }
        mean = -(-(active + sum(others.values())) // (len(others) + 1))
        gaps = {slot: mean - number for slot, number in others.items() if number < mean}
        chosen: list[int] = []
        while len(chosen) < active - mean and any(gaps.values()):
            widest = max(gaps, key=lambda slot: gaps[slot])
            gaps[widest] -= 1
            chosen.append(widest)
        return chosen
