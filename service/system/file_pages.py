"""Finds mapped files that were overwritten."""

import os
from contextlib import suppress
from pathlib import Path


class MappedFiles:
    """The files that processes have mapped, as they were then, to find those that are overwritten later.

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
        """Say which file was written in place since, and what to do; None if none was."""
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
        f"{path} {how} while it was served: restart with the complete file. Never overwrite a served file: "
        "write the new one beside it and rename it"
    )
