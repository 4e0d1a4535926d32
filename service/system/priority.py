"""Lowers the priority of threads whose work can wait.

The event loop serves all clients at once. On cores that are all busy, whatever one client's large request
has the service do beside it would hold up the short ones of others: beside forty connections that ask for
maps or tokens, a short text waited five to ten times as long as alone.
"""

import contextlib
import os
import sys
import threading

BESIDE_LOOP = 7
"""Steps of `nice` of threads that tokenize, decode, or write large responses.

They get a fifth of the event loop's share of a core where both want it. With more steps, other programs on
the machine could starve them.
"""


def lower_priority(steps: int) -> None:
    """Lower the priority of the calling thread by some steps of `nice`, on Linux.

    It is relative to the priority that the process was started with. A thread may not raise it again.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):  # where that is not permitted, it keeps its priority
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + steps)
