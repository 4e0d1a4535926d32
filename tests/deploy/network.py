"""A network of one's own: nothing but a loopback interface, so that a server may listen on every address."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.deploy.tools import run, tool

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def alone() -> Iterator[None]:
    """Put this thread, and all that it starts meanwhile, into a network without a way out."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _check(_libc.unshare(_CLONE_NEWNET))
        try:
            run(tool("ip"), "link", "set", "lo", "up")
            yield
        finally:
            _check(_libc.setns(before, _CLONE_NEWNET))
    finally:
        os.close(before)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
