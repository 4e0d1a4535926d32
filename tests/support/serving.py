"""Starts the real service as a process of its own, and speaks to it as a client."""

import io
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from functools import cached_property
from http.client import HTTPResponse
from itertools import cycle, islice
from pathlib import Path
from typing import IO, Any

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families
from safetensors.numpy import load

from service.endpoints import Endpoints
from service.protocols.endpoints import ENDPOINTS
from tests.support import forking

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
ROUTES = ["/encode", "/attention"]
JSON, NPZ = "application/json", "application/x-npz"
SAFETENSORS, NDJSON = "application/x-safetensors", "application/x-ndjson"
JSON_TYPE = {"Content-Type": "application/json"}
KEY = "key-0123456789abcdef"
"""Of the service that is `guarded`."""
LONG = " ".join(["word"] * 300)
"""A text that is longer than the embedded model reads."""

_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used; a client that makes its own is slow to make

_PORTS = islice(cycle(range(10_000, 30_000)), os.getpid() * 2039 % 20_000, None)

START_S = 60.0
"""A start takes about two seconds; the bound is for a machine that is busy with something else."""


def free_port() -> int:
    """Find a port that nobody listens on, and that no connection is given by the system.

    One that the system gives may be another's before a service listens there: each process has its own row.
    """
    for port in _PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port
    raise AssertionError("there is no end of ports")


def environment(**settings: object) -> dict[str, str]:
    """The environment of a service: ours without what it sets itself, float32, no network, and `settings`.

    One process, unless a test says otherwise: it starts faster. `TEST_PROCESSES` is another default, and
    `TEST_DTYPE` another precision. Where two files of tests run at a time (`pytest -n 2`), a service has one
    thread: more would compete for the same cores, and start and answer for up to twice the processor time.
    """
    settings = {"processes": os.environ.get("TEST_PROCESSES", "1"), **settings}
    if "PYTEST_XDIST_WORKER" in os.environ:
        settings = {"threads": 1, **settings}
    ours = ("HEADLIGHT_", "GOMP_SPINCOUNT")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    fixed = {
        "HEADLIGHT_DTYPE": os.environ.get("TEST_DTYPE", "float32"),
        "HF_HUB_OFFLINE": "1",
        "ORT_DISABLE_TELEMETRY": "1",
    }
    return kept | fixed | {f"HEADLIGHT_{name.upper()}": str(value) for name, value in settings.items()}


def run_command(
    *arguments: str, timeout: float = START_S, afresh: bool = False, **settings: object
) -> tuple[int, str, str]:
    """Run `python -m service` to its end: exit code, standard output, standard error.

    It is forked as in `serve`, or starts `afresh`.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = _start((), "service", arguments, environment(**settings), (out, err), afresh=afresh)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        texts = [os.pread(file.fileno(), 2**24, 0).decode() for file in (out, err)]
    return code, texts[0], texts[1]


def _start(
    launcher: Sequence[str],
    module: str,
    arguments: tuple[str, ...],
    variables: dict[str, str],
    outputs: tuple[IO[bytes], IO[bytes]],
    *,
    afresh: bool,
) -> forking.Process:
    out, err = outputs
    if launcher or afresh:
        command = [*launcher, sys.executable, "-m", module, *arguments]
        return subprocess.Popen(command, cwd=ROOT, env=variables, stdout=out, stderr=err)
    return forking.fork(module, arguments, variables, out, err)


@dataclass
class Service:
    """A running service. `http` is a client of it; nothing follows redirects."""

    process: forking.Process
    port: int
    log_file: Path
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = self.new_client()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """Everything written to standard error so far."""
        return self.log_file.read_text(encoding="utf-8")

    def new_client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, verify=_TLS)

    def encode(self, inputs: object, **options: object) -> Json:
        """The answer of /encode, which must be a 200."""
        return answered(self.http.post("/encode", json={"inputs": inputs, **options}))

    def attention(self, inputs: object, **options: object) -> Json:
        """The answer of /attention, which must be a 200."""
        return answered(self.http.post("/attention", json={"inputs": inputs, **options}))

    def metrics(self) -> "Samples":
        """Every sample as of now, by its name and its sorted labels: `headlight_ready{}`."""
        return Samples(self.http.get("/metrics", headers={"Cache-Control": "no-cache"}).text)

    def line(self, request_id: str) -> Json:
        """The line of a request in a log of JSON, which is written after its answer."""
        until = time.monotonic() + 5
        while time.monotonic() < until:
            whole = self.log.rpartition("\n")[0].splitlines()
            lines = map(json.loads, whole)
            found = [line for line in lines if line.get("request_id") == request_id and "route" in line]
            if found:
                (line,) = found
                return line
            time.sleep(0.01)
        raise AssertionError(f"{request_id} is not in the log")

    def wait_until_listening(self) -> None:
        """Wait for the first answer of any kind."""
        self._wait(lambda: self.http.get("/livez").status_code == 200)

    def wait_until_ready(self) -> None:
        self._wait(lambda: self.http.get("/readyz").status_code == 200)

    def wait_for_metric(self, name: str, at_least: float) -> None:
        self._wait(lambda: self.metrics()[name] >= at_least)

    def _wait(self, happened: Any) -> None:
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            assert self.process.poll() is None, f"the service ended by itself:\n{self.log}"
            try:
                if happened():
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.02)
        raise AssertionError(f"nothing happened in {START_S} s:\n{self.log}")

    def signal(self, signum: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal to this process, by its id."""
        self.process.send_signal(signum)

    def wait(self, timeout: float = 30) -> int:
        """Wait for the end; the exit code."""
        return self.process.wait(timeout)

    def raw(self, *parts: bytes, pause: float = 0.0, timeout: float = 20) -> "Raw":
        """Send bytes as they are on a connection of their own, and read one answer."""
        with self.connect(timeout) as connection:
            for i, part in enumerate(parts):
                time.sleep(pause if i else 0.0)
                connection.sendall(part)
            return read_answer(connection)

    def connect(self, timeout: float = 20) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)


def client_at(service: Service, address: str) -> httpx.Client:
    """A client whose connections come from an address of the loopback interface."""
    transport = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=service.url, timeout=60, transport=transport)


@dataclass(frozen=True)
class Raw:
    """An answer read from a raw socket."""

    status_code: int
    headers: Message
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)


def read_answer(connection: socket.socket, method: str = "POST") -> Raw:
    """Read one HTTP answer."""
    with closing(HTTPResponse(connection, method=method)) as response:
        response.begin()
        body = response.read()
        return Raw(response.status, response.headers, body)


def operations_labels(endpoints: Endpoints) -> set[str]:
    """The labels in metrics of the endpoints for which no model runs."""
    return {endpoint.label for endpoint in endpoints if not endpoint.inference}


def kind_of(route: str) -> str:
    """The label `kind`, in metrics, of requests to a route."""
    return "inference" if route in ENDPOINTS.inference_labels else "other"


def requests_total(route: str, status: int = 200) -> str:
    """The series that counts the requests to a route that ended with a status."""
    return f'headlight_requests_total{{kind="{kind_of(route)}",route="{route}",status="{status}"}}'


@contextmanager
def serve(
    *arguments: str,
    module: str = "service",
    wait: bool = True,
    exit_code: int | None = 0,
    launcher: Sequence[str] = (),
    afresh: bool = False,
    **settings: object,
) -> Iterator[Service]:
    """Start a service, end it with SIGTERM and check its exit code; settings without the prefix.

    `launcher` is a command that becomes the service's. With it, or `afresh`, the service imports by itself
    what it needs, instead of being forked from a process that has (`forking`).
    """
    port = int(str(settings.setdefault("port", free_port())))
    # To measure the best size of batches takes seconds, which tests of that ask for with "auto".
    settings.setdefault("max_batch_tokens", 1024)
    with tempfile.TemporaryDirectory() as folder:
        log_file = Path(folder) / "log"
        with log_file.open("wb") as log:
            variables = environment(**settings)
            process = _start(launcher, module, arguments, variables, (log, log), afresh=afresh)
        service = Service(process, port, log_file)
        try:
            if wait:
                service.wait_until_ready()
            yield service
            if process.poll() is None:
                service.signal()
            code = service.wait()
            assert exit_code is None or code == exit_code, f"exit code {code}:\n{service.log}"
        finally:
            service.http.close()
            if process.poll() is None:
                process.kill()
                process.wait(10)


def post(service: Service, body: object, path: str = "/encode", **headers: str) -> httpx.Response:
    """Send a body as JSON; `X_Some_Header` is the header X-Some-Header."""
    return service.http.post(path, json=body, headers={k.replace("_", "-"): v for k, v in headers.items()})


def send(service: Service, content: bytes, path: str = "/encode") -> httpx.Response:
    """Send bytes that are declared as JSON, whatever they are."""
    return service.http.post(path, content=content, headers=JSON_TYPE)


def status_mib(service: Service, name: str) -> float:
    """A size in /proc/…/status of the service's first process, in MiB."""
    status = Path(f"/proc/{service.process.pid}/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith(name)).split()[1]) / 1024


def batches(service: Service, model: str = "all-MiniLM-L6-v2") -> float:
    """How many batches a model has run."""
    return service.metrics()[f'headlight_batches_total{{model="{model}"}}']


def answered(response: httpx.Response) -> Json:
    """The body of a 200."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    body: Json = response.json()
    return body


def read_npz(content: bytes) -> tuple[dict[str, Any], Json]:
    """The arrays of a NumPy archive, read without pickle, and the rest of the answer."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return arrays, json.loads(arrays.pop("meta").tobytes())


def read_safetensors(content: bytes) -> tuple[dict[str, Any], Json]:
    """The tensors of a safetensors file, and the rest of the answer."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return load(content), json.loads(header["__metadata__"]["headlight"])


def assert_problem(
    response: httpx.Response | Raw, status: int, kind: str, *, instance: str | None = None, **members: object
) -> Json:
    """Check that an answer is a whole problem document, with these members; returns it."""
    assert response.status_code == status, response.content[:500]
    assert response.headers["content-type"] == "application/problem+json"
    document: Json = response.json()
    assert document["type"] == f"urn:headlight:{kind}"
    assert document["status"] == status
    assert isinstance(document["title"], str)
    assert document["title"]
    assert re.search(r"\w.*[.\]]$", document["detail"], re.DOTALL), "the detail is a sentence"
    assert document["request_id"] == response.headers["x-request-id"]
    if instance is None and isinstance(response, httpx.Response):
        instance = response.request.url.path
    if instance is not None:
        assert document["instance"] == instance
    for name, value in members.items():
        assert document[name] == value, f"{name} of {document}"
    return document


def parse_metrics(text: str) -> dict[str, float]:
    """Read an exposition: `name{label="value"}`, labels sorted, `name{}` without any."""
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            samples[f"{sample.name}{{{labels}}}"] = float(sample.value)
    return samples


class Samples(Mapping[str, float]):
    """What `parse_metrics` reads, name by name as tests ask for it: parsing all takes 25 ms."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._read: dict[str, dict[str, float]] = {}

    def __getitem__(self, sample: str) -> float:
        name = sample.partition("{")[0]
        if name not in self._read:
            lines = re.findall(rf"^{re.escape(name)}[{{ ].*", self._text, re.MULTILINE)
            self._read[name] = parse_metrics("\n".join(lines))
        return self._read[name][sample]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def _all(self) -> dict[str, float]:
        return parse_metrics(self._text)


def request_bytes(
    path: str = "/encode", body: bytes = b"", headers: Sequence[str] = (), method: str = "POST"
) -> bytes:
    """A whole HTTP request, of bytes that a well-behaved client would not send."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body
