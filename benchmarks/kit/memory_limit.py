"""A memory limit for a process and its children, as in a container, through a Linux control group.

Needs root, and a writable control group hierarchy: version 1 with the memory controller, or version 2.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_V1 = Path("/sys/fs/cgroup/memory")
_V2 = Path("/sys/fs/cgroup")
_BUSY_S = 10.0


@dataclass(frozen=True)
class MemoryLimit:
    """A control group with a limit in bytes."""

    folder: Path
    limit: int

    def command(self, command: Sequence[str]) -> list[str]:
        """Write a command that runs another one within the limit, as the same process."""
        enter = f'echo $$ > {self.folder}/cgroup.procs && exec "$@"'
        return ["sh", "-c", enter, "sh", *command]

    @property
    def is_v1(self) -> bool:
        """Whether it is of version 1."""
        return (self.folder / "memory.limit_in_bytes").exists()

    @property
    def working_bytes(self) -> int:
        """The memory that the group uses now and cannot drop: all except clean pages of files."""
        usage = self._number("memory.usage_in_bytes" if self.is_v1 else "memory.current")
        return usage - self._stat("total_inactive_file" if self.is_v1 else "inactive_file")

    @property
    def peak_bytes(self) -> int:
        """The most that the group ever used, with pages of files: they fill whatever is free."""
        return self._number("memory.max_usage_in_bytes" if self.is_v1 else "memory.peak")

    @property
    def kills(self) -> int:
        """How many processes of the group the kernel killed for lack of memory."""
        text = (self.folder / ("memory.oom_control" if self.is_v1 else "memory.events")).read_text("ascii")
        return _field(text, "oom_kill")

    def _number(self, name: str) -> int:
        return int((self.folder / name).read_text("ascii"))

    def _stat(self, name: str) -> int:
        return _field((self.folder / "memory.stat").read_text("ascii"), name)


def _field(text: str, name: str) -> int:
    lines = (line.split() for line in text.splitlines())
    return next((int(value) for found, value in lines if found == name), 0)


@contextmanager
def memory_limit(limit: int) -> Iterator[MemoryLimit]:
    """Make a control group with a limit in bytes, and remove it when its processes have ended.

    Raises OSError if that is not possible.
    """
    parent = _V1 if (_V1 / "memory.limit_in_bytes").exists() else _V2
    folder = parent / f"headlight-{os.getpid()}-{limit >> 20}"
    folder.mkdir()
    try:
        group = MemoryLimit(folder, limit)
        (folder / ("memory.limit_in_bytes" if group.is_v1 else "memory.max")).write_text(str(limit), "ascii")
        yield group
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a control group; it is busy for a moment after its last process has ended."""
    until = time.monotonic() + _BUSY_S
    while True:
        try:
            return folder.rmdir()
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(0.1)
