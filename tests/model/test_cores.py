"""How many cores a process may use."""

import os
from pathlib import Path

import pytest

from model.lanes import count_cores
from tests.support.control_groups import write_control_groups


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "200000 100000"}, 2),
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/", {"cpu.max": "10000 100000"}, 1),
        ("0::/", {"cpu.max": "6400000 100000"}, 8),
        ("0::/a/b", {"a/b/cpu.max": "400000 100000", "a/cpu.max": "300000 100000"}, 3),
        ("0::/not/there", {}, 8),
        ("3:cpu,cpuacct:/pod", {"cpu/pod/cpu.cfs_quota_us": "300000"}, 8),
        (
            "3:cpu,cpuacct:/pod",
            {"cpu/pod/cpu.cfs_quota_us": "300000", "cpu/pod/cpu.cfs_period_us": "100000"},
            3,
        ),
        ("3:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("0::/", {"cpu.max": "nonsense"}, 8),
        ("0::/", {"cpu.max": "100000 0"}, 8),
    ],
)
def test_a_quota_limits_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroup: str, files: dict[str, str], expected: int
) -> None:
    """A container with a quota of two on a machine of many has two; in both versions of control groups."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    write_control_groups(tmp_path, cgroup, files)
    assert count_cores(tmp_path) == expected


def test_without_control_groups_all_cores_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems that have none, or no affinity either."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3}, raising=False)
    assert count_cores(tmp_path) == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert count_cores(tmp_path) == 5
