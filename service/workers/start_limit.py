"""Ends a start that takes too long, whatever it hangs in."""

import faulthandler
import os
import signal
import sys
import time
from contextlib import suppress
from functools import partial

from service.system.stages import stage_of
from service.workers.worker import fork

# How long after the limit this process ends: by then, the forked process has written why.
_MARGIN_S = 0.5
_POLL_S = 1.0
_WRITTEN = 3


def overdue(limit_s: float, slot: int = 0) -> str:
    """Say that the start took longer than its limit, and what the process in this slot is doing."""
    return (
        f"the start took longer than HEADLIGHT_START_TIMEOUT_S={limit_s:g} seconds and was stopped while "
        f"{stage_of(slot)}: raise the limit if this step is only slow; otherwise it hangs."
    )


class StartLimit:
    """Ends this process with exit code 1 and a sentence, unless `end` is called in time.

    Native code may hang and never return to the interpreter, or hold its lock for ever. So a forked process
    writes the sentence, and a thread of faulthandler, which needs no lock, ends this one. Create it before
    any thread starts; processes can be forked again after `end`.
    """

    def __init__(self, limit_s: float) -> None:
        self._writer = fork(partial(_write, limit_s, os.getpid()))
        self._traces = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        faulthandler.dump_traceback_later(limit_s + _MARGIN_S, exit=True, file=self._traces)

    def end(self) -> None:
        """Say that this process has started; too late once the sentence is written."""
        os.kill(self._writer, signal.SIGKILL)
        # Where this process was started with SIGCHLD ignored, the system keeps no status of those it forked.
        with suppress(ChildProcessError):
            _, status = os.waitpid(self._writer, 0)
            if os.waitstatus_to_exitcode(status) == _WRITTEN:
                os._exit(1)
        faulthandler.cancel_dump_traceback_later()
        os.close(self._traces)


def _write(limit_s: float, parent: int) -> None:
    deadline = time.monotonic() + limit_s
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, _POLL_S))
        if os.getppid() != parent:  # not all systems end this process with its parent
            os._exit(0)
    sys.stderr.write(f"headlight: {overdue(limit_s)}\n")
    sys.stderr.flush()
    os._exit(_WRITTEN)
