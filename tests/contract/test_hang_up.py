"""SIGHUP, which a terminal sends when it is closed, drains the service as SIGTERM does."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest

from tests.contract.test_processes import HANGING, SLOW, SLOWER, is_running, wait_until, workers
from tests.support.serving import answered, assert_problem, serve

pytestmark = [pytest.mark.usefixtures("hang_up_not_ignored"), pytest.mark.thorough]

both = pytest.mark.parametrize("processes", [1, 2])


@both
def test_what_was_accepted_is_answered(processes: int) -> None:
    """New requests are refused meanwhile, the exit code is 0, and the log says which signal came."""
    with serve(**HANGING, processes=processes) as service, ThreadPoolExecutor(2) as pool:
        pending = [pool.submit(httpx.post, f"{service.url}/encode", json=SLOW, timeout=60) for _ in range(2)]
        service.wait_for_metric("headlight_requests_in_flight{}", 2)
        service.signal(signal.SIGHUP)
        wait_until(lambda: httpx.get(f"{service.url}/readyz").status_code == 503, service)
        assert_problem(httpx.get(f"{service.url}/readyz"), 503, "not-ready", phase="draining")
        for answer in pending:
            assert len(answered(answer.result(60))["data"]) == 8
        assert service.wait() == 0
        assert service.log.count("SIGHUP: draining for at most 30 s, requests in flight: 2") == 1
        assert service.log.count("requests cut off: 0") == 1


@both
def test_a_second_one_ends_at_once(processes: int) -> None:
    """Exit code 128 and its number, the requests cut off are counted, and no process is left."""
    with (
        serve(**HANGING, processes=processes, exit_code=None) as service,
        ThreadPoolExecutor(1) as pool,
    ):
        left = workers(service)
        pending = pool.submit(httpx.post, f"{service.url}/encode", json=SLOWER, timeout=60)
        service.wait_for_metric("headlight_requests_in_flight{}", 1)
        service.signal(signal.SIGHUP)
        wait_until(lambda: "SIGHUP: draining" in service.log, service)
        time.sleep(0.7)  # two that come together count as one
        service.signal(signal.SIGHUP)
        assert service.wait() == 128 + signal.SIGHUP
        assert "SIGHUP again: stopped at once, requests cut off: 1" in service.log
        with suppress(httpx.TransportError):
            pending.result(20)
        wait_until(lambda: not any(map(is_running, left)), service)


@both
def test_under_nohup_it_is_ignored(processes: int) -> None:
    """A user who starts it so wants it to go on when the terminal is closed."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with serve(processes=processes) as service:
        for process in (service.process.pid, *workers(service)):
            os.kill(process, signal.SIGHUP)
        time.sleep(0.5)
        service.encode("It goes on.")
        assert "SIGHUP" not in service.log
