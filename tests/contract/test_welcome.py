"""Whoever starts the service on a terminal is told where to look, and what to paste."""

import os
import re
import select
import shlex
import signal
import socket
import time

import httpx
import pytest

from service.settings import Settings
from service.welcome import invitation
from tests.support import forking
from tests.support.serving import START_S, Service, environment, free_port

EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing listens there


def shown_on_a_terminal(processes: int, port: int) -> str:
    """What a service writes to a terminal until its last hint, whose request it has then answered."""
    terminal, end = os.openpty()
    with os.fdopen(end, "wb", buffering=0) as output:
        started = forking.fork("service", (), environment(port=port, processes=processes), output, output)
    text, until = "", time.monotonic() + START_S
    try:
        while "curl" not in text or not text.endswith("\n"):
            left = max(0.0, until - time.monotonic())
            assert select.select([terminal], [], [], left)[0], text
            text += os.read(terminal, 65_536).decode()
        (command,) = re.findall(r"^  (curl .+)$", text.replace("\r\n", "\n"), flags=re.MULTILINE)
        _, _, url, _, header, _, body = shlex.split(command)
        name, _, value = header.partition(": ")
        answer = httpx.post(url, content=body, headers={name: value}, trust_env=False)
        assert len(answer.json()["data"][0]["embedding"]) == 3
        for address in re.findall(r"^  (http\S+/(?:docs|explorer))\b", text, flags=re.MULTILINE):
            assert httpx.get(address, trust_env=False, follow_redirects=True).status_code == 200
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(30)
        os.close(terminal)
    return text


@pytest.mark.parametrize("processes", [1, 2])
def test_a_terminal_shows_what_to_do(processes: int) -> None:
    """Once it is ready, and not before: the addresses, and a request that is answered when it is pasted."""
    port = free_port()
    text = shown_on_a_terminal(processes, port)
    assert text.index("ready: ") < text.index(f"http://127.0.0.1:{port}/docs") < text.index("curl")
    assert f"http://127.0.0.1:{port}/explorer" in text
    assert f"http://127.0.0.1:{port}/v1" in text


def test_a_log_that_is_read_by_programs_has_no_hints(service: Service) -> None:
    """What is written to a file is the log alone."""
    assert "ready: " in service.log
    assert "curl" not in service.log


def test_hints_name_what_is_served() -> None:
    """Without the explorer and OpenAI's routes neither is named; with keys the request has one."""
    few = invitation(Settings(explorer="off", protocols="none", api_keys="a"), EVERYWHERE, 8000)
    assert "explorer" not in few
    assert "/v1" not in few
    assert "curl -s http://127.0.0.1:8000/encode -H 'Authorization: Bearer KEY' " in few
    assert "Bearer" not in invitation(Settings(), "127.0.0.1", 8000)


@pytest.mark.parametrize(
    ("host", "address"),
    [("::", "[::1]"), (EVERYWHERE, "127.0.0.1"), ("::1", "[::1]"), ("10.0.0.1", "10.0.0.1")],
)
def test_addresses_can_be_opened(host: str, address: str) -> None:
    """An address that stands for all of a machine's is not one to open."""
    assert socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    assert f"  http://{address}:9/docs " in invitation(Settings(), host, 9)
