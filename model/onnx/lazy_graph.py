"""A graph that is opened when it is first needed."""

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Lock, Thread

from model.errors import CheckpointError
from model.onnx.session import Graph
from model.progress import Progress

_STEP_S = 1.0
_MOST_STEPS = 120
"""After so many steps, opening a graph counts as hung: `progress` no longer grows."""


class LazyGraph:
    """A graph that `opener` opens once. Safe to use from several threads at a time."""

    def __init__(self, opener: Callable[[], Graph]) -> None:
        self._opener = opener
        self._lock = Lock()
        self._opened: Future[Graph] | None = None

    def open(self, progress: Progress) -> Graph:
        """Open the graph, or return it if it is open.

        The runtime does not tell how far it is, and takes seconds for a large model: `progress` grows
        meanwhile. Raises CheckpointError if the graph cannot be opened, which is not tried again, and Stopped
        if `progress` is to stop, though the graph goes on being opened.
        """
        with self._lock:
            if self._opened is None:
                self._opened = Future()
                Thread(target=self._open, args=(self._opened,), name="open-graph", daemon=True).start()
        for _ in range(_MOST_STEPS):
            if wait([self._opened], _STEP_S).done:
                break
            progress.step()
        if (error := self._opened.exception()) is not None:
            raise CheckpointError(str(error))
        return self._opened.result()

    def _open(self, opened: "Future[Graph]") -> None:
        try:
            opened.set_result(self._opener())
        except BaseException as error:
            opened.set_exception(error)
