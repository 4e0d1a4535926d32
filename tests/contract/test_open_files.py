"""When no file can be opened any more: one sentence, no spinning, and room again as soon as there can be."""

import os
import resource
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.contract.test_processes import wait_until
from tests.support.serving import Service, assert_problem, read_answer, serve

pytestmark = pytest.mark.thorough

GET = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
PART = b"GET /docs/swagger-ui.css HTTP/1.1\r\nHost: a\r\n\r\n"


def open_files(service: Service) -> set[int]:
    return {int(file.name) for file in Path(f"/proc/{service.process.pid}/fd").iterdir()}


def processor_s(service: Service) -> float:
    """Seconds of a processor that the service has used."""
    fields = Path(f"/proc/{service.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def limit(service: Service, files: int) -> None:
    _, hard = resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (files, hard))


def test_idle_connections_make_room_where_files_run_out() -> None:
    """A new client is served within seconds, though three times as many stay connected as there are files."""
    with serve(processes=1) as service, ExitStack() as stack:
        service.http.close()
        limit(service, len(open_files(service)) + 20)
        for _ in range(60):
            connection = stack.enter_context(service.connect(timeout=5))
            with suppress(ConnectionError):
                connection.sendall(GET)
        before, start = processor_s(service), time.monotonic()
        time.sleep(1)
        assert processor_s(service) - before < 0.5 * (time.monotonic() - start), "it spins"
        until = time.monotonic() + 10
        while True:
            try:
                assert service.raw(GET, timeout=2).status_code == 200
                break
            except OSError:
                assert time.monotonic() < until, "no new connection was served"
        assert service.log.count("too many open files") == 1
        assert "ulimit -n" in service.log
        assert "Traceback" not in service.log


def test_a_request_that_finds_no_file_is_told_so() -> None:
    """A part of /docs is a file, read when it is first asked for: where it cannot be, that is a 503.

    There is no traceback, and it is read by a later request, after which it needs no file.
    """
    with serve(processes=1) as service, service.connect() as connection:
        connection.sendall(GET)
        assert read_answer(connection, "GET").status_code == 200
        opened = len(open_files(service))
        service.http.close()
        wait_until(lambda: len(open_files(service)) < opened, service)
        used = open_files(service)
        least = next(number for number in range(1000) if number not in used)
        limit(service, least)
        connection.sendall(PART)
        answer = read_answer(connection, "GET")
        assert_problem(answer, 503, "not-ready")
        assert answer.headers["retry-after"] == "1"
        assert "Traceback" not in service.log
        for files in (1000, least):
            limit(service, files)
            connection.sendall(PART)
            assert read_answer(connection, "GET").status_code == 200
