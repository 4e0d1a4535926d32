"""A graph that is opened when it is first needed is opened once, while its pass makes progress."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from model.errors import CheckpointError, Stopped
from model.onnx import lazy_graph
from model.onnx.lazy_graph import LazyGraph
from model.progress import Progress


def test_while_it_is_opened_a_pass_makes_progress_and_may_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the watch over passes does not take it for one that hangs."""
    monkeypatch.setattr(lazy_graph, "_STEP_S", 0.01)
    graph: Any = object()
    may_open, calls = Event(), []

    def open_slowly() -> Any:
        calls.append(1)
        may_open.wait(30)
        return graph

    made, progress = LazyGraph(open_slowly), Progress()
    with ThreadPoolExecutor(2) as beside:
        first, second = (beside.submit(made.open, one) for one in (progress, Progress()))
        while progress.steps < 3:
            time.sleep(0.01)
        progress.stop()
        with pytest.raises(Stopped):
            first.result(30)
        may_open.set()
        assert second.result(30) is made.open(Progress()) is graph
    assert calls == [1]


def test_what_cannot_be_opened_is_not_read_again() -> None:
    """Not by each sequence of each request; all are told the same."""
    calls = []

    def fail() -> Any:
        calls.append(1)
        raise CheckpointError("it is damaged.")

    made = LazyGraph(fail)
    for _ in range(2):
        with pytest.raises(CheckpointError, match="it is damaged"):
            made.open(Progress())
    assert calls == [1]
