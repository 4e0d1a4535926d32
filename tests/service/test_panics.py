"""A library in Rust that fails at an assertion of its own fails one request, and not in silence."""

import pytest

from service.engine.engine import Engine
from service.lifecycle import Phase, ServiceState
from service.memory_limits import Memory
from service.protocols.endpoints import ENDPOINTS
from service.settings import read_settings
from tests.support.serving import JSON, NDJSON, Service, assert_problem, post

FAILED = 'headlight_requests_total{kind="inference",route="/encode",status="500"}'


@pytest.mark.parametrize("accept", [JSON, NDJSON])
@pytest.mark.parametrize("words", [1, 1000], ids=["on the event loop", "in a thread"])
def test_a_panic_is_a_500_of_its_request(failing: Service, words: int, accept: str) -> None:
    """A problem document, counted and logged once as what it is; the next request is answered."""
    before, logged = failing.metrics()[FAILED], failing.log.count("Traceback")
    inputs = [["a " * words, "b"]]
    response = post(failing, {"inputs": inputs}, Accept=accept)
    assert_problem(response, 500, "internal-error")
    assert failing.metrics()[FAILED] == before + 1
    assert "PanicException" in failing.log
    # The panic itself and the error made of it are one record with two tracebacks.
    assert failing.log.count(f"request {response.headers['x-request-id']} failed") == 1
    assert failing.log.count("Traceback") <= logged + 2
    assert failing.encode("a text")["data"]


@pytest.mark.parametrize("error", [type("PanicException", (BaseException,), {}), ValueError])
def test_a_panic_while_loading_ends_the_start(error: type[BaseException]) -> None:
    """Like any other error there: the process ends and says why, and does not load for ever."""

    def load(*_: object) -> dict[str, Engine]:
        raise error("at an assertion")

    state = ServiceState(read_settings(), ENDPOINTS, load)
    state.load()
    assert state.phase is Phase.FAILED
    assert state.failure == f"{error.__name__}: at an assertion"


def test_an_error_after_the_models_are_loaded_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is planned then is as much a part of it."""

    def fail(*_: object) -> None:
        raise ValueError("no plan")

    monkeypatch.setattr(Memory, "plan", fail)
    state = ServiceState(read_settings(), ENDPOINTS, lambda *_: {})
    state.load()
    assert state.failure == "ValueError: no plan"
