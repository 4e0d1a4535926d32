"""A network of one's own, with nothing but a loopback: for programs that open many ports, or fixed ones."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def own_network() -> Iterator[None]:
    """Put this thread, and what it starts, into a new network namespace; fails where one may not.

    Sockets stay in the namespace that they were made in.
    """
    with Path("/proc/thread-self/ns/net").open("rb") as before:
        if _LIBC.unshare(_CLONE_NEWNET) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise AssertionError(f"This test needs a network namespace of its own, as root has it: {reason}.")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            assert _LIBC.setns(before.fileno(), _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())


def network_of(process: int | str = "self") -> str:
    """The name of a process's network namespace."""
    return str(Path(f"/proc/{process}/ns/net").readlink())
