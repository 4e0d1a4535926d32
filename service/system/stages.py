"""What each process of a start is doing, in memory that forked processes share.

The process that ends a start that takes too long says what the start hung in: the one that hangs may not be
able to.
"""

import mmap

# Of the process that starts first, and of a worker for each core of the largest machine that Linux runs on.
_SLOTS = 1 + 8192
_BYTES = 512

_memory = mmap.mmap(-1, _SLOTS * _BYTES)
_own = 0


def take_slot(slot: int) -> None:
    """Have this process tell its stage apart from others: worker n, from 0, has slot n + 1."""
    global _own  # noqa: PLW0603 - like the process's id
    _own = slot


def tell_stage(stage: str) -> None:
    """Note what this process does now, as in "loading mini from /models/mini"."""
    start = _own * _BYTES
    _memory[start : start + _BYTES] = stage.encode(errors="replace")[:_BYTES].ljust(_BYTES, b"\0")


def stage_of(slot: int = 0) -> str:
    """Return what the process in a slot said last; slot 0 is that of the first process."""
    start = slot * _BYTES
    return _memory[start : start + _BYTES].rstrip(b"\0").decode(errors="replace") or "starting"
