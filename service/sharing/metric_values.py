"""Values of metrics, in memory that the processes of one service share.

Each process writes only its own part, so no lock between processes is needed; every process reads all parts.
A series is found by its name: a worker that replaces another continues its series, and sums stay true.

The memory is anonymous: it is in no file that another program could fill, `/dev/shm` included.
"""

import logging
import mmap
import struct
import threading
from collections.abc import Sequence
from typing import NamedTuple

log = logging.getLogger(__name__)

PART_BYTES = 4 * 2**20
"""The most memory that one process's series take. With one model and all protocols they take a hundredth of
it, and the system gives memory only to pages that are used."""

# A part begins with the number of bytes that its series take. A series is the lengths of its name and of its
# numbers, the name, padding to 8 bytes, and the numbers.
_HEAD_BYTES = 8
_LENGTHS = struct.Struct("=ii")


class Series(NamedTuple):
    """A series of a part, which never moves."""

    name: bytes
    first: int
    """The index of its first number, among the 64-bit words of the part."""


class MetricValues:
    """Parts of `processes` processes, numbered from 0; create it before forking, so that they share it."""

    def __init__(self, processes: int = 1, part_bytes: int = PART_BYTES) -> None:
        memory = memoryview(mmap.mmap(-1, processes * part_bytes))
        self._parts = [memory[i * part_bytes : (i + 1) * part_bytes] for i in range(processes)]

    def part(self, number: int) -> "Part":
        """Return a part for the process that writes it."""
        return Part(self._parts[number], self._parts)


class Part:
    """The values that one process writes, and the parts of all processes to read."""

    def __init__(self, own: memoryview, everyones: Sequence[memoryview]) -> None:
        self.everyones = everyones
        self.lock = threading.Lock()
        """Held by threads of this process while they change a number."""
        self.own = own
        self._numbers = own.cast("d")
        self._used = own.cast("q")
        self._firsts = {series.name: series.first for series in read_series(own)[0]}
        self._full = False

    def numbers(self, name: bytes, count: int) -> "tuple[memoryview[float], int]":
        """Find a series, or add it with `count` zeros; returns memory and where its first number is in it.

        If there is no room for it, no other process sees its numbers, and the log says so once.
        """
        with self.lock:
            if name not in self._firsts and not self._append(name, count):
                return memoryview(bytearray(8 * count)).cast("d"), 0
            return self._numbers, self._firsts[name]

    def _append(self, name: bytes, count: int) -> bool:
        start = _HEAD_BYTES + self._used[0]
        numbers = start + _LENGTHS.size + len(name) + -len(name) % 8
        end = numbers + 8 * count
        if end > len(self.own):
            if not self._full:
                self._full = True
                log.warning(
                    "no room for more series of metrics: %s and later ones are left out of /metrics",
                    name.decode(),
                )
            return False
        # The zeros are written, too: a process that ended here may have left something half written.
        self.own[start:end] = bytes(end - start)
        _LENGTHS.pack_into(self.own, start, len(name), count)
        self.own[start + _LENGTHS.size : start + _LENGTHS.size + len(name)] = name
        self._firsts[name] = numbers // 8
        self._used[0] = end - _HEAD_BYTES  # only now can readers see it
        return True


def read_series(part: memoryview, since: int = 0) -> tuple[list[Series], int]:
    """Return the series of a part, and how many bytes they take.

    `since` is the number of bytes at an earlier call, whose series are left out.
    """
    used = part.cast("q")[0]
    found = []
    at = _HEAD_BYTES + since
    while at < _HEAD_BYTES + used:
        length, count = _LENGTHS.unpack_from(part, at)
        name = bytes(part[at + _LENGTHS.size : at + _LENGTHS.size + length])
        at += _LENGTHS.size + length + -length % 8
        found.append(Series(name, at // 8))
        at += 8 * count
    return found, used
