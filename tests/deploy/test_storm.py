"""Ten thousand hostile requests, with each backend: memory, files and threads stay as they were."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.engine.trimming import IDLE_S
from tests.storm.siege import KEEP_ALIVE_S, REQUEST_TIMEOUT_S, Siege, vectors, vitals
from tests.support.backends import Kept, both_backends
from tests.support.serving import Service, post

pytestmark = [pytest.mark.deploy, both_backends]

WARM_UP = 2000
WARM_UP_ROUNDS = 200
"""Three requests each of batches of many shapes."""
BATCH = 1024
LONGEST = 256
ATTACKS = 10_000
GROWTH = 0.05
LONGEST_S = 5.0


def run_every_size(service: Service) -> None:
    """Run batches of every size, alone and side by side: libraries keep code for each, up to a bound.

    Attacks alone come to that bound slowly: they meet a new size after thousands of others.
    """

    def run(size: int) -> int:
        lengths = [LONGEST] * (size // LONGEST) + [size % LONGEST] * (size % LONGEST > 0)
        body = {"inputs": ["a " * max(0, length - 2) for length in lengths], "dimensions": 2}
        return post(service, body).status_code

    sizes = range(8, BATCH + 1, 8)
    assert {run(size) for size in sizes} == {200}
    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(run, [size for size in sizes for _ in range(12)])) == {200}


def test_ten_thousand_hostile_requests(kept: Kept, backend: str) -> None:
    """No undocumented answer, no growth beyond 5 %, and the same answers as before.

    Memory is compared at rest: what libraries keep of it under load is as much as the worst coincidence took.
    """
    with kept.embedded(backend, request_timeout_s=REQUEST_TIMEOUT_S, keep_alive_s=KEEP_ALIVE_S) as service:
        siege = Siege(service)
        warm_up, _ = siege.lay(siege.attacks(WARM_UP) + siege.varied(WARM_UP_ROUNDS))
        assert warm_up.faults == []
        run_every_size(service)
        expected = vectors(service)
        time.sleep(2 * IDLE_S)
        before = vitals(service)
        census, watch = siege.lay(siege.attacks(ATTACKS))
        time.sleep(2 * IDLE_S)
        after = vitals(service)
        sys.stdout.write(f"{backend}: {before}, {after}, longest {watch.longest_s}, {watch.statuses}\n")
        assert census.faults == []
        assert census.attacks.total() >= ATTACKS
        assert set(watch.statuses) <= {200, 429}
        assert watch.wrong == []
        assert watch.longest_s["/livez"] < LONGEST_S
        assert after.resident_mib <= (1 + GROWTH) * before.resident_mib
        assert after.files <= before.files
        assert after.threads <= before.threads
        assert (vectors(service) == expected).all()
        assert "Traceback" not in service.log
        assert "never retrieved" not in service.log
