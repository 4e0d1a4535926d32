"""What each process of a start is doing, in memory that forked processes share.

When a start takes too long, the process that ends it says what it hung in: the process that hangs may not be
able to.
"""

import mmap

# One for the process that starts first, and one for a worker on each core of the largest Linux machine.
_SLOTS = 1 + 8192
_BYTES = 512

_memory = mmap.mmap(-1, _SLOTS * _BYTES)
_own = 0


def take_slot(slot: int) -> None:
    """Give this process a slot of its own for its stage: worker n, counted from 0, has slot n + 1."""
    global _own  # noqa: PLW0603 - like the process's id
    _own = slot


def tell_stage(stage: str) -> None:
    """Note what this process does now, as in "loading mini from /models/mini"."""
    start = _own * _BYTES
    _memory[start : start + _BYTES] = stage.encode(errors="replace")[:_BYTES].ljust(_BYTES, b"\0")


def stage_of(slot: int = 0) -> str:
    """Return what the process in a slot said last; slot 0 belongs to the first process."""
    start = slot * _BYTES
    return _memory[start : start + _BYTES].rstrip(b"\0").decode(errors="replace") or "starting"
