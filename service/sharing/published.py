"""Bytes that one process publishes for those forked from it, all or nothing."""

import mmap
import zlib

# The edition in force, then the size and the checksum of each half.
_HEAD_BYTES = 8 * 5


class Published:
    """At most `most_bytes` bytes in memory that forked processes share: one process writes, all read.

    There are two halves: the writer fills the one that is not in force, and then puts it in force by one
    aligned 64-bit write. So a reader never sees a mixture of two editions, and reading one number tells it
    whether anything has changed. Pages never written take no memory. Create it before the fork.
    """

    def __init__(self, most_bytes: int) -> None:
        self._half_bytes = most_bytes
        self._memory = mmap.mmap(-1, _HEAD_BYTES + 2 * most_bytes)
        self._numbers = memoryview(self._memory)[:_HEAD_BYTES].cast("q")

    @property
    def edition(self) -> int:
        """How many times something has been published."""
        return self._numbers[0]

    def publish(self, content: bytes) -> None:
        """Have all processes read this content from now on."""
        edition = self.edition + 1
        number, start = self._half(edition)
        self._memory[start : start + len(content)] = content
        self._numbers[number], self._numbers[number + 1] = len(content), zlib.crc32(content)
        self._numbers[0] = edition

    def read(self) -> tuple[int, bytes]:
        """Return the edition in force, and its content; empty before the first."""
        while True:
            edition = self.edition
            number, start = self._half(edition)
            size, checksum = self._numbers[number], self._numbers[number + 1]
            content = self._memory[start : start + size]
            # If not, the writer may have begun with this half again, or its writes came in another order.
            if self.edition == edition and zlib.crc32(content) == checksum:
                return edition, content

    def _half(self, edition: int) -> tuple[int, int]:
        """Return where a half's size is in the numbers, and where its content begins."""
        half = edition % 2
        return 1 + 2 * half, _HEAD_BYTES + half * self._half_bytes
