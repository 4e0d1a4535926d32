"""How many processes serve by default, and where there can be only one."""

import sys
from pathlib import Path

import pytest

from service.settings import Settings, SettingsError
from service.workers import supervisor
from service.workers.supervisor import count_processes

GIB = 2**30


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "count_cores", lambda: 8)
    monkeypatch.setattr(supervisor, "memory_given", lambda: 16 * GIB)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 8),
        ({"threads": 3}, 3),
        ({"threads": 20}, 8),
        ({"processes": 5}, 5),
        ({"processes": 20}, 20),
        ({"memory_bytes": GIB // 2}, 1),
        ({"memory_bytes": GIB}, 5),
        ({"memory_bytes": GIB // 4}, 1),
        ({"backend": "onnx"}, 1),
        ({"backend": "onnx", "processes": 2}, 2),
        ({"device": "cuda"}, 1),
        ({"device": "cuda:1", "processes": 1}, 1),
    ],
)
def test_a_process_for_each_core_that_has_memory(settings: dict[str, object], expected: int) -> None:
    """Fewer with few threads or little memory, one for a graph and on CUDA; a number given counts."""
    assert count_processes(Settings(**{"device": "cpu", **settings})) == expected  # type: ignore[arg-type]


def test_a_folder_with_nothing_but_a_graph_is_served_by_one(tmp_path: Path) -> None:
    """Which runtime it needs is known before it is loaded; a model on the hub counts as a checkpoint."""
    (tmp_path / "model.onnx").write_bytes(b"")
    assert count_processes(Settings(device="cpu", model=str(tmp_path))) == 1
    assert count_processes(Settings(device="cpu", model=f"a=org/name,b={tmp_path}")) == 1
    assert count_processes(Settings(device="cpu", model="org/name")) == 8


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_where_there_can_be_only_one(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for more is refused with the reason."""
    monkeypatch.setattr(sys, "platform", platform)
    assert count_processes(Settings(device="cpu")) == (8 if platform == "linux" else 1)
    asked = Settings(device="cuda" if platform == "linux" else "cpu", processes=2)
    with pytest.raises(SettingsError, match=r"HEADLIGHT_PROCESSES is 2, but .*: set it to 1"):
        count_processes(asked)
