"""How long one short text takes, start to answer, and what of that is not the model.

Starts the service on a free port of the loopback interface and measures:

- start: seconds from the start of the process until `/readyz` answers 200;
- raw: one text at a time over one kept-alive TCP connection, written and read by hand; this is the
  figure, because a client library spends time of its own;
- httpx: the same through an `httpx.Client` with keep-alive, what a Python client sees;
- forward: the bare `TorchBackend.run` of the same packed text in the same dtype, in this process, while
  the service waits;
- the service's own account of its stages, from the header `Server-Timing`;
- memory: `VmHWM`, the most the process ever held, once ready and after many texts;
- end: the exit code after SIGTERM, and the seconds it took.

Raw, httpx and forward take turns in blocks, so that noise of the machine hits all of them. The
service runs as this program's environment says (`HEADLIGHT_…`).

    python -m benchmarks.latency [--dtype float32] [--blocks 10] [--per-block 50]
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import numpy as np

from benchmarks import common
from model.checkpoint import load_checkpoint
from model.source import EMBEDDED, resolve
from model.torch_backend import TorchBackend

_ANSWER_S = 30.0
_WARM_UP = 50
_SETTLE_S = 0.05
"""Pause between blocks: threads of a product that wait for the next one go to sleep meanwhile."""
_LONG_TEXT = "a man is playing the guitar while two small dogs watch him quietly from under the table"


def main() -> None:
    """Start the service, measure, end it, and print."""
    arguments = parse_arguments()
    server = Server(arguments.model, arguments.dtype)
    try:
        ready_s = server.wait_until_ready(arguments.start_timeout)
        backend, figures = measure(server, arguments)
        peak_at_first = server.peak_memory_mib()
        post_many(server, arguments.texts)
        peak = server.peak_memory_mib()
    finally:
        ended = server.end(arguments.end_timeout)

    common.print_facts("Machine", [*common.machine(backend.info.dtype), ("model", arguments.model)])
    print_latency(figures, arguments.text)
    common.print_facts(
        "The process of the service",
        [
            ("start until ready", f"{ready_s:.2f} s"),
            ("peak memory so far", f"{peak_at_first:.0f} MiB"),
            (f"after {arguments.texts} more texts", f"{peak:.0f} MiB"),
            ("end", f"exit code {ended.code}, {ended.seconds:.2f} s after SIGTERM"),
        ],
    )


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=EMBEDDED, help="the embedded model, a folder or a hub name")
    parser.add_argument("--dtype", default="auto", choices=["auto", "bfloat16", "float32"])
    parser.add_argument("--text", default="A man is playing the guitar on a stage.")
    parser.add_argument("--blocks", type=int, default=10, help="turns that each way of asking gets")
    parser.add_argument("--per-block", type=int, default=50, help="requests or passes in a turn")
    parser.add_argument("--texts", type=int, default=1000, help="texts sent before memory is read again")
    parser.add_argument("--start-timeout", type=float, default=120.0)
    parser.add_argument("--end-timeout", type=float, default=40.0)
    return parser.parse_args()


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    seconds: float


class Server:
    """The service as a process of its own, on a port that was free a moment ago."""

    def __init__(self, model: str, dtype: str) -> None:
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        environment = {"HEADLIGHT_LOG_LEVEL": "warning", **os.environ}
        environment |= {"HEADLIGHT_MODEL": model, "HEADLIGHT_DTYPE": dtype, "HEADLIGHT_HOST": "127.0.0.1"}
        self.started = time.perf_counter()
        command = [sys.executable, "-m", "service", "--port", str(self.port)]
        self.process = subprocess.Popen(command, env=environment)
        self.url = f"http://127.0.0.1:{self.port}"

    def wait_until_ready(self, timeout_s: float) -> float:
        """Ask `/readyz` until it answers 200; returns the seconds since the process was started."""
        with httpx.Client(base_url=self.url, timeout=_ANSWER_S) as client:
            while (seconds := time.perf_counter() - self.started) < timeout_s:
                if self.process.poll() is not None:
                    raise SystemExit(f"The service ended with exit code {self.process.returncode}.")
                with suppress(httpx.TransportError):
                    if client.get("/readyz").status_code == httpx.codes.OK:
                        return time.perf_counter() - self.started
                time.sleep(0.01)
        raise SystemExit(f"The service was not ready after {seconds:.0f} s.")

    def peak_memory_mib(self) -> float:
        """Read the most memory the process ever held, in MiB; NaN where there is no /proc."""
        status = Path(f"/proc/{self.process.pid}/status")
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
        return int(found[1]) / 1024 if found else float("nan")

    def end(self, timeout_s: float) -> Ended:
        """Send SIGTERM and wait; a process that stays is killed."""
        start = time.perf_counter()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return Ended(code, time.perf_counter() - start)


class RawConnection:
    """One kept-alive HTTP/1.1 connection that sends the same bytes again and again."""

    def __init__(self, port: int, body: bytes) -> None:
        head = f"POST /encode HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        self.request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        self.port = port
        self.connect()

    def connect(self) -> None:
        """Open the connection."""
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=_ANSWER_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self) -> bytes:
        """Send the request and read the whole answer; returns its head.

        A connection that the service closed while nobody asked is opened again.
        """
        answer = self._ask()
        if not answer:
            self.close()
            self.connect()
            answer = self._ask()
        while (end := answer.find(b"\r\n\r\n")) < 0:
            answer += self._more()
        head = answer[:end]
        missing = int(_header(head, "content-length")) - (len(answer) - end - 4)
        while missing > 0:
            missing -= len(self._more())
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"/encode answered {head.decode()}")
        return head

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def _ask(self) -> bytes:
        """Send the request and wait for the first bytes of the answer; none when the connection is closed."""
        with suppress(ConnectionError):
            self.socket.sendall(self.request)
            return self.socket.recv(65536)
        return b""

    def _more(self) -> bytes:
        data = self.socket.recv(65536)
        if not data:
            raise SystemExit("The service closed the connection in the middle of an answer.")
        return data


def _header(head: bytes, name: str) -> str:
    found = re.search(rf"^{name}:\s*(.*?)\s*$", head.decode("latin-1"), re.MULTILINE | re.IGNORECASE)
    if found is None:
        raise SystemExit(f"/encode answered without {name}: {head.decode('latin-1')}")
    return found[1]


@dataclass
class Figures:
    """Milliseconds of every call, by way of asking, and of the stages the service tells."""

    calls: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    stages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    tokens: int = 0


def measure(server: Server, arguments: argparse.Namespace) -> tuple[TorchBackend, Figures]:
    """Let the ways of asking take turns, block by block."""
    checkpoint = load_checkpoint(resolve(arguments.model))
    backend = TorchBackend(
        checkpoint,
        device=os.environ.get("HEADLIGHT_DEVICE", "auto"),
        dtype=arguments.dtype,
        threads=int(os.environ.get("HEADLIGHT_THREADS", "0")) or None,
    )
    encodings = checkpoint.tokenizer.encode([arguments.text])
    figures = Figures(tokens=len(encodings[0]))
    body = json.dumps({"inputs": arguments.text}).encode()
    headers = {"Content-Type": "application/json"}
    raw = RawConnection(server.port, body)
    with closing(raw), httpx.Client(base_url=server.url, timeout=_ANSWER_S, headers=headers) as client:
        calls: dict[str, Callable[[], object]] = {
            "raw": lambda: tell_stages(raw.post(), figures),
            "forward": partial(backend.run, common.pack_encodings(encodings, backend.info)),
            "httpx": lambda: client.post("/encode", content=body).raise_for_status().content,
        }
        for call in calls.values():
            time_calls(call, _WARM_UP)
        figures.stages.clear()
        for _ in range(arguments.blocks):
            for name, call in calls.items():
                figures.calls[name] += time_calls(call, arguments.per_block)
    return backend, figures


def time_calls(call: Callable[[], object], count: int) -> list[float]:
    """Time calls one after the other, in milliseconds each, after a pause."""
    time.sleep(_SETTLE_S)
    milliseconds = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        milliseconds.append((time.perf_counter() - start) * 1000)
    return milliseconds


def tell_stages(head: bytes, figures: Figures) -> None:
    """Keep the durations of `Server-Timing: tokenize;dur=0.1, …`."""
    for stage, duration in re.findall(r"([\w-]+);dur=([\d.]+)", _header(head, "server-timing")):
        figures.stages[stage].append(float(duration))


def post_many(server: Server, count: int) -> None:
    """Post short texts of different lengths, one at a time."""
    words = _LONG_TEXT.split()
    with httpx.Client(base_url=server.url, timeout=_ANSWER_S) as client:
        for i in range(count):
            text = f"{' '.join(words[: 1 + i % len(words)])} {i}"
            client.post("/encode", json={"inputs": text}).raise_for_status()


def print_latency(figures: Figures, text: str) -> None:
    """Print percentiles of every way of asking and of every stage, and what HTTP adds to the model."""
    common.print_table(
        f"Milliseconds for one text of {figures.tokens} tokens: {text!r}",
        ["way", "calls", "p50", "p90", "p99"],
        [percentiles(name, values) for name, values in figures.calls.items()]
        + [percentiles(f"  stage {name}", values) for name, values in figures.stages.items()],
    )
    p50 = {name: float(np.median(values)) for name, values in figures.calls.items()}
    common.print_facts(
        "Added to the forward pass, p50",
        [(name, f"{p50[name] - p50['forward']:+.2f} ms") for name in ("raw", "httpx")],
    )


def percentiles(name: str, milliseconds: Sequence[float]) -> list[str]:
    """Make a row of the table."""
    return [name, str(len(milliseconds)), *(f"{p:.2f}" for p in np.percentile(milliseconds, [50, 90, 99]))]


if __name__ == "__main__":
    main()
