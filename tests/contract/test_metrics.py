"""What operators see: every series from the first scrape, and numbers that add up."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest

from service.protocols.endpoints import ENDPOINTS
from service.telemetry.metrics import Metrics
from tests.service.test_encode_plan import INFO
from tests.support.serving import (
    LONG,
    ROUTES,
    Json,
    Service,
    answered,
    kind_of,
    operations_labels,
    parse_metrics,
    post,
    requests_total,
    serve,
)

MODEL = 'model="all-MiniLM-L6-v2"'

# name -> labels, beside `model` where it has one, of a series that must be there
SERIES = {
    "requests_total": ["kind", "route", "status"],
    "request_duration_seconds_count": ["kind", "route"],
    "stage_duration_seconds_count": ["model", "stage"],
    "inputs_total": ["model", "route"],
    "input_tokens_total": ["model"],
    "truncated_inputs_total": ["model"],
    "rejected_total": ["reason"],
    "batches_total": ["model"],
    "batch_inputs_count": ["model"],
    "batch_tokens_count": ["model"],
    "padding_tokens_total": ["model"],
    "queue_inputs": ["model"],
    "queue_tokens": ["model"],
    "requests_in_flight": [],
    "response_bytes_total": ["format", "route"],
    "inference_failures_total": ["model", "reason"],
    "gc_collections_total": ["generation"],
    "model_info": ["backend", "device", "dtype", "family", "kernels", "model"],
    "build_info": ["version"],
    "ready": [],
}
_INFERENCE = (200, 400, 401, 404, 405, 406, 408, 413, 415, 422, 429, 500, 503, 504)
_WITHOUT = {"openai": {422}, "cohere": {422}, "ollama": {422, 429}}
_LESS = {
    endpoint.label: tuple(status for status in _INFERENCE if status not in _WITHOUT[endpoint.protocol])
    for endpoint in ENDPOINTS
    if endpoint.inference and endpoint.protocol in _WITHOUT
}
STATUSES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(ENDPOINTS.inference_labels, _INFERENCE),
    **_LESS,
    "/v2/models/infer": (*(status for status in _INFERENCE if status not in (415, 422)), 501),
    "/": (307, 405),
    **dict.fromkeys(["/livez", "/metrics", "/openapi.json", "/docs"], (200,)),
    "/explorer": (200, 304, 307, 404),
    "/info": (200, 401),
    **dict.fromkeys(["/readyz", "/health"], (200, 503)),
    "unmatched": (404,),
}


def assert_complete(samples: dict[str, float]) -> None:
    for name, labels in SERIES.items():
        found = [sample for sample in samples if sample.startswith(f"headlight_{name}{{")]
        assert found, name
        assert all(re.findall(r'(\w+)="', sample) == labels for sample in found), name
    for route, statuses in STATUSES.items():
        series = f'headlight_request_duration_seconds_count{{kind="{kind_of(route)}",route="{route}"}}'
        assert series in samples
        for status in statuses:
            assert requests_total(route, status) in samples
    for reason in ("overloaded", "deadline-exceeded", "not-ready"):
        assert f'headlight_rejected_total{{reason="{reason}"}}' in samples


def test_every_series_is_there_before_the_first_request() -> None:
    """A scrape before any traffic has all names and labels, so that no rate begins with a hole."""
    metrics = Metrics("1.2.3", ENDPOINTS)
    metrics.add_model("all-MiniLM-L6-v2", INFO)
    samples = parse_metrics(metrics.exposition().decode())
    assert_complete(samples)
    assert samples['headlight_build_info{version="1.2.3"}'] == 1
    for stage in ("tokenize", "queue", "compute", "serialize"):
        assert samples[f'headlight_stage_duration_seconds_count{{{MODEL},stage="{stage}"}}'] == 0
    for route in ENDPOINTS.inference_labels:
        assert samples[f'headlight_inputs_total{{{MODEL},route="{route}"}}'] == 0
        arrays = route in ("/encode", "/attention")
        for name in ("json", "npz", "safetensors", "ndjson") if arrays else ("json",):
            assert samples[f'headlight_response_bytes_total{{format="{name}",route="{route}"}}'] == 0
        assert samples[requests_total(route)] == 0


def test_keys_have_series_as_long_as_they_open() -> None:
    """From the first scrape on, and none after they are gone: keys that change do not fill the memory."""
    metrics = Metrics("1", ENDPOINTS)
    metrics.keys(frozenset({"old", "new"}))
    metrics.key_used("new")
    for name, used in (("old", 0), ("new", 1)):
        samples = parse_metrics(metrics.exposition().decode())
        assert samples["headlight_api_keys{}"] == 2
        assert samples[f'headlight_key_requests_total{{key="{name}"}}'] == used
        assert samples[f'headlight_key_tokens_total{{key="{name}"}}'] == 0
        last = samples[f'headlight_key_last_used_timestamp_seconds{{key="{name}"}}']
        assert last == 0 if not used else abs(last - time.time()) < 60
    for i in range(100):
        metrics.keys(frozenset({"new", str(i)}))
        metrics.key_used(str(i))
    samples = parse_metrics(metrics.exposition().decode())
    assert len([name for name in samples if name.startswith("headlight_key_requests_total")]) == 2
    assert samples['headlight_key_requests_total{key="new"}'] == 1


def test_a_registry_belongs_to_its_app() -> None:
    """Two apps in one process count apart."""
    first, second = Metrics("1", ENDPOINTS), Metrics("1", ENDPOINTS)
    first.request("/encode", 200, 0.1)
    name = 'headlight_requests_total{kind="inference",route="/encode",status="200"}'
    assert parse_metrics(first.exposition().decode())[name] == 1
    assert parse_metrics(second.exposition().decode())[name] == 0


def test_the_running_service_exposes_them_all(service: Service) -> None:
    """Over HTTP, in the Prometheus text format, with those of the process.

    The library's own of the garbage collector are of one interpreter, so a service of several processes has
    none; ours are of all. A service that asks for no key has no number of keys.
    """
    response = service.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    samples = parse_metrics(response.text)
    assert_complete(samples)
    assert samples["process_resident_memory_bytes{}"] > 1e7
    one = os.environ.get("TEST_PROCESSES", "1") == "1"
    assert ('python_gc_collections_total{generation="2"}' in samples) == one
    assert "headlight_api_keys{}" not in samples
    assert samples["headlight_ready{}"] == 1
    (served,) = service.http.get("/info").json()["models"]
    assert samples[f"headlight_batch_tokens_limit{{{MODEL}}}"] == served["max_batch_tokens"]
    assert 0 < samples[f"headlight_queue_tokens_limit{{{MODEL}}}"] <= served["max_queue_tokens"]
    (info,) = [sample for sample in samples if sample.startswith("headlight_model_info{")]
    for part in (MODEL, 'family="bert"', 'backend="torch"', 'device="cpu"', 'dtype="float32"'):
        assert part in info


@pytest.fixture(scope="module")
def quiet() -> Iterator[Service]:
    """A service that nobody else uses."""
    with serve() as started:
        yield started


def moved(service: Service, path: str, body: Json, status: int) -> dict[str, float]:
    """What one request changes; garbage is collected whenever it has to be."""
    before = service.metrics()
    response = post(service, body, path)
    assert response.status_code == status
    after = service.metrics()
    return {
        name.removeprefix("headlight_"): value - before.get(name, 0)
        for name, value in after.items()
        if value != before.get(name, 0)
        and name.startswith("headlight_")
        and not name.startswith("headlight_gc_")
    } | {"size": response.num_bytes_downloaded}


def test_garbage_collections_are_counted_in_every_process(quiet: Service) -> None:
    """Each collects what its start left, and what it counts is seen within a second."""
    processes = int(os.environ.get("TEST_PROCESSES", "1"))
    until = time.monotonic() + 10
    while quiet.metrics()['headlight_gc_collections_total{generation="2"}'] < processes:
        assert time.monotonic() < until
        time.sleep(0.2)


@pytest.mark.parametrize("path", ROUTES)
def test_an_answer_moves_its_numbers_by_what_it_carried(quiet: Service, path: str) -> None:
    """Inputs, tokens, cuts, batches, bytes and stages add up to what was asked and sent."""
    small = {} if path == "/encode" else {"layers": [0], "heads": [0], "queries": [0]}
    change = moved(quiet, path, {"inputs": ["one", "two words", LONG], **small}, 200)
    tokens = 3 + 4 + 256
    assert change[f'requests_total{{kind="inference",route="{path}",status="200"}}'] == 1
    assert change[f'request_duration_seconds_count{{kind="inference",route="{path}"}}'] == 1
    assert 0 < change[f'request_duration_seconds_sum{{kind="inference",route="{path}"}}'] < 20
    assert change[f'inputs_total{{{MODEL},route="{path}"}}'] == 3
    assert change[f"input_tokens_total{{{MODEL}}}"] == tokens
    assert change[f"truncated_inputs_total{{{MODEL}}}"] == 1
    assert change[f'response_bytes_total{{format="json",route="{path}"}}'] == change["size"]
    batches = change[f"batches_total{{{MODEL}}}"]
    assert 1 <= batches <= 3
    assert change[f"batch_inputs_count{{{MODEL}}}"] == change[f"batch_tokens_count{{{MODEL}}}"] == batches
    assert change[f"batch_inputs_sum{{{MODEL}}}"] == 3
    assert change[f"batch_tokens_sum{{{MODEL}}}"] == tokens
    for stage in ("tokenize", "queue", "compute", "serialize"):
        assert change[f'stage_duration_seconds_count{{{MODEL},stage="{stage}"}}'] == 1
    assert 0 <= change.get(f"padding_tokens_total{{{MODEL}}}", 0) <= tokens / 16 + 8
    still = ("queue_inputs", "queue_tokens{", "requests_in_flight", "rejected", "inference")
    assert not [name for name in change if name.startswith(still)]


def test_scrapes_of_a_second_are_the_same(quiet: Service) -> None:
    """A second scrape right after the first has the same bytes; a client can ask for the numbers of now."""
    took = 1.0
    while took >= 1.0:  # until both fit into a second, however busy the machine is
        time.sleep(1.0)
        begun = time.monotonic()
        first, second = (quiet.http.get("/metrics").content for _ in range(2))
        took = time.monotonic() - begun
    assert first == second
    now = parse_metrics(quiet.http.get("/metrics", headers={"Cache-Control": "no-cache"}).text)
    name = 'headlight_requests_total{kind="other",route="/metrics",status="200"}'
    assert now[name] == parse_metrics(second.decode())[name] + 2
    time.sleep(1.0)
    assert quiet.http.get("/metrics").content != second


@pytest.mark.parametrize("path", ROUTES)
def test_server_timing_agrees_with_the_metrics(quiet: Service, path: str) -> None:
    """What an answer says of its stages is what the histograms took in, and no more than the whole time."""
    small = {} if path == "/encode" else {"layers": [0], "heads": [0], "queries": [0]}
    before = quiet.metrics()
    response = post(quiet, {"inputs": ["one", LONG], **small}, path)
    after = quiet.metrics()
    told = dict(re.findall(r"(\w+);dur=([\d.]+)", response.headers["server-timing"]))
    assert list(told) == ["tokenize", "queue", "compute", "serialize"]
    for stage, milliseconds in told.items():
        name = f'headlight_stage_duration_seconds_sum{{{MODEL},stage="{stage}"}}'
        assert float(milliseconds) == pytest.approx(1e3 * (after[name] - before[name]), abs=0.001)
    whole = f'headlight_request_duration_seconds_sum{{kind="inference",route="{path}"}}'
    assert 0 < sum(map(float, told.values())) <= 1e3 * (after[whole] - before[whole])


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_say(quiet: Service) -> None:
    """Names, units and help texts are as Prometheus wants them, with traffic counted; also those not ours."""
    answered(post(quiet, {"inputs": "one"}))
    text = quiet.http.get("/metrics").content
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_refusal_is_counted_and_nothing_else_moves(quiet: Service) -> None:
    """A request that is not valid is one request with its status."""
    change = moved(quiet, "/encode", {"inputs": []}, 422)
    names = {name.split("{")[0] for name in change if not re.match(r'.*route="/metrics"', name)}
    assert names <= {
        "requests_total",
        "request_duration_seconds_count",
        "request_duration_seconds_sum",
        "request_duration_seconds_bucket",
        "size",
    }
    assert change['requests_total{kind="inference",route="/encode",status="422"}'] == 1


def test_unknown_paths_are_one_series(quiet: Service) -> None:
    """Whoever scans for routes does not fill the memory with series."""
    before = quiet.metrics()
    for i in range(5):
        quiet.http.get(f"/scan/{i}")
    after = quiet.metrics()
    name = 'headlight_requests_total{kind="other",route="unmatched",status="404"}'
    assert after[name] - before[name] == 5
    assert set(after) == set(before)


def test_operations_routes_are_counted(quiet: Service) -> None:
    """Each by its own name, the page's parts with the page."""
    before = quiet.metrics()
    for route in operations_labels(ENDPOINTS):
        post = ENDPOINTS.methods(route) == ("POST",)
        body = {"model": "all-MiniLM-L6-v2"} if route.startswith("/api/") else None
        quiet.http.request("POST" if post else "GET", route, json=body if post else None)
    quiet.http.get("/docs/swagger-ui.css")
    after = quiet.metrics()
    for route in operations_labels(ENDPOINTS):
        status = {"/": 307, "/api/generate": 400, "/api/chat": 400}.get(route, 200)
        name = requests_total(route, status)
        assert after[name] > before[name]
    unmatched = 'headlight_requests_total{kind="other",route="unmatched",status="200"}'
    assert after[unmatched] == before[unmatched]
