"""Releases the pages of files that were read while models were loaded."""

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

_ENTRY = re.compile(r"^(?=[0-9a-f]+-[0-9a-f]+ )", re.MULTILINE)
# PyTorch maps weights as writable, though nothing writes them. A hub's cache names files by a hash.
_WEIGHTS = re.compile(r"\.safetensors$|/blobs/[0-9a-f]{40,64}$")
# From Linux's mman.h.
_MADV_DONTNEED = 4


def release_file_pages() -> None:
    """Release the pages of mapped files: weights that were laid out elsewhere, and code of the start.

    Nothing is lost: a page that is read again is mapped again. No other thread may map or unmap files
    meanwhile. A no-op if the system is not Linux.
    """
    try:
        smaps = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    madvise = ctypes.CDLL(None).madvise
    for start, end in unchanged_mappings(smaps):
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def unchanged_mappings(smaps: str) -> Iterator[tuple[int, int]]:
    """Find the mappings, start and end, of files that nothing writes, in /proc/self/smaps (proc(5)).

    A mapping with changed pages of its own, in memory or swapped out, is left out: relocations or breakpoints
    would be lost.
    """
    for entry in filter(None, _ENTRY.split(smaps)):
        head, *lines = entry.splitlines()
        addresses, permissions, *_, path = head.split(maxsplit=5)
        if not path.startswith("/") or path.startswith("/dev/"):
            continue
        own = {name: size.split() for name, _, size in (line.partition(":") for line in lines)}
        unchanged = own.get("Anonymous") == own.get("Swap") == ["0", "kB"]
        if unchanged and ("w" not in permissions or _WEIGHTS.search(path)):
            start, end = addresses.split("-")
            yield int(start, 16), int(end, 16)
