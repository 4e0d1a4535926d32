"""What one process publishes, forked ones read whole."""

import os
import signal
import time

from service.sharing.published import Published

SIZE = 300_000


def test_the_last_edition_is_read_after_a_fork() -> None:
    """Nothing at first, then what was published last, however long the one before was."""
    published = Published(10)
    assert published.read() == (0, b"")
    for number, content in enumerate((b"long", b"0123456789", b"", b"x"), 1):
        published.publish(content)
        assert published.edition == number
        assert published.read() == (number, content)


def test_a_reader_never_sees_parts_of_two_editions() -> None:
    """While another process publishes without a pause, each content is one of those that it wrote."""
    published = Published(SIZE)
    if not (writer := os.fork()):
        number = 0
        while True:
            number += 1
            published.publish(bytes([number % 256]) * (SIZE - number % 7))
    try:
        begun, editions = time.monotonic(), set[int]()
        while (took := time.monotonic() - begun) < 1 or (len(editions) <= 3 and took < 20):
            edition, content = published.read()
            editions.add(edition)
            if edition:
                assert set(content) == {edition % 256}
                assert len(content) == SIZE - edition % 7
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
    assert len(editions) > 3


def test_a_reader_that_was_overtaken_reads_again() -> None:
    """Where the writer goes around twice between two steps of a reader, what is read is its last edition."""
    published = Published(10)
    published.publish(b"first")
    memory = published._memory

    class Overtaken:
        def __getitem__(self, part: slice) -> bytes:
            published._memory = memory
            published.publish(b"second")
            published.publish(b"third")
            return memory[part]

    published._memory = Overtaken()  # type: ignore[assignment]
    assert published.read() == (3, b"third")
