"""A collector of traces: receives OTLP over HTTP as protobuf, and keeps the spans."""

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


def values(attributes: Any) -> dict[str, Any]:
    """Attributes by their names."""
    told: dict[str, Any] = {}
    pair: KeyValue
    for pair in attributes:
        told[pair.key] = getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
    return told


@dataclass
class Collector:
    """What came: spans, and the resources that they came from."""

    port: int = 0
    spans: list[Span] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for group in request.resource_spans:
            self.resources.append(values(group.resource.attributes))
            for scope in group.scope_spans:
                self.spans += scope.spans

    def wait_for(self, request_id: str) -> Span:
        """The span of a request, once it has come."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            for span in list(self.spans):
                if values(span.attributes).get("headlight.request_id") == request_id:
                    return span
            time.sleep(0.02)
        raise AssertionError(f"no span of {request_id} came")

    def children(self, parent: Span) -> dict[str, Span]:
        """The spans right below one, by their names."""
        return {span.name: span for span in list(self.spans) if span.parent_span_id == parent.span_id}


@contextmanager
def collect() -> Iterator[Collector]:
    """Receive at a free port of the loopback until the end of the block."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            assert self.headers["content-type"] == "application/x-protobuf"
            collector.take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
