"""Mapped files: releases pages of those that the start has read, and of weights; finds overwritten ones."""

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ENTRY = re.compile(r"^(?=[0-9a-f]+-[0-9a-f]+ )", re.MULTILINE)
# PyTorch maps weights as writable, though nothing writes them. A hub's cache names files by a hash.
_WEIGHTS = re.compile(r"(\.safetensors|/blobs/[0-9a-f]{40,64})( \(deleted\))?$")
# From Linux's mman.h.
_MADV_DONTNEED = 4


def release_file_pages(*, only_weights: bool = False) -> None:
    """Release the pages of mapped files: weights that were laid out elsewhere, and code of the start.

    Nothing is lost: a page that is read again is mapped again. No other thread may map or unmap files
    meanwhile, except with `only_weights`, since those of served models stay mapped: in eight bits, observing
    attention reads nearly all of them. A no-op if the system is not Linux.
    """
    try:
        smaps = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    madvise = ctypes.CDLL(None).madvise
    for start, end in unchanged_mappings(smaps, only_weights=only_weights):
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def unchanged_mappings(smaps: str, *, only_weights: bool = False) -> Iterator[tuple[int, int]]:
    """Find the mappings, start and end, of files that nothing writes, in /proc/self/smaps (proc(5)).

    With `only_weights` those of other files are left out. A mapping with changed pages of its own, in memory
    or swapped out, is always left out: relocations or breakpoints would be lost.
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


class MappedFiles:
    """The files that processes have mapped, as they were then, to find those that were overwritten since.

    A page beyond the new end of its file cannot be read: SIGBUS ends the process that tries.
    """

    def __init__(self) -> None:
        self._files: dict[Path, os.stat_result] = {}

    def note(self, process: int | str = "self") -> None:
        """Remember the files that a process has mapped for itself; none if the system is not Linux."""
        try:
            maps = Path("/proc", str(process), "maps").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return
        for line in maps.splitlines():
            _, permissions, *_, path = line.split(maxsplit=5)
            # What processes write for each other to read is mapped as shared.
            if path.startswith("/") and permissions.endswith("p"):
                with suppress(OSError):  # it has been removed
                    self._files.setdefault(Path(path), Path(path).stat())

    def overwritten(self) -> str | None:
        """Say which file was written in place since, and what to do; None if all others were replaced."""
        written = None
        for path, before in self._files.items():
            try:
                now = path.stat()
            except OSError:
                continue
            same_file = (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino)
            if same_file and now.st_size < before.st_size:
                return _overwritten(path, f"has shrunk from {before.st_size} to {now.st_size} bytes")
            if same_file and now.st_mtime_ns != before.st_mtime_ns:
                written = _overwritten(path, "was written")
        return written


def _overwritten(path: Path, how: str) -> str:
    return (
        f"{path} {how} while it was served: start again with the whole file, and never write one in place, "
        "but beside it, and then rename it"
    )
