"""Traces of requests: what a collector gets, and that nothing is sent unless it is asked for."""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from service.settings import Settings
from service.telemetry.spans import OtlpTraces
from service.telemetry.traces import TracesError, open_traces
from tests.support.collector import Collector, collect, values
from tests.support.serving import (
    LONG,
    NDJSON,
    ROOT,
    ROUTES,
    Service,
    assert_problem,
    environment,
    free_port,
    run_command,
    serve,
)

pytestmark = pytest.mark.thorough

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
SMALL = {"/encode": {}, "/attention": {"layers": [0], "heads": [0], "queries": [0]}}
STAGES = ["tokenize", "queue", "compute", "serialize"]


@contextmanager
def variables(**values: str) -> Iterator[None]:
    """Set variables of OpenTelemetry for the services that are started meanwhile."""
    before = dict(os.environ)
    os.environ.update({f"OTEL_{name}": value for name, value in values.items()})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collect() as started:
        yield started


@pytest.fixture(scope="module")
def traced(collector: Collector) -> Iterator[Service]:
    """A service that sends its traces there, soon after they are made."""
    endpoint = f"http://127.0.0.1:{collector.port}"
    with (
        variables(EXPORTER_OTLP_ENDPOINT=endpoint, BSP_SCHEDULE_DELAY="50"),
        serve(traces="otlp", log_format="json", request_timeout_s=20) as started,
    ):
        yield started


def assert_within(outer: Span, inner: Span) -> None:
    assert outer.start_time_unix_nano <= inner.start_time_unix_nano
    assert inner.start_time_unix_nano <= inner.end_time_unix_nano <= outer.end_time_unix_nano


@pytest.mark.parametrize("path", ROUTES)
def test_a_request_is_a_span_with_its_stages_within_its_trace(
    traced: Service, collector: Collector, path: str
) -> None:
    """Joined to the client's span, described by the semantic conventions, its stages one after the other."""
    name = f"trace-{path[1:]}"
    headers = {"X-Request-ID": name, "traceparent": PARENT, "tracestate": "vendor=1"}
    before = time.time_ns()
    answer = traced.http.post(path, json={"inputs": ["one", LONG], **SMALL[path]}, headers=headers)
    after = time.time_ns()
    assert answer.status_code == 200
    span = collector.wait_for(name)
    assert (span.name, span.kind) == (f"POST {path}", Span.SPAN_KIND_SERVER)
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.trace_state) == (
        TRACE_ID,
        SPAN_ID,
        "vendor=1",
    )
    assert before <= span.start_time_unix_nano < span.end_time_unix_nano <= after + 10**9
    told = values(span.attributes)
    assert told["http.request.method"] == "POST"
    assert told["http.route"] == told["url.path"] == path
    assert told["http.response.status_code"] == 200
    assert (told["headlight.model"], told["headlight.inputs"]) == ("all-MiniLM-L6-v2", 2)
    assert told["headlight.input_tokens"] == 3 + 256
    assert told["http.response.body.size"] == answer.num_bytes_downloaded
    assert told["client.address"] == "127.0.0.1"
    assert span.status.code == Status.STATUS_CODE_UNSET
    stages = collector.children(span)
    assert list(stages) == STAGES
    for stage in stages.values():
        assert stage.trace_id == span.trace_id
        assert_within(span, stage)
    for one, next_one in pairwise(STAGES):
        assert stages[one].end_time_unix_nano <= stages[next_one].start_time_unix_nano + 1000
    line = traced.line(name)
    assert (line["trace_id"], line["span_id"]) == (TRACE_ID, span.span_id.hex())
    for stage, seconds in line["stages"].items():
        lasted = stages[stage].end_time_unix_nano - stages[stage].start_time_unix_nano
        assert lasted == pytest.approx(1e9 * seconds, abs=2000)


def test_the_resource_is_the_service(traced: Service, collector: Collector) -> None:
    """By the name that is known from elsewhere, and its version."""
    traced.http.post("/encode", json={"inputs": "a"}, headers={"X-Request-ID": "resource"})
    collector.wait_for("resource")
    assert collector.resources[0]["service.name"] == "headlight"
    assert collector.resources[0]["service.version"] == traced.http.get("/info").json()["version"]


def test_without_a_parent_a_trace_begins_here(traced: Service, collector: Collector) -> None:
    """Also where the traceparent is not valid; the log has its ids, to find it by."""
    headers = {"X-Request-ID": "root", "traceparent": PARENT.upper(), "tracestate": 'secret" text'}
    traced.http.post("/encode", json={"inputs": "a"}, headers=headers)
    span = collector.wait_for("root")
    assert span.parent_span_id == b""
    assert span.trace_id.hex() != TRACE_ID
    line = traced.line("root")
    assert (line["trace_id"], line["span_id"]) == (span.trace_id.hex(), span.span_id.hex())


def test_a_stream_and_a_failure_are_told_as_they_were(traced: Service, collector: Collector) -> None:
    """Of ndjson the stages that have times of their own; of a 422 and a 504 how far they came."""
    headers = {"X-Request-ID": "lines", "Accept": NDJSON}
    traced.http.post("/encode", json={"inputs": ["a", "b"]}, headers=headers)
    assert set(collector.children(collector.wait_for("lines"))) == {"tokenize", "queue", "serialize"}
    traced.http.post("/encode", json={"inputs": []}, headers={"X-Request-ID": "invalid"})
    span = collector.wait_for("invalid")
    assert (values(span.attributes)["http.response.status_code"], collector.children(span)) == (422, {})
    assert span.status.code == Status.STATUS_CODE_UNSET
    headers = {"X-Request-ID": "late", "X-Request-Timeout-Ms": "1"}
    late = traced.http.post("/encode", json={"inputs": [LONG] * 64}, headers=headers)
    assert_problem(late, 504, "deadline-exceeded")
    span = collector.wait_for("late")
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert values(span.attributes)["error.type"] == "504"


def test_what_the_client_does_not_sample_is_not_sent(traced: Service, collector: Collector) -> None:
    """The default sampler follows the client; nor are probes traced."""
    headers = {"X-Request-ID": "unsampled", "traceparent": PARENT[:-1] + "0"}
    traced.http.post("/encode", json={"inputs": "a"}, headers=headers)
    traced.http.get("/livez", headers={"X-Request-ID": "probe"})
    traced.http.post("/encode", json={"inputs": "a"}, headers={"X-Request-ID": "sampled"})
    collector.wait_for("sampled")
    ids = {values(span.attributes).get("headlight.request_id") for span in collector.spans}
    assert not {"unsampled", "probe"} & ids
    assert traced.line("unsampled")["span_id"] == SPAN_ID


def test_a_tracestate_that_is_not_valid_is_not_logged(traced: Service) -> None:
    """It is the client's own text; its traceparent counts."""
    headers = {"X-Request-ID": "state", "traceparent": PARENT, "tracestate": "xylophone quartz"}
    traced.http.post("/encode", json={"inputs": "a"}, headers=headers)
    assert traced.line("state")["trace_id"] == TRACE_ID
    assert "xylophone" not in traced.log


def test_the_end_sends_what_waits(collector: Collector) -> None:
    """Spans that would have waited for a minute come before the process ends; OTEL_ names it and samples."""
    with (
        variables(
            EXPORTER_OTLP_TRACES_ENDPOINT=f"http://127.0.0.1:{collector.port}/v1/traces",
            BSP_SCHEDULE_DELAY="60000",
            SERVICE_NAME="encoder-7",
            TRACES_SAMPLER="always_on",
        ),
        serve(traces="otlp") as service,
    ):
        headers = {"X-Request-ID": "last", "traceparent": PARENT[:-1] + "0"}
        service.http.post("/encode", json={"inputs": "a"}, headers=headers)
        service.signal()
        service.wait()
    assert collector.wait_for("last").trace_id.hex() == TRACE_ID
    assert collector.resources[-1]["service.name"] == "encoder-7"


def test_a_collector_that_is_gone_holds_nothing_up() -> None:
    """Requests are answered as ever, the log says so in a sentence, and the end does not wait for it."""
    with (
        variables(EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}", BSP_SCHEDULE_DELAY="10"),
        serve(traces="otlp", log_format="json", log_level="debug") as service,
    ):
        for _ in range(20):
            start = time.perf_counter()
            assert service.http.post("/encode", json={"inputs": "a"}).status_code == 200
            assert time.perf_counter() - start < 5
        until = time.monotonic() + 10
        while "traces may be lost" not in service.log:
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(2)
        start = time.monotonic()
        service.signal()
        service.wait()
        assert time.monotonic() - start < 6
        told = [
            line for line in map(json.loads, service.log.splitlines()) if line["logger"] != "service.access"
        ]
        assert len([line for line in told if "traces may be lost" in line["message"]]) == 1
        assert not [line for line in told if line["logger"].startswith(("opentelemetry", "urllib3"))]


def test_nothing_is_loaded_or_sent_unless_it_is_asked_for(collector: Collector) -> None:
    """A variable that others have set for their own programs is no wish of ours."""
    code = (
        "import sys; from service.app import create_app; from service.settings import Settings\n"
        "assert create_app(Settings()).state.service.traces is None\n"
        "costly = ('opentelemetry.sdk', 'opentelemetry.exporter', 'service.telemetry.spans')\n"
        "print([name for name in sys.modules if name.startswith(costly)])"
    )
    told = environment() | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}"}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=told,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (
            {"EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc': it must be http/protobuf",
        ),
        ({"EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "it must begin with http:// or https://"),
        ({"BSP_MAX_QUEUE_SIZE": "1"}, "Traces cannot be exported: "),
    ],
)
def test_traces_that_cannot_be_sent_end_the_start(told: dict[str, str], says: str) -> None:
    """Exit code 2 and one sentence, rather than spans that nobody gets."""
    with variables(**told):
        code, _, err = run_command(traces="otlp")
    assert code == 2
    assert says in err.splitlines()[-1]
    assert "Traceback" not in err


def test_without_the_extra_the_start_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a sentence that names it."""
    for name in ("service.telemetry.spans", "opentelemetry.exporter.otlp.proto.http.trace_exporter"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    with pytest.raises(TracesError, match="install the extra `otel`"):
        open_traces(Settings(traces="otlp"), "1", {})


def test_the_sdk_can_be_disabled_as_everywhere() -> None:
    """OTEL_SDK_DISABLED turns it off, whatever we are told."""
    assert open_traces(Settings(traces="otlp"), "1", {"OTEL_SDK_DISABLED": "TRUE"}) is None


def test_what_the_libraries_complain_of_is_said_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """Once a minute, in a line; and as ever once the traces are closed."""
    library = logging.getLogger("opentelemetry.sdk.trace.export")
    with variables(EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}"):
        traces = OtlpTraces("1")
    try:
        for i in range(5):
            library.warning("it fails\nagain: %d", i)
    finally:
        traces.close(5)
    (line,) = caplog.messages
    assert line.endswith("it fails again: 0")
    library.warning("aloud")
    assert caplog.messages[1:] == ["aloud"]
