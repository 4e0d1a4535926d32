"""Cases that take turns: each is quick in one commit of three, and thorough in the others."""

from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pytest

from tests import conftest


@dataclass
class Case:
    """What the choice reads of a collected test, and what it adds."""

    nodeid: str
    in_turns: bool = True
    added: list[str] = field(default_factory=list)

    def get_closest_marker(self, name: str) -> str | None:
        return name if name == "in_turns" and self.in_turns else None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.added.append(mark.name)


def test_each_case_is_quick_in_one_of_three_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = []
    for turn in range(3):
        cases = [Case(f"tests/a.py::{test}[{case}]") for test in ("one", "two") for case in range(10)]
        always = Case("tests/a.py::three[0]", in_turns=False)
        monkeypatch.setattr(conftest, "_turn", lambda turn=turn: turn)
        items: list[Any] = [*cases, always]
        conftest.pytest_collection_modifyitems(items)
        assert not always.added
        assert all(case.added in ([], ["thorough"]) for case in cases)
        quick.append([case.nodeid for case in cases if not case.added])
    assert sorted(chain(*quick)) == sorted(case.nodeid for case in cases)
    assert all(sum("one" in name for name in part) in (3, 4) for part in quick)


@pytest.mark.parametrize("turn", range(3))
def test_of_two_cases_one_is_quick(turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[Any] = [Case(f"tests/a.py::one[{case}]") for case in range(2)]
    monkeypatch.setattr(conftest, "_turn", lambda: turn)
    conftest.pytest_collection_modifyitems(cases)
    assert sorted(len(case.added) for case in cases) == [0, 1]


def test_the_turn_is_one_of_three() -> None:
    assert conftest._turn() in range(3)
