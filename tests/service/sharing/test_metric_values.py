"""Values of metrics in memory that processes share."""

import logging
import os
import signal
import struct

import pytest

from service.sharing.metric_values import MetricValues, Part, read_series


def add(part: Part, name: bytes, amount: float, count: int = 1) -> None:
    """Add an amount to the first number of a series."""
    numbers, first = part.numbers(name, count)
    numbers[first] += amount


def written(part: memoryview) -> dict[bytes, float]:
    """The first number of each series."""
    return {series.name: part.cast("d")[series.first] for series in read_series(part)[0]}


def test_each_process_writes_its_part_and_reads_all() -> None:
    """What a forked process counts is read in another one, and in no other part."""
    values = MetricValues(2)
    if not (pid := os.fork()):
        add(values.part(1), b"name", 7)
        os._exit(0)
    os.waitpid(pid, 0)
    first, second = values.part(0).everyones
    assert written(first) == {}
    assert written(second) == {b"name": 7}


def test_a_successor_continues_the_series() -> None:
    """Also where its predecessor was killed; names of all lengths stay apart."""
    values = MetricValues(1)
    names = [b"n" * length for length in range(1, 20)]
    for round_ in range(1, 4):
        if not (pid := os.fork()):
            part = values.part(0)
            for i, name in enumerate(names):
                add(part, name, i, count=1 + i % 3)
            add(part, b"only in round %d" % round_, 1)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        expected = {name: float(i * round_) for i, name in enumerate(names)}
        others = {b"only in round %d" % i: 1.0 for i in range(1, round_ + 1)}
        assert written(values.part(0).everyones[0]) == expected | others


def test_a_half_written_series_is_not_there() -> None:
    """A process that is killed while it adds one leaves nothing that is read, nor added to later."""
    values = MetricValues(1)
    part = values.part(0)
    add(part, b"first", 1)
    (memory,) = part.everyones
    _, used = read_series(memory)
    struct.pack_into("=ii16sd", memory, 8 + used, 16, 1, b"half written ...", 5.0)
    assert written(memory) == {b"first": 1}
    successor = values.part(0)
    add(successor, b"x", 2, count=3)
    numbers, at = successor.numbers(b"x", 3)
    assert list(numbers[at : at + 3]) == [2, 0, 0]
    assert written(memory) == {b"first": 1, b"x": 2}


def test_only_what_was_added_is_read_again() -> None:
    """A reader goes on where it stopped."""
    part = MetricValues(1).part(0)
    add(part, b"first", 1)
    (memory,) = part.everyones
    _, read = read_series(memory)
    assert read_series(memory, read) == ([], read)
    add(part, b"second", 1)
    added, later = read_series(memory, read)
    assert [series.name for series in added] == [b"second"]
    assert later > read


def test_without_room_a_series_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The process goes on and counts, the neighbour's part stays whole, and the log has one line."""
    values = MetricValues(2, part_bytes=128)
    part, neighbour = values.part(0), values.part(1)
    add(neighbour, b"neighbour", 3)
    with caplog.at_level(logging.WARNING):
        for i in range(50):
            add(part, b"series %d" % i, 1)
            add(part, b"series 0", 1)
    first, second = part.everyones
    assert written(first) == {b"series %d" % i: 51.0 if i == 0 else 1.0 for i in range(5)}
    assert written(second) == {b"neighbour": 3}
    assert caplog.messages == [
        "no room for more series of metrics: series 5 and later ones are left out of /metrics"
    ]
