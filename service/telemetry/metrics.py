"""One Prometheus registry per app; every series is present from the first scrape."""

import os
import time
from collections.abc import Collection
from typing import Any

from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    generate_latest,
)

from model.contract import ModelInfo
from service.endpoints import Endpoints
from service.problems import KINDS, NOT_OF_INFERENCE
from service.sharing.metric_values import MetricValues, Part
from service.telemetry.exposition import Exposition
from service.telemetry.garbage import GarbageCollections
from service.telemetry.processes import Processes
from service.telemetry.scrapes import Scrapes
from service.telemetry.series import Kind, Metric, Over, record

UNMATCHED = "unmatched"
CLIENT_GONE = 499
"""The status, in metrics and logs, of requests whose client disconnected or was cut off before it received
the whole response; it is never sent."""
SLOW_READER = "slow-reader"
"""The reason, in metrics and logs, for connections cut off because their client does not read."""

FAILURES = ("exception", "not-finite", "out-of-memory", "stuck")
WORKER_EXITS = ("died", "unresponsive", "hung")
STAGES = ("tokenize", "queue", "compute", "serialize")

_SECONDS = (
    *(1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
_POWERS_OF_TWO = tuple(float(2**i) for i in range(16))
_UNMATCHED_STATUSES = (200, 400, 404, 405, 408, 501, 505)
REJECTIONS = ("overloaded", "deadline-exceeded", "not-ready")
_INFERENCE_KINDS = KINDS.keys() - NOT_OF_INFERENCE


class Metrics:
    """The service's metrics. Times are in seconds, sizes in bytes or tokens.

    In a service of several processes, this process keeps its values in `part`, and writes those of all.
    """

    _record = staticmethod(record)

    def __init__(self, version: str, endpoints: Endpoints, part: Part | None = None) -> None:
        self.scrapes = Scrapes()
        self._process = CollectorRegistry()
        of_one = (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR)
        of_several = (Processes(os.getppid()), PLATFORM_COLLECTOR)
        for collector in of_one if part is None else of_several:
            self._process.register(collector)
        self._part = MetricValues().part(0) if part is None else part
        self.defined: list[Metric] = []
        self._define_requests()
        self._define_batches()
        self._define_service()
        self._keys: frozenset[str] = frozenset()
        self._inference = endpoints.inference_labels
        self._begin(version, endpoints)
        self._exposition = Exposition(self.defined, self._part)

    def _define_requests(self) -> None:
        self.requests = self._counter("requests_total", "Requests answered.", "kind", "route", "status")
        self.request_duration = self._histogram(
            "request_duration_seconds",
            "From the head of a request to the end of its response.",
            _SECONDS,
            "kind",
            "route",
        )
        self.stage_duration = self._histogram(
            "stage_duration_seconds", "Time per stage of inference requests.", _SECONDS, "stage", "model"
        )
        self.inputs = self._counter("inputs_total", "Texts and pairs processed.", "route", "model")
        self.truncated_inputs = self._counter("truncated_inputs_total", "Inputs truncated.", "model")
        self.rejected = self._counter("rejected_total", "Requests refused, timed out or cut off.", "reason")
        in_flight = self._gauge("requests_in_flight", "Inference requests in flight.", over="sum")
        self.in_flight = in_flight.labels()
        self.response_bytes = self._counter(
            "response_bytes_total", "Response body bytes as sent.", "route", "format"
        )
        self.key_requests = self._counter("key_requests_total", "Requests authorized by an API key.", "key")
        self.key_tokens = self._counter(
            "key_tokens_total", "Tokens run for complete responses to requests with an API key.", "key"
        )
        self.key_last_used = self._gauge(
            "key_last_used_timestamp_seconds", "When a key was last used; 0 if not since startup.", "key"
        )
        self.api_keys = self._gauge(
            "api_keys", "API keys accepted; absent if the service requires none.", over="own"
        )
        self.lost = self._counter(
            "lost_requests_total", "Inference requests whose worker process ended before it answered."
        ).labels()
        self.worker_exits = self._counter(
            "worker_exits_total", "Worker processes that ended and were replaced.", "reason"
        )

    def _define_batches(self) -> None:
        self.input_tokens = self._counter("input_tokens_total", "Tokens run, padding excluded.", "model")
        self.batches = self._counter("batches_total", "Batches run.", "model")
        self.batch_inputs = self._histogram("batch_inputs", "Sequences in a batch.", _POWERS_OF_TWO, "model")
        self.batch_tokens = self._histogram("batch_tokens", "Tokens in a batch.", _POWERS_OF_TWO, "model")
        self.padding_tokens = self._counter("padding_tokens_total", "Padding tokens run.", "model")
        self.queue_inputs = self._gauge("queue_inputs", "Sequences in the queue.", "model", over="sum")
        self.queue_tokens = self._gauge("queue_tokens", "Tokens in the queue.", "model", over="sum")
        # The answering process's own: another one's would be as old as the last scrape that it answered.
        self.queue_limit = self._gauge(
            "queue_tokens_limit", "Maximum number of tokens in the queue.", "model", over="own"
        )
        self.batch_limit = self._gauge("batch_tokens_limit", "Token budget of a batch.", "model", over="min")
        self.inference_failures = self._counter(
            "inference_failures_total", "Inputs whose computation failed.", "model", "reason"
        )

    def _define_service(self) -> None:
        self.model_info = self._gauge(
            "model_info", "The served models.", "model", "family", "backend", "device", "dtype", "kernels"
        )
        self.build_info = self._gauge("build_info", "The running version.", "version")
        ready = self._gauge("ready", "Whether the service takes requests.", over="own")
        self.ready = ready.labels()
        self.garbage = GarbageCollections(
            self._counter("gc_collections_total", "Garbage collections of all processes.", "generation")
        )

    def _counter(self, name: str, about: str, *labels: str) -> Metric:
        return self._define("counter", name, about, labels)

    def _gauge(self, name: str, about: str, *labels: str, over: Over = "max") -> Metric:
        """Create a gauge; `over` says how the values of several processes become one."""
        return self._define("gauge", name, about, labels, over=over)

    def _histogram(self, name: str, about: str, bounds: tuple[float, ...], *labels: str) -> Metric:
        return self._define("histogram", name, about, labels, bounds=bounds)

    def _define(self, kind: Kind, name: str, about: str, labels: tuple[str, ...], **options: Any) -> Metric:
        metric = Metric(self._part, kind, f"headlight_{name}", about, labels, **options)
        self.defined.append(metric)
        return metric

    def _begin(self, version: str, endpoints: Endpoints) -> None:
        """Create all series that are known before the first request."""
        self.build_info.labels(version).set(1)
        for endpoint in endpoints:
            if endpoint.request is not None:
                for name in getattr(endpoint.request, "formats", ("json",)):
                    self.response_bytes.labels(endpoint.label, name)
        known: list[tuple[str, Collection[int]]] = [(UNMATCHED, _UNMATCHED_STATUSES)]
        for endpoint in endpoints:
            of_kinds = {int(endpoint.error_status(kind)) for kind in _INFERENCE_KINDS}
            all_of = of_kinds | {200, CLIENT_GONE} if endpoint.inference else endpoint.statuses
            known.append((endpoint.label, all_of))
        for route, statuses in known:
            kind = self._kind(route)
            self.request_duration.labels(kind, route)
            for status in sorted(statuses):
                self.requests.labels(kind, route, str(status))
        for reason in (*REJECTIONS, SLOW_READER):
            self.rejected.labels(reason)
        for reason in WORKER_EXITS:
            self.worker_exits.labels(reason)

    def add_model(self, name: str, info: ModelInfo) -> None:
        """Create the series of a model."""
        about = (name, info.family, info.backend, info.device, info.dtype, info.kernels or "none")
        self.model_info.labels(*about).set(1)
        for stage in STAGES:
            self.stage_duration.labels(stage, name)
        for route in self._inference:
            self.inputs.labels(route, name)
        for counter in (self.input_tokens, self.truncated_inputs, self.batches, self.padding_tokens):
            counter.labels(name)
        for reason in FAILURES:
            self.inference_failures.labels(name, reason)
        self.batch_inputs.labels(name)
        self.batch_tokens.labels(name)
        self.queue(name, inputs=0, tokens=0)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        kind = self._kind(route)
        self._record(
            (self.requests.labels(kind, route, str(status)), 1),
            (self.request_duration.labels(kind, route), seconds),
        )

    def _kind(self, route: str) -> str:
        """Tell routes that take texts or ids for a model from others: rules and dashboards need no list."""
        return "inference" if route in self._inference else "other"

    def reject(self, kind: str) -> None:
        """Count a problem if it means that a request was refused or timed out."""
        if kind in REJECTIONS:
            self.rejected.labels(kind).inc()

    def keys(self, names: frozenset[str]) -> None:
        """Expose the number of these keys and the series of exactly these, not those of revoked keys."""
        self.api_keys.labels().set(len(names))
        for name in names - self._keys:
            self.key_requests.labels(name)
            self.key_tokens.labels(name)
            self.key_last_used.labels(name)
        self._keys = names

    def key_used(self, name: str) -> None:
        """Count a request authorized by this key."""
        self.key_requests.labels(name).inc()
        self.key_last_used.labels(name).set(time.time())

    def stages(self, model: str, **seconds: float) -> None:
        """Record how long the stages of one request took, by the stages' names."""
        labels = self.stage_duration.labels
        self._record(*[(labels(stage, model), time_s) for stage, time_s in seconds.items()])

    def queue(self, model: str, *, inputs: int, tokens: int) -> None:
        """Set the current length of a queue."""
        self.queue_inputs.labels(model).set(inputs)
        self.queue_tokens.labels(model).set(tokens)

    def limits(self, model: str, *, queue_tokens: int, batch_tokens: int) -> None:
        """Set the limits of the queue and of a batch, so that dashboards can show how full they are."""
        self.queue_limit.labels(model).set(queue_tokens)
        self.batch_limit.labels(model).set(batch_tokens)

    def batch(self, model: str, *, inputs: int, tokens: int, padding: int) -> None:
        """Count a batch."""
        self._record(
            (self.batches.labels(model), 1),
            (self.input_tokens.labels(model), tokens),
            (self.batch_inputs.labels(model), inputs),
            (self.batch_tokens.labels(model), tokens),
            (self.padding_tokens.labels(model), padding),
        )

    def inference_failure(self, model: str, reason: str) -> None:
        """Count an input whose computation failed, or a batch that ran out of memory or hung."""
        self.inference_failures.labels(model, reason).inc()

    def answered(self, route: str, model: str, *, inputs: int, truncated: int) -> None:
        """Count the inputs of a complete response."""
        self.inputs.labels(route, model).inc(inputs)
        if truncated:
            self.truncated_inputs.labels(model).inc(truncated)

    def inputs_of(self, model: str) -> tuple[int, int]:
        """Return the inputs of a model that this process answered, and how many of them were truncated."""
        inputs = sum(self.inputs.labels(route, model).value for route in self._inference)
        return int(inputs), int(self.truncated_inputs.labels(model).value)

    def sent(self, route: str, model: str, format_name: str, size: int, written_s: float) -> None:
        """Count the bytes of a response, and record how long they took to write."""
        self._record(
            (self.stage_duration.labels("serialize", model), written_s),
            (self.response_bytes.labels(route, format_name), size),
        )

    def exposition(self) -> bytes:
        """Write everything in the Prometheus text format. Calls must not overlap."""
        return self._exposition.write(self._keys).encode() + generate_latest(self._process)
