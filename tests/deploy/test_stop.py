"""A container that is stopped while it is asked by many loses nothing."""

import asyncio
import json
import time
from itertools import cycle

import pytest

from benchmarks.kit.wire import request_bytes
from benchmarks.stress.shutdown import ACROSS, ANSWERED, CUT, LOST, OTHER, REFUSED, Round, keep_asking
from tests.deploy.running import Container, running
from tests.deploy.tools import FACTS

pytestmark = pytest.mark.deploy

CONNECTIONS = 16
LOAD_S = 2.0
ROUNDS = 3
BODIES = [
    json.dumps({"inputs": inputs}).encode()
    for inputs in (
        "a short text",
        ["a sentence of some more words than that one"] * 8,
        "another short text",
        ["a longer one, which goes on and on and on, until it has quite a few words"] * 16,
    )
]


async def stop_under_load(container: Container) -> Round:
    """Ask over every connection, stop the container, and go on until connections are refused."""
    played = Round("float32")
    requests = cycle([request_bytes(container.port, "/encode", body) for body in BODIES])
    callers = [asyncio.create_task(keep_asking(container.port, played, requests)) for _ in range(CONNECTIONS)]
    await asyncio.sleep(LOAD_S)
    peak_kb = int(container.status()["VmHWM"].split()[0])
    played.signalled = time.perf_counter()
    played.code = await asyncio.to_thread(container.stop)
    played.end_s = time.perf_counter() - played.signalled
    await asyncio.wait_for(asyncio.gather(*callers), 60)
    FACTS.append(
        f"stopped under load: {played.of(ANSWERED)} answered, {played.of(REFUSED)} refused, "
        f"{played.of(LOST)} lost, {played.of(CUT)} sent after the signal and not read; "
        f"over in {played.end_s:.1f} s; at most {peak_kb / 1024:.0f} MiB of memory"
    )
    return played


@pytest.mark.parametrize("number", range(ROUNDS))
def test_stopping_under_load_loses_no_request(cpu_image: str, number: int) -> None:
    """`podman stop`, with 16 connections asking: what was accepted is answered, and the exit code is 0."""
    with running(cpu_image) as container:
        played = asyncio.run(stop_under_load(container))
    assert played.code == 0
    assert played.requests[ACROSS, ANSWERED] > 0, "something was under way when the signal came"
    assert played.of(LOST) == played.of(OTHER) == 0
