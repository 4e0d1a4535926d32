"""What each process of a start is doing, in memory that forked processes share.

The process that ends a start that takes too long says what the start hung in: the one that hangs may not be
able to.
"""

import mmap

# Of the process that starts first, and of a worker for each core of the largest machine that Linux runs on.
_PLACES = 1 + 8192
_BYTES = 512

_memory = mmap.mmap(-1, _PLACES * _BYTES)
_own = 0


def take_place(place: int) -> None:
    """Have this process tell its stage apart from others: worker n, from 0, has place n + 1."""
    global _own  # noqa: PLW0603 - like the process's id
    _own = place


def tell_stage(stage: str) -> None:
    """Note what this process does now, as in "loading mini from /models/mini"."""
    start = _own * _BYTES
    _memory[start : start + _BYTES] = stage.encode(errors="replace")[:_BYTES].ljust(_BYTES, b"\0")


def stage_of(place: int = 0) -> str:
    """Return what the process at a place said last; place 0 is that of the first process."""
    start = place * _BYTES
    return _memory[start : start + _BYTES].rstrip(b"\0").decode(errors="replace") or "starting"
