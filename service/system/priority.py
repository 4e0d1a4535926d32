"""Lowers the priority of threads whose work can wait."""

import contextlib
import os
import sys
import threading


def lower_priority(steps: int) -> None:
    """Lower the priority of the calling thread by some steps of `nice`, on Linux.

    It is relative to the priority that the process was started with. A thread may not raise it again.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):  # where that is not permitted, it keeps its priority
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + steps)
