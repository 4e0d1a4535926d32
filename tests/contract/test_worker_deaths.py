"""Workers that end again and again: what is lost, what is counted, and when the service gives up."""

import fcntl
import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.contract.test_processes import (
    clients,
    connections,
    is_running,
    two_workers,
    wait_for_workers,
    wait_until,
    workers,
)
from tests.references.checkpoints import SUITED, write_bert
from tests.support.serving import Service, answered, serve

pytestmark = [pytest.mark.alone, pytest.mark.thorough]

KILLS = int(os.environ.get("TEST_KILLS", "40"))
TEXT = {"inputs": "A man is playing a guitar."}


def wait_for_exits(service: Service, number: int) -> None:
    """Wait until the log tells that this number of workers have ended."""
    wait_until(lambda: service.log.count("requests lost: ") == number, service)


def test_a_worker_that_always_ends_does_not_end_its_sibling() -> None:
    """More than five in a row, while no client asks for anything; they are replaced more and more slowly."""
    with two_workers() as service:
        sibling, victim = workers(service)
        for ended in range(6):
            wait_until(lambda: len(workers(service)) == 2, service)
            victim = max(set(workers(service)) - {sibling})
            os.kill(victim, signal.SIGKILL)
            wait_for_exits(service, ended + 1)
        assert workers(service) == [sibling]
        assert service.log.count("another one starts in 4 s") == 2
        for _ in range(4):
            answered(httpx.post(f"{service.url}/encode", json=TEXT, timeout=20))
        wait_for_workers(service, [victim])
        assert service.metrics()['headlight_worker_exits_total{reason="died"}'] == 6


def test_many_deaths_lose_only_what_the_dead_held() -> None:
    """Under load, one that serves and one that starts are killed by turns: each loss counts, and no more."""

    def serving() -> list[int]:
        return [pid for pid in workers(service) if connections(service, pid)]

    with serve(processes=3) as service:
        wait_until(lambda: len(workers(service)) == 3, service)
        with clients(service, 6) as ends:
            for kills in range(KILLS):
                # Another one always serves, so each death is followed by an answer.
                wait_until(lambda: len(serving()) > 1, service)
                os.kill(serving()[0] if kills % 2 else workers(service)[-1], signal.SIGKILL)
                wait_for_exits(service, kills + 1)
            wait_until(lambda: len(workers(service)) == 3, service)
            time.sleep(1)
        lost = sum(int(number) for number in re.findall(r"requests lost: (\d+)", service.log))
        sys.stdout.write(f"{KILLS} kills: {dict(ends)}, {lost} lost\n")
        assert set(ends) <= {"200", "closed"}
        service.wait_until_ready()
        wait_until(lambda: not service.metrics()["headlight_requests_in_flight{}"], service)
        samples = service.metrics()
        assert samples['headlight_worker_exits_total{reason="died"}'] == KILLS
        assert samples["headlight_lost_requests_total{}"] == lost
        assert KILLS / 4 <= lost <= ends["closed"] <= 6 * KILLS
        assert ends["200"] > 10 * KILLS


def test_weights_that_are_overwritten_in_place_are_named(tmp_path: Path) -> None:
    """The last lines say which file it is, and what to do instead; the end is that of all repeated deaths."""
    write_bert(tmp_path / "model", **SUITED)
    file = tmp_path / "model" / "model.safetensors"
    size = file.stat().st_size
    with serve(processes=2, model=tmp_path / "model", exit_code=None) as service:
        wait_until(lambda: len(workers(service)) == 2, service)
        file.write_bytes(b"")
        until = time.monotonic() + 60
        while service.process.poll() is None:
            assert time.monotonic() < until, service.log
            with suppress(httpx.TransportError):
                httpx.post(f"{service.url}/encode", json=TEXT, timeout=5)
            time.sleep(0.1)
        assert service.wait() == 70
        last = service.log.splitlines()[-1]
        assert last.startswith("headlight: 5 worker processes in a row ended")
        assert "the last ended with signal 7" in last
        for line in (last, next(line for line in service.log.splitlines() if "signal 7" in line)):
            assert f"{file} has shrunk from {size} to 0 bytes while it was served" in line
            assert "Never overwrite a served file: write the new one beside it and rename it" in line


def is_unlocked(file: Path) -> bool:
    """Whether no process holds a lock: one that was killed may give it back a moment later."""
    with file.open("r+") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def test_no_file_of_a_killed_service_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start removes at once what one left that ended without a chance to."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with two_workers(exit_code=-9) as service:
        left = workers(service)
        (folder,) = tmp_path.glob("headlight-*")
        (folder / "weights").write_bytes(bytes(1000))
        service.signal(signal.SIGKILL)
        service.wait()
        wait_until(lambda: not any(map(is_running, left)) and is_unlocked(folder / "lock"), service)
    assert folder.is_dir()
    with two_workers():
        assert not folder.exists()
        assert len(list(tmp_path.glob("*headlight-*"))) == 1
    assert not list(tmp_path.glob("*headlight-*"))
