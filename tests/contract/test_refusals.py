"""A refusal costs no more than the request that it refuses, and is an error document of its protocol."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from statistics import median

import pytest

from service.problems import KINDS
from service.setting_values import PROTOCOLS
from tests.support.refusals import FAILURES, REFUSALS, Cost, Services, got, measure, measure_together, posted
from tests.support.serving import LONG, Service, read_answer
from tests.support.slowness import slowness

pytestmark = pytest.mark.alone

LOOP_S, SLACK = 0.0003, 2
"""Processor time of a usual processor; it doubles where another program's thread shares the core."""
PROBE_S = 0.0001
ARRIVAL_S = 0.00005
TOKENIZED = 2
"""To tokenize a short text takes as long as all else."""
BATCHES, REQUESTS, FEW = 20, 40, 5

IN_APP = [name for name, refusal in REFUSALS.items() if refusal.in_app]
WITH_ORDINARY = [
    name for name, refusal in REFUSALS.items() if refusal.ordinary is not None and refusal.place == "plain"
]


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    with ExitStack() as stack:
        yield Services(stack)


def test_the_catalogue_has_every_kind_of_refusal() -> None:
    """A new kind of problem needs a request that gets it, and each protocol has one in its form."""
    native = {refusal.kind for refusal in REFUSALS.values() if refusal.protocol == "native"}
    assert native | FAILURES == set(KINDS)
    assert not native & FAILURES
    assert {refusal.protocol for refusal in REFUSALS.values()} == {"native", *PROTOCOLS}


@pytest.mark.parametrize("name", IN_APP)
def test_a_refusal_takes_little_time_on_the_event_loop(name: str, services: Services) -> None:
    """However large the lists, objects and headers are that it is about; the best of some batches counts."""
    refusal, medians = REFUSALS[name], list[float]()
    service, count = services[refusal.place], FEW if refusal.place == "hurried" else REQUESTS
    most = SLACK * LOOP_S * (TOKENIZED if refusal.tokenized else 1)
    for _ in range(BATCHES):
        slow = slowness(time.thread_time)
        cost = measure(service, refusal.sent, count)
        assert cost.statuses == {refusal.status}
        medians.append(median(cost.loop_s) / slow)
        if medians[-1] <= most:
            break
    assert min(medians) <= most


@pytest.mark.parametrize("name", ["a full queue", "while loading"])
def test_a_refusal_on_arrival_takes_next_to_nothing(name: str, services: Services) -> None:
    """All threads of the process together, system calls included; the best of some batches counts."""
    refusal, most = REFUSALS[name], SLACK * ARRIVAL_S
    service, times = services[refusal.place], list[float]()
    for _ in range(BATCHES):
        slow = slowness(time.thread_time)
        times.append(measure_together(service, refusal.sent, refusal.status, 640) / slow)
        if times[-1] <= most:
            break
    assert min(times) <= most


@pytest.mark.parametrize("name", WITH_ORDINARY)
def test_a_refusal_takes_less_time_than_the_answer_of_its_route(name: str, services: Services) -> None:
    """Measured in turns, so that a busy machine slows both; the best of some rounds counts."""
    refusal, ratios = REFUSALS[name], list[float]()
    assert refusal.ordinary is not None
    for _ in range(BATCHES):
        refused, answered = list[float](), list[float]()
        for _ in range(4):
            refused += measure(services["plain"], refusal.sent, FEW).loop_s
            cost = measure(services["plain"], refusal.ordinary, FEW)
            assert cost.statuses == {200}
            answered += cost.loop_s
        ratios.append(median(refused) / median(answered))
        if ratios[-1] <= 1.2:
            break
    assert min(ratios) <= 1.2


@pytest.mark.parametrize(
    "path",
    [
        "/livez",
        "/readyz",
        "/health",
        "/v2/health/live",
        "/v2/health/ready",
        "/info",
        "/v1/models",
        "/openapi.json",
        "/docs",
        "/docs/swagger-ui-bundle.js",
        "/explorer",
    ],
)
def test_what_is_made_once_takes_little_time_on_the_event_loop(path: str, services: Services) -> None:
    """Probes, and pages that are the same for all who ask, however large they are."""
    measure(services["plain"], got(path), FEW)
    medians = list[float]()
    for _ in range(BATCHES):
        slow = slowness(time.thread_time)
        cost = measure(services["plain"], got(path), REQUESTS)
        assert cost.statuses == {200}
        medians.append(median(cost.loop_s) / slow)
        if medians[-1] <= SLACK * PROBE_S:
            break
    assert min(medians) <= SLACK * PROBE_S


def ratio(service: Service, sent: bytes, other: bytes, status: int, of: Callable[[Cost], float]) -> float:
    """What a request costs over what another one does, of the least in some turns."""
    first, second = list[float](), list[float]()
    for _ in range(6):
        for kept, one in ((first, sent), (second, other)):
            cost = measure(service, one, FEW)
            assert cost.statuses == {status}
            kept.append(of(cost))
    return min(first) / min(second)


@pytest.mark.parametrize("token_ids", [[1996] * 900, [[1996] * 100] * 8], ids=["one list", "lists"])
def test_ids_are_decoded_off_the_event_loop(token_ids: list[object], services: Services) -> None:
    """Hundreds take little more of its time than a few; the best of some rounds counts."""
    sent, few = (posted("/decode", {"token_ids": ids}) for ids in (token_ids, [1996] * 3))
    rounds = (ratio(services["plain"], sent, few, 200, lambda cost: min(cost.loop_s)) for _ in range(BATCHES))
    assert any(one < 2.5 for one in rounds)


def test_chunks_are_counted_before_texts_are_split(services: Services) -> None:
    """A response that would be too large for its chunks costs what one does that is so without them."""
    texts = [LONG] * 8
    chunks = posted("/encode", {"inputs": texts, "outputs": [], "chunks": {"tokens": 2, "overlap": 1}})
    tokens = posted("/encode", {"inputs": texts, "outputs": ["tokens"]})
    assert ratio(services["plain"], chunks, tokens, 413, lambda cost: cost.process_s) < 1.15


@pytest.mark.parametrize("name", REFUSALS)
def test_a_browser_takes_no_error_for_a_page(name: str, services: Services) -> None:
    """Each says that it is what its Content-Type says, those of the connection too, and has its status."""
    refusal = REFUSALS[name]
    with services[refusal.place].connect() as connection:
        connection.sendall(refusal.sent)
        answer = read_answer(connection)
    assert answer.status_code == refusal.status
    kind = "application/problem+json" if refusal.protocol == "native" else "application/json"
    assert answer.headers["content-type"] == kind
    assert answer.headers["x-content-type-options"] == "nosniff"
