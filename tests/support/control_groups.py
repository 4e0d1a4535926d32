"""Files of Linux's control groups, as a process in a container finds them."""

from collections.abc import Mapping
from pathlib import Path


def write_control_groups(root: Path, cgroup: str, files: Mapping[str, str]) -> None:
    """Write /proc/self/cgroup and files below /sys/fs/cgroup, by their names, under another root."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup, encoding="utf-8")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
