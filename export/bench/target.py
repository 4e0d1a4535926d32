"""The service that is measured: one that is running, or one that is started for the measurement."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO
from urllib.parse import urlsplit

import httpx
import orjson

from export.bench.load import LoadError

_START_S = 600.0
_END_S = 40.0
_POLL_S = 0.05
_TOLD = "headlight: "
_KEYS = ("HEADLIGHT_API_KEYS", "HEADLIGHT_API_KEYS_FILE")


@dataclass(frozen=True)
class Target:
    """A service and one of its models; `key` is the API key that it needs, if any."""

    url: str
    model: str | None = None
    key: str | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where to connect."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 80

    def describe(self) -> dict[str, str | int]:
        """Ask for the model's entry in `/info`; raises LoadError."""
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        try:
            answer = httpx.get(f"{self.url}/info", headers=headers, trust_env=False)
            models: list[dict[str, str | int]] = answer.raise_for_status().json()["models"]
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
            raise LoadError(f"{self.url} does not describe its models at /info: {error}") from error
        found = [model for model in models if self.model in (None, model["name"])]
        if not found:
            raise LoadError(f"{self.url} does not serve {self.model}")
        return found[0]

    def request(self, text: str) -> bytes:
        """Write the request that encodes a text."""
        body = orjson.dumps({"inputs": text, **({} if self.model is None else {"model": self.model})})
        parts = urlsplit(self.url)
        key = "" if self.key is None else f"Authorization: Bearer {self.key}\r\n"
        return (
            f"POST {parts.path.rstrip('/')}/encode HTTP/1.1\r\nHost: {parts.netloc}\r\n{key}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body


@contextmanager
def started(models: Sequence[str]) -> Iterator[Target]:
    """Start a service on a free port, with the environment's settings but no API keys; raises LoadError."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-P", "-m", "service", *models, "--host", "127.0.0.1", "--port", str(port)]
    environment = {name: value for name, value in os.environ.items() if name not in _KEYS}
    with _log_file() as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)  # noqa: S603
        try:
            target = Target(f"http://127.0.0.1:{port}")
            if not _is_ready(target, process):
                log.seek(0)
                raise LoadError(f"the service did not start: {reason(log.read().decode(errors='replace'))}")
            yield target
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _log_file() -> IO[bytes]:
    """Open a file that has no name; in memory where no folder can be written, as with a read-only root."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return os.fdopen(os.memfd_create("log"), "w+b")


def reason(log: str) -> str:
    """Find the sentence with which the service ended, which is not always its last line."""
    lines = log.splitlines() or ["it did not become ready"]
    told = [line for line in lines if line.startswith(_TOLD)]
    return (told or lines)[-1].removeprefix(_TOLD)


def _is_ready(target: Target, process: "subprocess.Popen[bytes]") -> bool:
    """Wait until a service is ready; False if it ends before, or takes too long."""
    until = time.monotonic() + _START_S
    with httpx.Client(base_url=target.url, trust_env=False) as client:
        while process.poll() is None and time.monotonic() < until:
            with suppress(httpx.TransportError):
                if client.get("/readyz").is_success:
                    return True
            time.sleep(_POLL_S)
    return False
