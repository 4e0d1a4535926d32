"""How many processes serve by default, and where there can be only one."""

import sys

import pytest

from service.settings import Settings, SettingsError
from service.workers import count_processes as counting
from service.workers.count_processes import count_processes

GIB = 2**30


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "count_cores", lambda: 8)
    monkeypatch.setattr(counting, "memory_given", lambda: 16 * GIB)


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
        ({"backend": "onnx"}, 8),
        ({"device": "cuda"}, 1),
        ({"device": "cuda:1", "processes": 1}, 1),
    ],
)
def test_a_process_for_each_core_that_has_memory(settings: dict[str, object], expected: int) -> None:
    """Fewer with few threads or little memory, and one on CUDA; a number given counts."""
    assert count_processes(Settings(**{"device": "cpu", **settings})) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_where_there_can_be_only_one(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for more is refused with the reason."""
    monkeypatch.setattr(sys, "platform", platform)
    assert count_processes(Settings(device="cpu")) == (8 if platform == "linux" else 1)
    asked = Settings(device="cuda" if platform == "linux" else "cpu", processes=2)
    with pytest.raises(
        SettingsError, match=r"HEADLIGHT_PROCESSES is 2, but .*: set HEADLIGHT_PROCESSES to 1"
    ):
        count_processes(asked)
