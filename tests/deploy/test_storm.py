"""Ten thousand hostile requests, with each backend: memory, files and threads stay as they were."""

import sys

import pytest

from tests.backends import Kept, both_backends
from tests.storm.siege import REQUEST_TIMEOUT_S, Siege, vectors, vitals

pytestmark = [pytest.mark.deploy, both_backends]

WARM_UP = 5000
"""Memory grows with the worst coincidence so far of large answers, which comes later and later."""
WARM_UP_ROUNDS = 200
"""Three requests each of batches of many shapes, for each of which the libraries keep code, up to a bound."""
ATTACKS = 10_000
GROWTH = 0.05
LONGEST_S = 5.0


def test_ten_thousand_hostile_requests(kept: Kept, backend: str) -> None:
    """No undocumented answer, no growth beyond 5 %, and the same answers as before."""
    with kept.embedded(backend, request_timeout_s=REQUEST_TIMEOUT_S) as service:
        siege = Siege(service)
        warm_up, _ = siege.lay(siege.attacks(WARM_UP) + siege.varied(WARM_UP_ROUNDS))
        assert warm_up.faults == []
        expected, before = vectors(service), vitals(service)
        census, watch = siege.lay(siege.attacks(ATTACKS))
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
