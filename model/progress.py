"""How far a pass is, for the threads that watch it, and how they end it."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from model.errors import Stopped


class Counters(ctypes.Structure):
    """`Progress` of the native kernels' interface.h: memory that they write and read while a pass runs."""

    _fields_ = (("steps", ctypes.c_int64), ("layers", ctypes.c_int64), ("stopping", ctypes.c_int64))


class Progress:
    """The progress of the passes of one batch, shared by the thread that runs it and those that watch it.

    `steps`, `layers` and `stopping` are read without locks. On CUDA, kernels count when they are launched,
    before the device has finished them.
    """

    __slots__ = ("_counters", "_end", "_lock", "address")

    def __init__(self) -> None:
        self._counters = Counters()
        self.address = ctypes.addressof(self._counters)
        """Of the counters, for native code; valid while this object lives."""
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None

    @property
    def steps(self) -> int:
        """Grows whenever something is finished, several times a layer in native code: a hung pass stays."""
        return self._counters.steps

    @property
    def layers(self) -> int:
        """The layers that are finished, summed over the parts that a batch is run in: never fewer."""
        return self._counters.layers

    @property
    def stopping(self) -> bool:
        """Whether the pass is to end."""
        return self._counters.stopping != 0

    def stop(self) -> None:
        """Ask the pass to end, if it has not yet; may be called from any thread, and more than once."""
        with self._lock:
            self._counters.stopping = 1
            if self._end is not None:
                self._end()

    def check(self) -> None:
        """Raise Stopped if the pass is to end."""
        if self.stopping:
            raise Stopped

    def step(self, layers: int = 0) -> None:
        """Count something that is finished, `layers` whole layers for instance, and `check`.

        Only the thread that runs the pass calls it.
        """
        self._counters.layers += layers
        self._counters.steps += 1
        self.check()

    @contextmanager
    def ended_by(self, end: Callable[[], None]) -> Iterator[None]:
        """Have `stop` also call `end` inside the `with` block; raises Stopped instead if it came before.

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
