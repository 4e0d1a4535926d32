"""Lowers the priority of threads whose work can wait.

The event loop serves all clients at once. While all cores are busy, work done for one client's large request
in other threads would hold up the short requests of others: beside forty connections that ask for maps or
tokens, a short text waited five to ten times as long as alone.
"""

import contextlib
import os
import sys
import threading

BESIDE_LOOP = 7
"""Steps of `nice` of threads that tokenize, decode, or write large responses.

They get a fifth of the event loop's share of a core that both want. With more steps, other programs on the
machine could starve them.
"""


def lower_priority(steps: int) -> None:
    """Lower the priority of the calling thread by some steps of `nice`, on Linux.

    The steps count from the thread's present priority. A thread may not raise its priority again.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):  # where that is not permitted, it keeps its priority
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + steps)
