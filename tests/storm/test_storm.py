"""Hostile requests of every kind at once, beside a good client, against one real service."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.storm.driver import Census
from tests.storm.siege import KEEP_ALIVE_S, REQUEST_TIMEOUT_S, Siege, Vitals, Watch, vectors, vitals
from tests.support.serving import Service, serve

pytestmark = pytest.mark.alone

ATTACKS = 400
"""Three of most kinds; `tests/deploy/test_storm.py` has ten thousand of them, and bounds the memory."""
EXAMPLES = 4
"""Of each route's schema: these attacks send three of them, and drawing takes longer than the storm."""
LONGEST_S = 5.0
"""A quiet machine needs a twentieth of it; half the time is the attackers' own."""


@dataclass(frozen=True)
class Besieged:
    """A service after the storm."""

    service: Service
    census: Census
    watch: Watch
    before: Vitals
    exact: bool


@pytest.fixture(scope="module")
def besieged() -> Iterator[Besieged]:
    """A service that nobody else uses, with the storm behind it; it must end with exit code 0."""
    with serve(request_timeout_s=REQUEST_TIMEOUT_S, keep_alive_s=KEEP_ALIVE_S) as service:
        siege = Siege(service, examples=EXAMPLES)
        expected, before = vectors(service), vitals(service)
        census, watch = siege.lay(siege.attacks(ATTACKS))
        yield Besieged(service, census, watch, before, exact=bool((vectors(service) == expected).all()))


def test_every_attack_gets_what_is_documented(besieged: Besieged) -> None:
    """Documented statuses with whole problem documents, no 500, nothing smuggled, and an end in time."""
    assert besieged.census.faults == []
    assert besieged.census.attacks.total() >= ATTACKS


def test_good_clients_are_served_meanwhile(besieged: Besieged) -> None:
    """Their answers are right and soon there, and the same afterwards."""
    watch = besieged.watch
    assert watch.wrong == []
    assert set(watch.statuses) <= {200, 429}
    assert watch.statuses[200] > 10 * watch.statuses.get(429, 0)
    assert watch.longest_s["/livez"] < LONGEST_S
    assert besieged.exact


def test_nothing_is_left_behind(besieged: Besieged) -> None:
    """No file is left open, and no more threads run than the pools have."""
    after = vitals(besieged.service)
    assert after.files <= besieged.before.files
    assert after.threads <= besieged.before.threads + _pools()


def _pools() -> int:
    """The most threads that start when they are needed first."""
    cores = os.cpu_count() or 1
    asyncio_threads, writers, readers, background_lanes = min(32, cores + 4), min(4, cores), 2, 2
    return asyncio_threads + writers + readers + background_lanes


def test_the_log_has_a_line_for_each_and_no_texts(besieged: Besieged) -> None:
    """No traceback, nothing that a client wrote but unknown paths, and no line that a client made up."""
    log = besieged.service.log
    for line in log.splitlines():
        assert re.match(r"\d\d:\d\d:\d\d INFO    [\w:/]", line), line
    log = re.sub(r" path=[\w./~%-]+…?(?= )", "", log)  # escaped
    for written in (
        "Traceback",
        "never retrieved",
        "evil",
        "xylophone",
        "smuggled",
        "forged",
        "\x1b",
        "jndi",
    ):
        assert written not in log, written
