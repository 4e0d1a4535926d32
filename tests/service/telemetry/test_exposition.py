"""The exposition of several processes, compared with prometheus_client's own."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector

from service.protocols.endpoints import ENDPOINTS
from service.sharing.metric_values import MetricValues
from service.telemetry.metrics import REJECTIONS, Metrics
from tests.service.test_encode_plan import INFO
from tests.support.serving import parse_metrics

MODELS = ("first", "second")
KEYS = ("0a0a0a0a", "1b1b1b1b")
ODD = 'a "quoted" \\ name\nof two lines'


LIBRARY = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}


class Unlabelled:
    """A metric of the library that is its own only series if it has no labels."""

    def __init__(self, metric: Any) -> None:
        self.labels = metric.labels if metric._labelnames else lambda: metric


class Reference(Metrics):
    """The same metrics as the library itself keeps them, in files of a folder."""

    @staticmethod
    def _record(*amounts: tuple[Any, float]) -> None:
        for series, amount in amounts:
            (series.observe if isinstance(series, Histogram) else series.inc)(amount)

    def _define(self, kind: Any, name: str, about: str, labels: Any, **options: Any) -> Any:
        if "over" in options:
            mode = options.pop("over")
            options["multiprocess_mode"] = "mostrecent" if mode == "own" else mode
        if "bounds" in options:
            options["buckets"] = options.pop("bounds")
        registry = CollectorRegistry()
        return Unlabelled(LIBRARY[kind](f"headlight_{name}", about, labels, registry=registry, **options))


class Pair:
    """A process's metrics, ours and the reference."""

    def __init__(self, number: int, shared: MetricValues, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._files = values.MultiProcessValue(lambda: str(number))  # type: ignore[no-untyped-call]
        patch.setattr(values, "ValueClass", self._files)
        self.ours = Metrics("1", ENDPOINTS, shared.part(number))
        self.reference = Reference("1", ENDPOINTS, MetricValues().part(0))

    def both(self, change: Callable[[Metrics], object]) -> None:
        """Change both in the same way."""
        self._patch.setattr(values, "ValueClass", self._files)  # for series that begin here
        for metrics in (self.ours, self.reference):
            change(metrics)


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Pair]:
    """Three workers, of which the first has not loaded its models yet, and a supervisor without any."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    shared = MetricValues(4)
    pairs = [Pair(number, shared, monkeypatch) for number in range(4)]
    for pair in pairs[1:3]:
        for model in MODELS:
            pair.both(lambda m, model=model: m.add_model(model, replace(INFO, device=ODD)))  # type: ignore[misc]
    for pair in pairs:
        pair.both(lambda m: m.ready.set(1))
        pair.both(lambda m: m.keys(frozenset()))  # the library writes a number of keys even where none is set
    return pairs


def expected(folder: Path) -> str:
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]
    return generate_latest(registry).decode()


def own(text: str) -> str:
    """The part about the service, without that of processes and platform."""
    return "".join(line for line in text.splitlines(keepends=True) if "headlight_" in line)


def assert_same(pair: Pair, folder: Path) -> None:
    ours, reference = own(pair.ours.exposition().decode()), expected(folder)
    assert parse_metrics(ours) == parse_metrics(reference)
    assert sorted(ours.splitlines()) == sorted(reference.splitlines())
    assert_grouped(ours)


def assert_grouped(text: str) -> None:
    """Each metric begins with its help and its type, and has its samples together."""
    seen: set[str] = set()
    name = ""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("# HELP "):
            name = line.split()[2]
            assert name not in seen
            seen.add(name)
            assert next(lines).startswith(f"# TYPE {name} ")
        else:
            sample = re.split(r"[{ ]", line)[0]
            assert sample == name or re.sub("_(bucket|sum|count)$", "", sample) == name


def change_at_random(pair: Pair, chance: np.random.Generator) -> None:
    """Change some metric of each kind; binary fractions add up to the same in any order."""
    route, model = str(chance.choice(ENDPOINTS.inference_labels)), str(chance.choice(MODELS))
    status, seconds = int(chance.choice((200, 429))), float(chance.choice((0.0, 2**-12, 0.25, 30.0, 31.0)))
    inputs, tokens = int(chance.integers(3)), int(chance.integers(50_000))
    pair.both(lambda m: m.request(route, status, seconds))
    pair.both(lambda m: m.reject(REJECTIONS[inputs]))
    pair.both(lambda m: m.stages(model, queue=seconds, compute=2 * seconds))
    pair.both(lambda m: m.batch(model, inputs=inputs, tokens=tokens, padding=inputs))
    pair.both(lambda m: m.queue(model, inputs=inputs, tokens=tokens))
    pair.both(lambda m: m.batch_limit.labels(model).set(tokens))
    pair.both(lambda m: m.in_flight.set(inputs))


def test_it_says_what_the_library_would(processes: list[Pair], tmp_path: Path) -> None:
    """Every metric of the service: counters, cumulative buckets, and gauges that are a sum or an extreme."""
    chance = np.random.default_rng(0)
    assert_same(processes[0], tmp_path)
    for _ in range(5):
        for pair in processes[:3]:
            for _ in range(20):
                change_at_random(pair, chance)
        assert_same(processes[0], tmp_path)
    assert_same(processes[3], tmp_path)


def test_it_finds_series_that_appear_later(processes: list[Pair], tmp_path: Path) -> None:
    """A status that was not expected, and models that are loaded after the first scrape."""
    assert_same(processes[1], tmp_path)
    processes[2].both(lambda m: m.request("/encode", 418, 0.5))
    processes[0].both(lambda m: m.add_model("late", INFO))
    assert_same(processes[1], tmp_path)
    text = processes[1].ours.exposition().decode()
    assert 'headlight_requests_total{kind="inference",route="/encode",status="418"} 1.0\n' in text


def test_ready_is_what_the_process_that_answers_says(processes: list[Pair], tmp_path: Path) -> None:
    """It sets it for each scrape, which makes it the most recent value of all."""
    for number, ready in ((2, 0), (0, 1), (1, 0)):
        processes[number].both(lambda m, ready=ready: m.ready.set(ready))  # type: ignore[misc]
        assert_same(processes[number], tmp_path)
        assert parse_metrics(processes[number].ours.exposition().decode())["headlight_ready{}"] == ready


def test_the_limit_of_the_queue_is_what_the_process_that_answers_says(
    processes: list[Pair], tmp_path: Path
) -> None:
    """It becomes less while a machine is slow: what another process said before must not hide that."""
    series = 'headlight_queue_tokens_limit{model="first"}'
    for number, limit in ((1, 2048), (2, 512), (1, 1024)):
        pair = processes[number]
        pair.both(lambda m, limit=limit: m.limits("first", queue_tokens=limit, batch_tokens=64))  # type: ignore[misc]
        assert_same(pair, tmp_path)
        assert parse_metrics(pair.ours.exposition().decode())[series] == limit


def test_only_current_keys_have_series(processes: list[Pair]) -> None:
    """A key that is revoked, and accepted again later, has the requests of both times."""
    asked, other = processes[0], processes[1]
    for names, shown in ((KEYS, KEYS), (KEYS[:1], KEYS[:1]), (KEYS, KEYS)):
        asked.ours.keys(frozenset(names))
        for key in names:
            other.ours.key_used(key)
        samples = parse_metrics(asked.ours.exposition().decode())
        found = re.findall(r'headlight_key_requests_total{key="(\w+)"}', "\n".join(samples))
        assert sorted(found) == sorted(shown)
    assert samples[f'headlight_key_requests_total{{key="{KEYS[0]}"}}'] == 3
    assert samples[f'headlight_key_requests_total{{key="{KEYS[1]}"}}'] == 2
