"""Containers of the service, as an operator runs them, and a client of each."""

import itertools
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.deploy.containers import inspect, podman
from tests.deploy.tools import tool
from tests.support.serving import START_S, Json, answered, free_port

HARDENED = (
    "--read-only",
    "--tmpfs=/tmp:size=64m",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--memory=512m",
)
_numbers = itertools.count()


@dataclass
class Container:
    """A container of the service that listens on every address of this thread's network."""

    name: str
    port: int
    http: httpx.Client

    def encode(self, inputs: object, **options: object) -> Json:
        """The answer of /encode, which must be a 200."""
        return answered(self.http.post("/encode", json={"inputs": inputs, **options}))

    def attention(self, inputs: object, **options: object) -> Json:
        """The answer of /attention, which must be a 200."""
        return answered(self.http.post("/attention", json={"inputs": inputs, **options}))

    def is_healthy(self) -> bool:
        """What the image's health check says now."""
        check = [tool("podman"), "healthcheck", "run", self.name]
        return subprocess.run(check, capture_output=True, check=False, timeout=60).returncode == 0

    def wait_until_ready(self) -> None:
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            try:
                if self.http.get("/readyz").status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            assert inspect(self.name)["State"]["Running"], f"the container has ended:\n{self.log()}"
            time.sleep(0.02)
        raise AssertionError(f"not ready after {START_S} s:\n{self.log()}")

    def stop(self) -> int:
        """Send SIGTERM and wait, killing it after 40 seconds; returns the exit code."""
        podman("stop", "--time", "40", self.name)
        return self.exit_code()

    def exit_code(self) -> int:
        """Wait for the end; the exit code."""
        return int(podman("wait", self.name))

    def log(self) -> str:
        """Everything written to standard output and error."""
        shown = subprocess.run(
            [tool("podman"), "logs", self.name], capture_output=True, text=True, check=False, timeout=60
        )
        return shown.stdout + shown.stderr

    def run(self, *command: str) -> str:
        """Run a command in the container; returns what it prints."""
        return podman("exec", self.name, *command)

    def status(self) -> dict[str, str]:
        """The lines of /proc/PID/status of its first process."""
        pid = inspect(self.name)["State"]["Pid"]
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@contextmanager
def running(
    image: str, *, options: Sequence[str] = HARDENED, wait: bool = True, **variables: str
) -> Iterator[Container]:
    """Run an image until the end of the block, and leave nothing of it behind."""
    name, port = f"headlight-test-{next(_numbers)}", free_port()
    podman("rm", "--force", "--ignore", "--time", "0", name)
    try:
        given = [
            f"--env={variable}={value}" for variable, value in {"HEADLIGHT_PORT": port, **variables}.items()
        ]
        podman("run", "--detach", "--name", name, *options, *given, image)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as http:
            container = Container(name, port, http)
            if wait:
                container.wait_until_ready()
            yield container
    finally:
        podman("rm", "--force", "--ignore", "--time", "0", name)
