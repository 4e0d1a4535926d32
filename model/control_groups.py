"""Reads the limits that Linux's control groups set for this process, as containers do."""

from collections.abc import Iterator
from pathlib import Path


def group_files(root: Path, controller: str, *, v2: str, v1: str) -> Iterator[Path]:
    """Name the files of a limit in this process's group and in the groups around it, the innermost first.

    `v2` and `v1` are the file's names in the two versions of control groups. Files may be missing: in a
    container, the group's path may be that of the host. `root` is the root of the file system.
    """
    for line in read_lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _upwards(root / "sys/fs/cgroup", path, v2)
        elif controller in controllers.split(","):
            yield from _upwards(root / "sys/fs/cgroup" / controller, path, v1)


def read_lines(path: Path) -> list[str]:
    """Read the lines of a kernel file; none if there is no such file."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def _upwards(mount: Path, path: str, name: str) -> Iterator[Path]:
    """Go from a group to the mount point, which in a container is the group itself."""
    group = mount / path.strip("/")
    for folder in (group, *group.parents):
        yield folder / name
        if folder == mount:
            return
