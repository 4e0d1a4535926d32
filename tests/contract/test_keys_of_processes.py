"""All processes of a service apply the same keys at the same moment, and only one of them reads the file."""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.test_keys import BODY, bearer, digest_of
from tests.contract.test_processes import two_workers, wait_for_workers, wait_until, workers
from tests.service.clients.test_keys import FIRST, SECOND, THIRD
from tests.support.serving import Service

pytestmark = pytest.mark.thorough


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text(FIRST, encoding="utf-8")
    return file


@pytest.fixture
def guarded(key_file: Path) -> Iterator[Service]:
    """A service of two processes with a file of keys, and one key besides."""
    with two_workers(api_keys_file=key_file, api_keys=THIRD) as started:
        yield started


def statuses(service: Service, key: str) -> Counter[int]:
    """What requests with a key get on connections of their own, which both workers accept."""
    ends: Counter[int] = Counter()
    for _ in range(30):
        with httpx.Client(trust_env=False) as client:
            ends[
                client.post(f"{service.url}/encode", json=BODY, headers=bearer(key), timeout=20).status_code
            ] += 1
    return ends


def write(file: Path, key: str) -> None:
    new = file.with_name("new")
    new.write_text(key, encoding="utf-8")
    new.replace(file)


def test_a_worker_that_stood_still_meanwhile_applies_the_same_keys(guarded: Service, key_file: Path) -> None:
    """A change that it could not read itself, because the file is gone again, counts for it too."""
    victim = workers(guarded)[0]
    os.kill(victim, signal.SIGSTOP)
    write(key_file, SECOND)
    wait_until(lambda: "the API keys have changed" in guarded.log, guarded, seconds=4)
    key_file.unlink()
    os.kill(victim, signal.SIGCONT)
    assert victim in workers(guarded)
    assert statuses(guarded, FIRST) == {401: 30}
    assert statuses(guarded, SECOND) == {200: 30}
    assert statuses(guarded, THIRD) == {200: 30}


@pytest.mark.alone
def test_a_successor_takes_the_keys_in_force(guarded: Service, key_file: Path) -> None:
    """Without a file, and with one that was never in force, because it cannot be used."""
    for content in (None, "two words"):
        key_file.unlink(missing_ok=True)
        if content is not None:
            key_file.write_text(content, encoding="utf-8")
        time.sleep(1.5)
        for _ in range(2):
            victim = workers(guarded)[0]
            os.kill(victim, signal.SIGKILL)
            wait_for_workers(guarded, [victim])
            guarded.wait_until_ready()
            assert statuses(guarded, FIRST) == {200: 30}
            assert statuses(guarded, SECOND) == {401: 30}
    key_file.write_text(SECOND, encoding="utf-8")
    changed = "the API keys have changed: 2 are accepted"
    assert wait_until(lambda: changed in guarded.log, guarded) < 4, "within two seconds"
    assert statuses(guarded, FIRST) == {401: 30}
    assert statuses(guarded, SECOND) == {200: 30}


def test_the_log_and_the_metrics_are_those_of_one_service(guarded: Service, key_file: Path) -> None:
    """Each event is logged once, whichever worker serves; a revoked key has no series in any process."""

    def named() -> set[str]:
        return set(re.findall(r'headlight_key_requests_total\{key="(\w+)"\}', "\n".join(guarded.metrics())))

    statuses(guarded, FIRST)
    assert named() == {digest_of(FIRST), digest_of(THIRD)}
    # A worker counts what it has answered after it has: at the last answer it may be about to.
    guarded.wait_for_metric(f'headlight_key_requests_total{{key="{digest_of(FIRST)}"}}', 30)
    guarded.wait_for_metric(f'headlight_key_tokens_total{{key="{digest_of(FIRST)}"}}', 90)
    samples = guarded.metrics()
    assert samples[f'headlight_key_requests_total{{key="{digest_of(FIRST)}"}}'] == 30
    assert samples[f'headlight_key_tokens_total{{key="{digest_of(FIRST)}"}}'] == 30 * 3
    assert samples["headlight_api_keys{}"] == 2
    write(key_file, SECOND)
    wait_until(lambda: "the API keys have changed" in guarded.log, guarded)
    statuses(guarded, SECOND)
    for _ in range(8):
        with guarded.new_client() as other:
            text = other.get("/metrics").text
            assert set(re.findall(r'key="(\w+)"', text)) == {digest_of(SECOND), digest_of(THIRD)}
    key_file.unlink()
    wait_until(lambda: "does not exist" in guarded.log, guarded)
    write(key_file, SECOND)
    wait_until(lambda: "is valid again" in guarded.log, guarded)
    victim = workers(guarded)[0]
    os.kill(victim, signal.SIGKILL)
    wait_for_workers(guarded, [victim])
    guarded.wait_until_ready()
    for line in (
        "2 API key(s) are accepted",
        "the API keys have changed: 2 are accepted",
        "The service keeps using the keys it read last.",
        "the API key file is valid again",
    ):
        assert guarded.log.count(line) == 1, line
