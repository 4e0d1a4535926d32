"""Warnings of texts that are truncated, or whose words the tokenizer does not know."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from model.contract import Encoding
from service.protocols.endpoints import select_endpoints
from service.sharing.metric_values import MetricValues
from service.sharing.scoreboard import Scoreboard
from service.telemetry import text_warnings
from service.telemetry.metrics import Metrics
from service.telemetry.text_warnings import TextWarnings, Vocabulary
from tests.references.checkpoints import write_bert
from tests.support.serving import LONG, START_S, Service, serve

UNKNOWN = 100


def encoding(ids: Sequence[int]) -> Encoding:
    """A text between two special tokens."""
    n = len(ids)
    return Encoding(
        [1, *ids, 2],
        [0] * (n + 2),
        [""] * (n + 2),
        [(0, 0)] * (n + 2),
        [None] * (n + 2),
        [True, *[False] * n, True],
        truncated=False,
        original_length=n + 2,
    )


class Processes:
    """The warnings of several processes that answer for one model."""

    def __init__(self, number: int) -> None:
        board, values = Scoreboard(number, ["m"]), MetricValues(number)
        endpoints = select_endpoints(frozenset(("openai",)))
        self.metrics = [Metrics("1", endpoints, values.part(i)) for i in range(number)]
        self.warnings = [TextWarnings(metrics, board.counters(i)) for i, metrics in enumerate(self.metrics)]
        self.vocabularies = [Vocabulary(UNKNOWN) for _ in range(number)]
        self.check()

    def answer(self, inputs: int, truncated: int) -> None:
        """Answer as many inputs in each process, by two routes."""
        for metrics in self.metrics:
            metrics.answered("/encode", "m", inputs=inputs, truncated=truncated)
            metrics.answered("/v1/embeddings", "m", inputs=0, truncated=0)
        self.check()

    def check(self) -> None:
        """Check in each process, twice, as numbers of others arrive late."""
        for _ in range(2):
            for one, vocabulary in zip(self.warnings, self.vocabularies, strict=True):
                one.check({"m": vocabulary})


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_warnings, "_CHECKED_S", 0.0)


def found(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    """The warnings that have these words."""
    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    return [line for line in lines if words in line]


@pytest.mark.parametrize("processes", [1, 3])
def test_many_truncated_inputs_are_one_warning_an_hour(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    """All processes together: more than a tenth, of at least some hundred; anew in the next hour."""
    service, each = Processes(processes), 300 // processes
    service.answer(each - 1, each - 1)
    assert not found(caplog, "truncated")
    service.answer(1, 0)
    (line,) = found(caplog, "truncated")
    assert line.startswith(f"m: {300 - processes} of 300 inputs within an hour were truncated")
    service.answer(each, each)
    assert len(found(caplog, "truncated")) == 1
    later = time.monotonic() + 3601
    monkeypatch.setattr(time, "monotonic", lambda: later)
    service.check()
    service.answer(each - 1, each - 1)
    assert len(found(caplog, "truncated")) == 1
    service.answer(1, 0)
    assert len(found(caplog, "truncated")) == 2


def test_a_tenth_is_no_reason(caplog: pytest.LogCaptureFixture) -> None:
    """Some texts are always too long."""
    service = Processes(1)
    service.answer(1000, 100)
    assert not found(caplog, "truncated")
    service.answer(0, 1)
    assert found(caplog, "truncated")


def test_an_unknown_vocabulary_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Of the tokens that are not special, more than a fifth are unknown; of two processes one says so."""
    service = Processes(2)
    for vocabulary in service.vocabularies:
        for number in range(text_warnings._ENOUGH):
            assert not found(caplog, "tokenizer")
            vocabulary.note([encoding([5, 6, UNKNOWN] if number % 2 else [5, UNKNOWN])])
    service.check()
    service.check()
    (line,) = found(caplog, "tokenizer")
    assert line.startswith("m: its tokenizer does not know 40 % of the tokens of 300 texts")


def test_few_unknown_words_are_no_reason(caplog: pytest.LogCaptureFixture) -> None:
    """A fifth and less is what names and emoji make; nor is a tokenizer without an unknown token."""
    service = Processes(1)
    for _ in range(400):
        service.vocabularies[0].note([encoding([5, 6, 7, 8, UNKNOWN])])
    service.vocabularies.append(none := Vocabulary(None))
    none.note([encoding([UNKNOWN])] * 400)
    assert none.share == 0
    service.vocabularies.pop()
    service.check()
    assert not found(caplog, "tokenizer")


def test_counting_is_bounded() -> None:
    """Some tokens of some texts of a request, and none once there are enough."""
    vocabulary = Vocabulary(UNKNOWN)
    vocabulary.note([encoding([UNKNOWN] * 10_000)] * 2048)
    assert vocabulary.texts == 16
    assert vocabulary.unknown_tokens == 16 * 127
    vocabulary.texts = text_warnings._ENOUGH
    vocabulary.note([encoding([UNKNOWN])])
    assert vocabulary.unknown_tokens == 16 * 127


@pytest.mark.thorough
def test_a_service_warns_of_both(tmp_path: Path) -> None:
    """With all its processes, of the texts that clients send; a small model reads many in a moment."""
    write_bert(tmp_path)
    with serve(model=tmp_path, processes=2, max_inputs=2048) as service:
        for _ in range(2 * text_warnings._ENOUGH // 10):
            service.encode(["\N{CUNEIFORM SIGN A} \N{CUNEIFORM SIGN AN} hello"] * 10)
        assert " 67 % of the tokens" in wait_for(service, "its tokenizer does not know")
        service.encode([LONG] * 120 + ["hello"] * 280)
        assert ": 120 of " in wait_for(service, "within an hour were truncated")


def wait_for(service: Service, words: str) -> str:
    """The line of the log that has these words."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        for line in service.log.splitlines():
            if words in line:
                return line
        time.sleep(0.1)
    raise AssertionError(words)
