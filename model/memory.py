"""Returns memory to the operating system: freed blocks, and pages of files that were only read."""

import ctypes
import gc
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ENTRY = re.compile(r"^(?=[0-9a-f]+-[0-9a-f]+ )", re.MULTILINE)
# PyTorch maps weights as writable, though nothing writes them. A hub's cache names files by a hash.
_WEIGHTS = re.compile(r"(\.safetensors|/blobs/[0-9a-f]{40,64})( \(deleted\))?$")
# From Linux's mman.h.
_MADV_DONTNEED = 4


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collect no garbage inside the `with` block.

    Collecting an unused model may unmap its files; what is then allocated at their addresses would be lost.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@_without_collections()
def release_file_pages(*, only_weights: bool = False) -> None:
    """Release the pages of mapped files: weights that were laid out elsewhere, and code that startup ran.

    Nothing is lost: a page that is read again is mapped again. Meanwhile, no other thread may map or unmap
    files or, with `only_weights`, load a model. The weights of served models stay mapped, since observing
    attention in eight bits reads nearly all of them. A no-op if the system is not Linux.
    """
    _release(_mappings(only_weights=only_weights))


class WeightPages:
    """The pages of mapped weights, to be released again and again while a model is laid out elsewhere.

    The mappings are found only once, as that takes the system tens of milliseconds for a gigabyte of them.
    Only those of the given tensors are released, since these stay mapped: where another tensor was mapped,
    there may be other memory by then.
    """

    def __init__(self, tensors: Iterable[Sequence[Any]]) -> None:
        """Take the PyTorch tensors that are laid out; the caller must keep them while it uses this object."""
        self._addresses = [tensor.data_ptr() for parts in tensors for tensor in parts]
        self._mappings: list[tuple[int, int]] | None = None

    def release(self) -> None:
        """Release the pages that have been read so far; see `release_file_pages`."""
        if self._mappings is None:
            self._mappings = [
                (start, end)
                for start, end in _mappings(only_weights=True)
                if any(start <= address < end for address in self._addresses)
            ]
        _release(self._mappings)


def _mappings(*, only_weights: bool) -> list[tuple[int, int]]:
    """Find the mappings that can be released now; none if the system is not Linux."""
    try:
        smaps = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return list(unchanged_mappings(smaps, only_weights=only_weights))


def _release(mappings: Iterable[tuple[int, int]]) -> None:
    madvise = ctypes.CDLL(None).madvise
    for start, end in mappings:
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def unchanged_mappings(smaps: str, *, only_weights: bool = False) -> Iterator[tuple[int, int]]:
    """Find, in /proc/self/smaps (proc(5)), the start and end of each mapping of a file that nothing writes.

    With `only_weights`, only files of weights count. A mapping with changed pages of its own, in memory or
    swapped out, is always left out: relocations or breakpoints would be lost.
    """
    for entry in filter(None, _ENTRY.split(smaps)):
        head, *lines = entry.splitlines()
        addresses, permissions, *_, path = head.split(maxsplit=5)
        if not path.startswith("/") or path.startswith("/dev/"):
            continue
        own = {name: size.split() for name, _, size in (line.partition(":") for line in lines)}
        unchanged = own.get("Anonymous") == own.get("Swap") == ["0", "kB"]
        weights = _WEIGHTS.search(path) is not None
        if unchanged and (weights or ("w" not in permissions and not only_weights)):
            start, end = addresses.split("-")
            yield int(start, 16), int(end, 16)


def trim_memory() -> None:
    """Have glibc return all freed memory to the system; a no-op with other C libraries.

    Otherwise, large freed blocks between small ones still in use would be kept forever. It takes about ten
    milliseconds per hundred megabytes.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
