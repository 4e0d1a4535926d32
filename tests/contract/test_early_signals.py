"""A signal that comes before the service listens."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.serving import ROOT, START_S, environment, free_port

pytestmark = [pytest.mark.usefixtures("hang_up_not_ignored"), pytest.mark.thorough]

COMMANDS = {
    "module": [sys.executable, "-m", "service"],
    "script": [str(Path(sys.executable).with_name("headlight"))],
}
# What takes long to import, by the names of their files.
HEAVY = re.compile(r"pydantic_core|tokenizers|numpy|libtorch|orjson")


@contextmanager
def spawned(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(port=free_port()), stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=10)


def wait_until_heeded(process: subprocess.Popen[str], signum: signal.Signals) -> None:
    """Wait until the process has a handler of the signal, as the kernel tells."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        (caught,) = re.findall(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
        if int(caught, 16) >> (signum - 1) & 1:
            return
        time.sleep(0.001)
    raise AssertionError(f"{signum.name} is not heeded")


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_signals_are_heeded_before_anything_large_is_imported(command: list[str]) -> None:
    """The handler is what the process begins with: no library that takes time to import is there yet."""
    with spawned(command) as process:
        wait_until_heeded(process, signal.SIGTERM)
        process.send_signal(signal.SIGSTOP)
        assert not HEAVY.search(Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("command", "signum", "seconds"),
    [
        ("module", signal.SIGTERM, 0.05),
        ("module", signal.SIGTERM, 0.2),
        ("module", signal.SIGTERM, 0.5),
        ("script", signal.SIGTERM, 0.8),
        ("module", signal.SIGTERM, 1.2),
        ("script", signal.SIGINT, 0.3),
        ("module", signal.SIGHUP, 0.1),
        ("module", signal.SIGHUP, 0.8),
    ],
)
def test_a_signal_while_the_service_starts_ends_it_with_0(
    command: str, signum: signal.Signals, seconds: float
) -> None:
    """Whenever a signal comes, the exit is quick and clean, and says what happened."""
    began = time.monotonic()
    with spawned(COMMANDS[command]) as process:
        wait_until_heeded(process, signum)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        sent = time.monotonic()
        process.send_signal(signum)
        _, err = process.communicate(timeout=START_S)
        assert process.returncode == 0
        assert time.monotonic() - sent < 5
        assert f"{signum.name}: " in err
        assert "Traceback" not in err
