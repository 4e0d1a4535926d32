"""Requests that ask for much in few bytes: they cost what is different in them, not what is repeated."""

import io
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.support.backends import Kept, both_backends
from tests.support.serving import LONG, NPZ, Service, answered, assert_problem, post, status_mib
from tests.support.slowness import slowness

pytestmark = [both_backends, pytest.mark.thorough]

REPEATED = [1] * 4096
PIECES = " ".join(
    "".join(f"{letter}{(i * 7 + j) % 10}" for j in range(8) for letter in "xqz") for i in range(6)
)
"""Words of many pieces each."""


@pytest.fixture(scope="module")
def quiet(kept: Kept, backend: str) -> Iterator[Service]:
    """A service that nobody else uses."""
    with kept.embedded(backend) as started:
        yield started


def resident(service: Service) -> float:
    return service.metrics()["process_resident_memory_bytes{}"]


def anonymous(service: Service) -> float:
    """Bytes that no file backs: code that runs for the first time is no part of what maps take."""
    return status_mib(service, "RssAnon") * 2**20


@pytest.mark.alone
def test_a_word_that_is_repeated_costs_as_much_as_once(quiet: Service) -> None:
    """4096 times a word of dozens of pieces, of every map, is answered at once."""
    body = {"inputs": [PIECES], "level": "word", "keys": REPEATED, "top_k": 1}
    once = answered(post(quiet, body | {"keys": [1]}, "/attention"))
    before, slow, start = resident(quiet), slowness(), time.monotonic()
    (item,) = answered(post(quiet, body, "/attention"))["data"]
    assert time.monotonic() - start < 5 * slow
    assert resident(quiet) - before < 100e6
    assert len(item["keys"]) == 4096
    assert item["top_weights"] == once["data"][0]["top_weights"]
    weights, residual = (np.array(item[name]) for name in ("top_weights", "residual"))
    assert np.abs(residual - 4095 * weights[..., 0]).max() <= 4095 * 1e-6


@pytest.mark.alone
def test_what_is_too_large_is_refused_before_it_is_laid_out(quiet: Service) -> None:
    """Lists of 4096 for each of 256 long inputs are a 413, soon and without their memory."""
    body = {"inputs": [PIECES] * 256, "level": "word", "queries": REPEATED, "keys": REPEATED}
    before, slow, start = resident(quiet), slowness(), time.monotonic()
    assert_problem(post(quiet, body, "/attention"), 413, "response-too-large")
    assert time.monotonic() - start < 5 * slow
    assert resident(quiet) - before < 200e6


def test_what_large_maps_took_is_given_back(kept: Kept, backend: str) -> None:
    """Some seconds after the last of them, the process is about as large as before the first."""
    body = {"inputs": [LONG, LONG]}
    with kept.embedded(backend) as service, ThreadPoolExecutor(6) as pool:
        post(service, {"inputs": "short"}, "/attention")
        before = anonymous(service)
        list(pool.map(lambda _: post(service, body, "/attention", Accept=NPZ), range(24)))
        deadline = time.monotonic() + 15
        while anonymous(service) - before > 30e6 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert anonymous(service) - before < 30e6


@pytest.mark.parametrize("options", [{"top_k": 1}, {"level": "word"}], ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_sums_of_the_largest_of_heads_are_no_probabilities(
    quiet: Service, options: dict[str, object], dtype: str
) -> None:
    """They may be more than 1: the numbers of JSON are right, and the error of archives is what they say."""
    body = {"inputs": [PIECES, LONG], "aggregate": "max", **options}
    plain = answered(post(quiet, body | {"decimals": 9}, "/attention"))["data"]
    response = post(quiet, body, f"/attention?dtype={dtype}", Accept=NPZ)
    archive = np.load(io.BytesIO(response.content), allow_pickle=False)
    meta = json.loads(archive["meta"].tobytes())
    largest = 0.0
    for i, item in enumerate(plain):
        for name in {"attention", "top_weights", "residual"} & set(item):
            exact = np.array(item[name])
            read = archive[f"{i}.{name}"].astype(np.float32) * np.float32(meta["scale"])
            assert np.abs(read - exact).max() <= meta["max_error"] + 2e-6
            largest = max(largest, exact.max())
    assert largest > 1.05
