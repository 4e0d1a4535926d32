"""Clients of a running service: what a good day has, and what a bad one has besides."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from tests.support.doubles import POISON
from tests.support.serving import LONG, NDJSON, NPZ, SAFETENSORS, Service

Client = Callable[[httpx.Client], object]

_SMALL_MAP = {"layers": [0], "heads": [0], "queries": [0]}
_MANY = {"inputs": ["some words that are many " * 12] * 8, "dimensions": 2}
_CROWD = 6
KEY = "key-0123456789abcdef"
"""What these clients send, for services that ask for one."""


def ordinary(http: httpx.Client) -> None:
    """One of everything: both routes in all formats, cut texts, clients' mistakes, unknown paths."""
    for path, options in (("/encode", {}), ("/attention", _SMALL_MAP)):
        http.post(path, json={"inputs": ["a text", "another one"], **options})
        for accept in (NPZ, SAFETENSORS, NDJSON):
            http.post(path, json={"inputs": "a text", **options}, headers={"Accept": accept})
        http.post(path, json={"inputs": [LONG], **options})
        http.post(path, json={"inputs": []})
    http.post("/encode", json={"inputs": "a text", "model": "another"})
    for path in ("/livez", "/health", "/info", "/nowhere"):
        http.get(path)
    time.sleep(0.05)


def embeddings(http: httpx.Client) -> None:
    """What a client of OpenAI's sends, one text and several."""
    for texts in ("a text", ["a text", "another one"]):
        http.post("/v1/embeddings", json={"input": texts, "model": "all-MiniLM-L6-v2"}).raise_for_status()
    time.sleep(0.05)


def unlucky(http: httpx.Client) -> None:
    """What cannot be computed, and what cannot be in time."""
    http.post("/encode", json={"inputs": f"some {POISON}"})
    http.post("/encode", json=_MANY, headers={"X-Request-Timeout-Ms": "1"})
    time.sleep(0.05)


def crowd(http: httpx.Client) -> None:
    """More than fits the queue, again and again."""
    http.post("/encode", json=_MANY)
    time.sleep(0.05)


@contextmanager
def clients(service: Service, *kinds: Client) -> Iterator[None]:
    """Have clients of these kinds ask until the end of the block; a crowd is several of them."""
    ended = threading.Event()

    def ask(client: Client) -> None:
        with service.new_client() as http:
            http.headers["Authorization"] = f"Bearer {KEY}"
            while not ended.is_set():
                client(http)

    wanted = [kind for kind in kinds for _ in range(_CROWD if kind is crowd else 1)]
    threads = [threading.Thread(target=ask, args=(kind,)) for kind in wanted]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
