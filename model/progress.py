"""Lets threads watch how far a pass is, and end it."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from model.errors import Stopped


class Counters(ctypes.Structure):
    """`Progress` of the native kernels' interface.h: memory that they write and read while a pass runs."""

    _fields_ = (("steps", ctypes.c_int64), ("layers", ctypes.c_int64), ("stopping", ctypes.c_int64))


class Progress:
    """The progress of a batch, shared by the thread that runs it and those that watch it.

    Any thread reads `steps`, `layers` and `stopping`, without locks, and may call `stop`. On CUDA, layers
    count when their kernels are launched, before the device has run them.
    """

    __slots__ = ("_counters", "_end", "_lock", "address", "shared_tokens")

    def __init__(self) -> None:
        self._counters = Counters()
        self.address = ctypes.addressof(self._counters)
        """The address of the counters, for native code; valid while this object lives."""
        self.shared_tokens = 0
        """How many tokens are not run, because other sequences of the batch begin with the same ones."""
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None

    @property
    def steps(self) -> int:
        """A count that grows whenever something is finished; while it stands still, the pass may hang.

        Native code counts many times a second however long a text is, PyTorch's modules once a layer, and
        ONNX Runtime, which does not tell how far a run is, once for each run of the graph.
        """
        return self._counters.steps

    @property
    def layers(self) -> int:
        """How many layers are finished, summed over the parts that a batch is run in; only grows."""
        return self._counters.layers

    @property
    def stopping(self) -> bool:
        """Whether the pass is to end."""
        return self._counters.stopping != 0

    def stop(self) -> None:
        """Ask the pass to end if it has not yet; calling it again changes nothing."""
        with self._lock:
            self._counters.stopping = 1
            if self._end is not None:
                self._end()

    def check(self) -> None:
        """Raise Stopped if the pass is to end."""
        if self.stopping:
            raise Stopped

    def step(self, layers: int = 0) -> None:
        """Count something that is finished, or some whole `layers`; raises Stopped if the pass is to end.

        Only the thread that runs the pass calls it.
        """
        self._counters.layers += layers
        self._counters.steps += 1
        self.check()

    @contextmanager
    def ended_by(self, end: Callable[[], None]) -> Iterator[None]:
        """Have `stop` also call `end` inside the `with` block; raises Stopped if `stop` was called before.

        `end` must be quick, as other threads call it.
        """
        with self._lock:
            self.check()
            self._end = end
        try:
            yield
        finally:
            with self._lock:
                self._end = None
