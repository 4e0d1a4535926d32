"""What a pass and those who watch it share: counts that only grow, and a request to end that is not lost."""

import threading
from contextlib import suppress

import pytest

from model.errors import ModelError, Stopped
from model.progress import Counters, Progress

ROUNDS = 300


def test_steps_and_layers_are_counted_where_native_code_counts_too() -> None:
    """Both see what the other has counted, in memory that stays where it is."""
    progress = Progress()
    progress.step()
    progress.step(layers=3)
    counters = Counters.from_address(progress.address)
    assert (counters.steps, counters.layers, counters.stopping) == (2, 3, 0)
    counters.steps += 5
    counters.layers += 1
    assert (progress.steps, progress.layers, progress.stopping) == (7, 4, False)
    progress.stop()
    assert counters.stopping == 1


def test_a_stopped_pass_ends_at_its_next_step_for_good() -> None:
    """What it has finished still counts; a second request changes nothing."""
    progress = Progress()
    progress.check()
    for _ in range(2):
        progress.stop()
        assert progress.stopping
    with pytest.raises(Stopped):
        progress.check()
    with pytest.raises(Stopped):
        progress.step(layers=2)
    assert (progress.steps, progress.layers) == (1, 2)
    assert issubclass(Stopped, ModelError)


def test_what_ends_a_run_is_called_during_that_run_only() -> None:
    """Neither before it began nor after it ended, whether or not it failed."""
    progress, ended = Progress(), list[int]()
    with progress.ended_by(lambda: ended.append(1)):
        pass
    with pytest.raises(ZeroDivisionError), progress.ended_by(lambda: ended.append(2)):
        raise ZeroDivisionError
    with progress.ended_by(lambda: ended.append(3)):
        assert ended == []
        progress.stop()
        assert ended == [3]
    progress.stop()
    with pytest.raises(Stopped), progress.ended_by(lambda: ended.append(4)):
        ended.append(5)
    assert ended == [3]


def test_a_request_to_end_reaches_the_run_whenever_it_comes() -> None:
    """One that comes as the run begins either keeps it from beginning, or ends it."""
    for _ in range(ROUNDS):
        progress, together, told = Progress(), threading.Barrier(2), threading.Event()

        def stop(progress: Progress = progress, together: threading.Barrier = together) -> None:
            together.wait()
            progress.stop()

        thread = threading.Thread(target=stop)
        thread.start()
        together.wait()
        with suppress(Stopped), progress.ended_by(told.set):
            assert told.wait(10), "the run goes on although it was stopped"
        assert progress.stopping
        thread.join()


def test_counts_never_shrink_for_those_who_watch() -> None:
    """They read without locks while the pass counts."""
    progress, done = Progress(), threading.Event()
    watched = [list[tuple[int, int]]() for _ in range(3)]

    def watch(seen: list[tuple[int, int]]) -> None:
        while not done.is_set():
            seen.append((progress.steps, progress.layers))

    threads = [threading.Thread(target=watch, args=(seen,)) for seen in watched]
    for thread in threads:
        thread.start()
    for number in range(4_000):
        progress.step(layers=number % 2)
    done.set()
    for thread in threads:
        thread.join()
    assert (progress.steps, progress.layers) == (4_000, 2_000)
    for seen in watched:
        for counts in zip(*seen, strict=True):
            assert [*counts] == sorted(counts)
