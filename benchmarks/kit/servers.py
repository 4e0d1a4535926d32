"""Starts, watches, pauses and ends servers and the bare model, each in its own process."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.kit import machine

_ANSWER_S = 30.0
_AS_THE_SERVICE_SETS_THEM = {"GOMP_SPINCOUNT": "2000", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "4096"}
"""Variables that the service sets, unless they are set already, before it loads PyTorch."""


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    seconds: float


def free_port() -> int:
    """Find a port that was free a moment ago."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Process:
    """A program in its own process; with `pipes`, its input and output are pipes.

    `folder` is its working directory.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        quiet: bool = False,
        pipes: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.started = time.perf_counter()
        output = subprocess.PIPE if pipes else subprocess.DEVNULL if quiet else None
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            cwd=folder,
            stdin=subprocess.PIPE if pipes else None,
            stdout=output,
            stderr=subprocess.DEVNULL if quiet else None,
        )

    def pause(self) -> None:
        """Pause the process and its children, so that they take no processor time from others."""
        self._send_all(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a paused process go on."""
        self._send_all(signal.SIGCONT)

    def _send_all(self, signum: signal.Signals) -> None:
        """Signal the process before its children, which it might take for dead otherwise."""
        pid = self.process.pid
        self.process.send_signal(signum)
        with suppress(OSError):
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
                os.kill(int(child), signum)

    def memory_mib(self, kind: str) -> float:
        """Read a line of its status in MiB; see `machine.memory_mib`."""
        return machine.memory_mib(kind, self.process.pid)

    def forget_peak(self) -> None:
        """Reset its peak memory; see `machine.forget_peak`."""
        machine.forget_peak(self.process.pid)

    def ask(self, line: str) -> Any:
        """Send one line and wait for the answer, a line of JSON."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        answer = b""
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"The program ended with exit code {self.process.wait()}.")
        return json.loads(answer)

    def end(self, timeout_s: float = 40.0) -> Ended:
        """Send SIGTERM and wait; kill the process if it does not end."""
        start = time.perf_counter()
        if self.process.poll() is None:
            self.go_on()
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return Ended(code, time.perf_counter() - start)


class Server(Process):
    """A server on a free port of the loopback; `{port}` in its command is the port it is to listen on."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        ready: str,
        quiet: bool = False,
        pipes: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._ready = ready
        super().__init__(
            [part.replace("{port}", str(self.port)) for part in command],
            environment,
            quiet=quiet,
            pipes=pipes,
            folder=folder,
        )

    def wait_until_ready(self, timeout_s: float) -> float:
        """Ask until it answers 200; returns the seconds since the process was started."""
        with httpx.Client(base_url=self.url, timeout=_ANSWER_S, trust_env=False) as client:
            while (seconds := time.perf_counter() - self.started) < timeout_s:
                if self.process.poll() is not None:
                    raise SystemExit(f"The server ended with exit code {self.process.returncode}.")
                with suppress(httpx.TransportError):
                    if client.get(self._ready).status_code == httpx.codes.OK:
                        return time.perf_counter() - self.started
                time.sleep(0.01)
        raise SystemExit(f"The server was not ready after {seconds:.0f} s.")


class Headlight(Server):
    """The service, in one process unless the settings say otherwise.

    Settings without their prefix go before those of this program's environment. `python` is that of the
    environment it is installed in, this program's by default; `folder` is a checkout to run instead of this
    one.
    """

    def __init__(
        self, *, python: str | Path = sys.executable, folder: Path | None = None, **settings: object
    ) -> None:
        environment = {
            "HEADLIGHT_LOG_LEVEL": os.environ.get("HEADLIGHT_LOG_LEVEL", "warning"),
            "HEADLIGHT_HOST": "127.0.0.1",
            **_variables({"processes": os.environ.get("HEADLIGHT_PROCESSES", "1"), **settings}),
        }
        super().__init__(
            [str(python), "-m", "service", "--port", "{port}"], environment, ready="/readyz", folder=folder
        )

    def metrics(self) -> dict[str, float]:
        """Read every sample of /metrics as of now, by its name with its labels."""
        now = {"Cache-Control": "no-cache"}
        text = httpx.get(f"{self.url}/metrics", headers=now, timeout=_ANSWER_S, trust_env=False).text
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    def total(self, name: str) -> float:
        """Add up the series of one metric."""
        return sum(v for series, v in self.metrics().items() if series.partition("{")[0] == name)


class Bare(Process):
    """The model without a service (`peers/bare_model.py`), fed with texts; settings as those of Headlight."""

    def __init__(self, texts: Sequence[str], **settings: object) -> None:
        environment = {
            **{name: os.environ.get(name, value) for name, value in _AS_THE_SERVICE_SETS_THEM.items()},
            **_variables(settings),
        }
        super().__init__([sys.executable, "-m", "benchmarks.peers.bare_model"], environment, pipes=True)
        self.lengths: list[int] = self.ask(json.dumps(list(texts)))


def _variables(settings: Mapping[str, object]) -> dict[str, str]:
    return {f"HEADLIGHT_{name.upper()}": str(value) for name, value in settings.items()}
