"""How long sequences take: measured at the start, and corrected."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from model.contract import Batch, ChunksWant, FloatArray, ModelInfo, Output, Want
from model.progress import Progress
from service.engine import measuring
from service.engine.measuring import measure_speed, warm_up
from service.engine.speed import Speed
from tests.support.doubles import tokenizer
from tests.support.product import minilm


def test_two_measurements_tell_products_from_attention() -> None:
    """Seconds are n · (a + b · n); where longer texts take no more for a token, attention costs nothing."""
    speed = Speed()
    speed.fit((20, 1e-3 + 20 * 1e-6), (2000, 1e-3 + 2000 * 1e-6))
    assert speed.per_token_s == pytest.approx(1e-3)
    assert speed.per_pair_s == pytest.approx(1e-6)
    assert speed.seconds(8000) == pytest.approx(8000 * (1e-3 + 8000e-6))
    speed.fit((20, 2e-3), (2000, 1e-3))
    assert (speed.per_token_s, speed.per_pair_s) == (2e-3, 0.0)


def test_batches_correct_the_lengths_that_they_have() -> None:
    """Long texts that take twice as long as expected say so of long texts, not of short ones."""
    speed = Speed(1e-3)
    for _ in range(30):
        speed.record([10] * 50, 0.5)
        speed.record([4096], 2 * 4.096)
    assert speed.seconds(10) == pytest.approx(0.01, rel=0.05)
    assert speed.seconds(5000) == pytest.approx(10.0, rel=0.05)


def test_a_batch_of_several_lengths_corrects_what_has_most_of_it() -> None:
    """The estimate of the whole becomes right, and one outlier changes little."""
    speed = Speed(1e-3)
    lengths = [10] * 10 + [1000]
    for _ in range(40):
        speed.record(lengths, 3.3)
    assert sum(map(speed.seconds, lengths)) == pytest.approx(3.3, rel=0.02)
    before = speed.seconds(1000)
    speed.record([1000], 1000.0)
    assert speed.seconds(1000) < 3 * before


def test_the_least_time_is_the_fastest_that_was_seen() -> None:
    """A start on a busy machine measures too slow: no request is refused for ever because of it."""
    speed = Speed(1e-2)
    assert speed.least_seconds([1000]) == pytest.approx(20 / 3)
    speed.record([100, 100], 0.4)
    speed.record([100, 100], 4.0)
    assert speed.least_seconds([100]) == pytest.approx(0.2, rel=0.01)
    assert speed.least_seconds([1000]) == pytest.approx(2.0, rel=0.01), "what is not known yet is as fast"


def test_nothing_is_known_without_a_measurement() -> None:
    """Then nothing takes any time, and nothing is refused for that."""
    speed = Speed()
    speed.record([10], 1.0)
    assert speed.seconds(10) == speed.least_seconds([10]) == 0.0


def test_the_model_itself_is_measured() -> None:
    """The estimate of a text is that of a machine that runs it, give or take the noise of a busy one."""
    speed = measure_speed(minilm(), tokenizer())
    assert 1e-6 < speed.per_token_s < 1e-2
    assert 1e-4 < speed.seconds(256) < 10


class _Clock:
    """Time that passes only while a backend runs, and timers of it: a busy machine changes nothing."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[_Timer] = []

    def wait(self, seconds: float) -> None:
        """Let time pass, and call what is due."""
        self.now += seconds
        for timer in self.timers:
            if timer.due <= self.now:
                timer.call()


class _Timer:
    """Stands in for `threading.Timer`."""

    def __init__(self, clock: _Clock, seconds: float, call: Callable[[], None]) -> None:
        self._clock, self.due, self.call = clock, clock.now + seconds, call

    def start(self) -> None:
        self._clock.timers.append(self)

    def cancel(self) -> None:
        self._clock.timers.remove(self)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    """The clock of measurements."""
    made = _Clock()
    timers = SimpleNamespace(Timer=partial(_Timer, made), TIMEOUT_MAX=threading.TIMEOUT_MAX)
    monkeypatch.setattr(measuring, "threading", timers)
    monkeypatch.setattr(measuring, "time", SimpleNamespace(perf_counter=lambda: made.now))
    return made


class _Large:
    """A backend that takes `of_token` seconds for each token, but for `least` tokens however few there are.

    With PyTorch it stops between layers; a graph is stopped at once, and does not tell how far it was.
    """

    def __init__(self, clock: _Clock, of_token: float, kind: str, max_length: int, least: int = 0) -> None:
        info = minilm().info
        self.info: ModelInfo = replace(info, backend=kind, max_length=max_length)
        self.budget, self.lanes = 1024, 2
        self._clock, self._of_token, self._least = clock, of_token, least
        self.first_s = 0.0
        self.finished: list[Want] = []

    def cost(self, lengths: Sequence[int]) -> int:
        return sum(lengths)

    prepares_short = False

    def trim_memory(self) -> None: ...

    def finish(self, means: FloatArray, want: ChunksWant) -> FloatArray:
        raise AssertionError("no chunks are measured")

    def end_helpers(self) -> None: ...

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        assert progress is not None, "a pass that nobody can stop delays the start"
        torch = self.info.backend == "torch"
        parts = self.info.layers if torch else 100
        self._clock.wait(self.first_s)
        self.first_s = 0.0
        for _ in range(parts):
            self._clock.wait(max(len(batch.input_ids), self._least) * self._of_token / parts)
            progress.step(int(torch))
        self.finished += batch.wants
        return [Output()] * len(batch)


@pytest.mark.parametrize(
    ("kind", "of_token"), [("torch", 2e-4), ("torch", 5e-3), ("torch", 1e-2), ("onnx", 2e-3)]
)
def test_a_large_model_is_ready_in_three_seconds(clock: _Clock, kind: str, of_token: float) -> None:
    """A model of which one long text takes forty seconds is warmed up and measured as fast as a small one."""
    backend = _Large(clock, of_token, kind, 8192)
    warm_up(backend, tokenizer(), 2)
    speed = measure_speed(backend, tokenizer())
    assert clock.now < 4, "three seconds, and the layers that were running then"
    assert speed.per_token_s + 200 * speed.per_pair_s == pytest.approx(of_token, rel=0.1)


def test_each_kind_of_work_is_warmed_up_however_long_the_first_pass_takes(clock: _Clock) -> None:
    """On CUDA it loads libraries for seconds; requests of other kinds are prepared for all the same."""
    backend = _Large(clock, 1e-6, "torch", 512)
    backend.first_s = 5.0
    warm_up(backend, tokenizer(), 2)
    assert {want.attention is not None for want in backend.finished} == {True, False}


def test_a_model_of_which_no_layer_ends_in_time_is_measured_all_the_same(clock: _Clock) -> None:
    """Then one short text tells: else the service would think that nothing takes any time, or for ever."""
    speed = measure_speed(_Large(clock, 0.1, "onnx", 512), tokenizer())
    assert speed.per_token_s == pytest.approx(0.1, rel=0.01)


def test_a_short_text_does_not_tell_how_fast_a_large_graph_is(clock: _Clock) -> None:
    """Most of its time goes to reading weights, so the service would refuse what it could answer in time."""
    speed = measure_speed(_Large(clock, 3.5e-3, "onnx", 512, least=30), tokenizer())
    assert speed.per_token_s == pytest.approx(3.5e-3, rel=0.01)
