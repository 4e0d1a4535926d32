"""Runs the service so that it counts what Python does; `service/interpreter.py` starts it.

The service takes its settings from the environment. Commands come on standard input, one per line, and each
is answered with a line of JSON:

- `functions`: count the functions that are called on the event loop from now on, Python's and C's;
- `bytecodes`: count the instructions of Python's bytecode;
- `time`: measure the processor time of the event loop's thread;
- `end`: end what was begun; answers the numbers outside of the passes and inside of them, and by name.

    python -m benchmarks.peers.counted_service
"""

import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

from model.contract import Backend
from service.__main__ import main as serve
from service.engine import inline_passes
from service.engine.inline_passes import InlinePasses

_OUTSIDE, _INSIDE = 0, 1
# Short texts run on the event loop, however busy the machine was when the service measured its speed.
_BRIEF_S = 1.0


class Counting:
    """Counts on the event loop's thread, which is the main one, and apart from that what passes do."""

    def __init__(self) -> None:
        self._command = ""
        self._where = _OUTSIDE
        self._names: Counter[str] = Counter()
        self._counts = [0, 0]
        self._began = self._in_passes = 0

    def listen(self) -> None:
        """Have the main thread obey each command; it answers once it has."""
        for line in sys.stdin:
            self._command = line.strip()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def obey(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begin or end counting."""
        answer: dict[str, Any] = {}
        if self._command == "end":
            spent = time.thread_time_ns() - self._began
            sys.setprofile(None)
            sys.settrace(None)
            outside, inside = self._counts
            answer = {"outside": outside, "inside": inside, "names": dict(self._names)}
            answer |= {"outside_ns": spent - self._in_passes, "inside_ns": self._in_passes}
        self._counts, self._in_passes = [0, 0], 0
        self._names.clear()
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        if self._command == "functions":
            sys.setprofile(self._function)
        elif self._command == "bytecodes":
            sys.settrace(self._entered)
        self._began = time.thread_time_ns()

    def _function(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            name = f"{code.co_filename.rpartition('site-packages/')[2]}:{code.co_qualname}"
        elif event == "c_call":
            name = f"C {argument.__qualname__}"
        else:
            return
        self._counts[self._where] += 1
        if self._where == _OUTSIDE:
            self._names[name] += 1

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:  # noqa: ARG002
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._instruction

    def _instruction(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:  # noqa: ARG002
        if event == "opcode":
            self._counts[self._where] += 1
        return self._instruction

    def wrap(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Tell apart what happens inside of a pass."""

        def counted(*arguments: Any, **options: Any) -> Any:
            start, self._where = time.thread_time_ns(), _INSIDE
            try:
                return run(*arguments, **options)
            finally:
                self._where = _OUTSIDE
                self._in_passes += time.thread_time_ns() - start

        return counted


class _Counted:
    """A backend whose passes are counted apart."""

    def __init__(self, backend: Backend, counting: Counting) -> None:
        self.run = counting.wrap(backend.run)
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def main() -> int:
    """Serve, and obey commands."""
    counting = Counting()
    own = InlinePasses.__init__

    def begin(self: InlinePasses, name: str, backend: Backend, *others: Any) -> None:
        own(self, name, _Counted(backend, counting), *others)

    inline_passes._BRIEF_S = _BRIEF_S
    InlinePasses.__init__ = begin  # type: ignore[method-assign, assignment]
    signal.signal(signal.SIGUSR1, counting.obey)
    threading.Thread(target=counting.listen, daemon=True).start()
    return serve(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
