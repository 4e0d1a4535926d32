"""The catalogue of refusals: for each kind of problem a request that gets it, and what that costs."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from tests.support.doubles import HANG
from tests.support.serving import LONG, Service, read_answer, request_bytes, serve

Place = Literal["plain", "guarded", "loading", "full", "hurried"]
"""The service that a request is sent to: an ordinary one, or one that requires a key, that is loading, whose
queue is full, or that soon loses patience."""

MODEL = "all-MiniLM-L6-v2"
KEY = "key-0123456789abcdef"
_TIMED = "tests.support.timed"
_SETTINGS: dict[str, Any] = {
    "log_level": "error",
    "max_inputs": 8,
    "max_body_bytes": 2**16,
    "max_response_bytes": 10**5,
}
_LONGEST = 4096
# More than compute at a time on the cores of a small machine.
_LANES = 6
_TOGETHER = 64


def posted(path: str, body: object, *headers: str) -> bytes:
    """A request with a body of JSON, or with these bytes."""
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    return request_bytes(path, content, headers)


def got(path: str, *headers: str) -> bytes:
    """A request without a body."""
    return request_bytes(path, b"", headers, "GET")


@dataclass(frozen=True)
class Refusal:
    """A request that is refused, in whose route `ordinary` is one that is not."""

    kind: str
    sent: bytes
    status: int
    ordinary: bytes | None = None
    protocol: str = "native"
    place: Place = "plain"
    in_app: bool = True
    """False if the connection refuses it: no app has seen it."""
    tokenized: bool = False
    """Whether its tokens must be known first."""


_GOOD = {"inputs": "a", "dimensions": 2}
_ENCODE = posted("/encode", _GOOD)
_EMBEDDINGS = posted("/v1/embeddings", {"input": "a", "dimensions": 2})
_EMBED = posted("/embed", {"inputs": "a", "dimensions": 2})
_COHERE = posted("/v2/embed", {"texts": ["a"]})
_TEXT = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a"]}
_INFER = f"/v2/models/{MODEL}/infer"
_OIP = posted(_INFER, {"inputs": [_TEXT]})
_OLLAMA = posted("/api/embed", {"model": MODEL, "input": "a", "dimensions": 2})
_PAGE = "/docs/swagger-ui.css"


def encode(
    kind: str,
    status: int,
    *headers: str,
    place: Place = "plain",
    tokenized: bool = False,
    in_app: bool = True,
    **body: object,
) -> Refusal:
    """A refusal of `/encode`."""
    sent = posted("/encode", _GOOD | body, *headers)
    return Refusal(kind, sent, status, _ENCODE, place=place, tokenized=tokenized, in_app=in_app)


def connection(kind: str, status: int, sent: bytes) -> Refusal:
    """A refusal before any app sees a request."""
    return Refusal(kind, sent, status, in_app=False)


REFUSALS: dict[str, Refusal] = {
    "no JSON": Refusal("malformed-json", posted("/encode", b'{"inputs": '), 400, _ENCODE),
    "no HTTP": connection("malformed-request", 400, b"GARBAGE\r\n\r\n"),
    "no key": encode("unauthorized", 401, place="guarded"),
    "a wrong key": encode("unauthorized", 401, "Authorization: Bearer other", place="guarded"),
    "no key for /info": Refusal("unauthorized", got("/info"), 401, place="guarded"),
    "no route": Refusal("not-found", got("/nothing"), 404, got("/info")),
    "no file of a page": Refusal("not-found", got("/docs/nothing.js"), 404, got(_PAGE)),
    "no model": encode("model-not-found", 404, model="gpt"),
    "a wrong method": Refusal("method-not-allowed", got("/encode"), 405, _ENCODE),
    "no format": encode("not-acceptable", 406, "Accept: text/html"),
    "many formats": encode("not-acceptable", 406, "Accept: " + "a/b;q=0.1," * 700),
    "a late body": Refusal(
        "request-timeout",
        b"POST /encode HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{",
        408,
        place="hurried",
    ),
    "a large body": encode("body-too-large", 413, inputs="a" * 2**16),
    "many inputs": encode("too-many-inputs", 413, inputs=["a"] * 9),
    "a large response": Refusal(
        "response-too-large",
        posted("/attention", {"inputs": "a " * 20}),
        413,
        posted("/attention", {"inputs": "a", "layers": [0], "heads": [0]}),
        tokenized=True,
    ),
    "a large explanation": Refusal(
        "explanation-too-large",
        posted("/explain", {"inputs": [["a " * 254] * 2] * 8, "method": "heads"}),
        413,
        posted("/explain", {"inputs": [["a", "a"]]}),
        tokenized=True,
    ),
    "no content type": encode("unsupported-media-type", 415, "Content-Type: text/plain"),
    "a long content type": encode("unsupported-media-type", 415, "Content-Type: a/b;" + "a=b;" * 230),
    "a wrong value": encode("invalid-request", 422, pooling="median"),
    "a missing field": Refusal("invalid-request", posted("/encode", {"input": "a"}), 422, _ENCODE),
    "an unknown field": encode("invalid-request", 422, colour="red"),
    "many unknown fields": Refusal(
        "invalid-request", posted("/encode", {f"truncation_side_{i}": i for i in range(60)}), 422, _ENCODE
    ),
    "many wrong values": encode(
        "invalid-request", 422, layers={}, top_k={}, pooling={}, role={}, task={}, model={}, precision={}
    ),
    "many outputs": encode("invalid-request", 422, outputs=["x"] * _LONGEST),
    "many layers": encode("invalid-request", 422, outputs=["tokens"], layers=[0] * (_LONGEST + 1)),
    "no layer": encode("invalid-request", 422, outputs=["tokens"], layers=[99]),
    "a query": Refusal("invalid-request", posted("/encode?pooling=cls", _GOOD), 422, _ENCODE),
    "many statistics": Refusal(
        "invalid-request",
        posted("/attention", {"inputs": "a", "summary": True, "statistics": ["x"] * _LONGEST}),
        422,
    ),
    "many fields of an object": Refusal(
        "invalid-request",
        posted("/rerank", {"query": "a", "texts": ["a"], "attention": {str(i): i for i in range(500)}}),
        422,
    ),
    "no token": Refusal("invalid-request", posted("/decode", {"token_ids": [10**6]}), 422),
    "a long input": encode("input-too-long", 422, inputs=LONG, truncate=False, tokenized=True),
    "no head": Refusal("unsupported", posted("/predict", {"inputs": "a"}), 422),
    "a short deadline": Refusal(
        "deadline-too-short",
        posted("/similarity", {"source": "a", "texts": [LONG] * 7}, "X-Request-Timeout-Ms: 30"),
        422,
        tokenized=True,
    ),
    "a full queue": encode("overloaded", 429, place="full", in_app=False),
    "a version of HTTP": connection("http-version-not-supported", 505, b"GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
    "a transfer coding": connection(
        "transfer-coding-not-implemented",
        501,
        b"POST /encode HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    ),
    "while loading": encode("not-ready", 503, place="loading", in_app=False),
    "a probe while loading": Refusal("not-ready", got("/readyz"), 503, got("/readyz"), place="loading"),
    "OpenAI": Refusal("invalid-request", posted("/v1/embeddings", {}), 400, _EMBEDDINGS, "openai"),
    "OpenAI: a model": Refusal("model-not-found", got("/v1/models/gpt"), 404, got("/v1/models"), "openai"),
    "Cohere": Refusal("invalid-request", posted("/v2/embed", {}), 400, _COHERE, "cohere"),
    "Cohere: many types": Refusal(
        "invalid-request",
        posted("/v2/embed", {"texts": ["a"], "embedding_types": ["x"] * _LONGEST}),
        400,
        _COHERE,
        "cohere",
    ),
    "TEI": Refusal("invalid-request", posted("/embed", {"inputs": []}), 400, _EMBED, "tei"),
    "OIP": Refusal("invalid-request", posted(_INFER, {}), 400, _OIP, "oip"),
    "OIP: many tensors": Refusal(
        "invalid-request", posted(_INFER, {"inputs": [{}] * _LONGEST}), 400, _OIP, "oip"
    ),
    "OIP: a method": Refusal("method-not-allowed", got(_INFER), 405, _OIP, "oip"),
    "OIP: a route": Refusal("not-found", got("/v2/nothing"), 404, protocol="oip"),
    "Ollama": Refusal(
        "invalid-request", posted("/api/embed", {"model": MODEL, "input": [1]}), 400, _OLLAMA, "ollama"
    ),
    "Ollama: a model": Refusal("model-not-found", posted("/api/show", {"model": "gpt"}), 404, None, "ollama"),
}
"""By what is wrong with the request."""

FAILURES = frozenset(("inference-failed", "internal-error", "deadline-exceeded"))
"""The kinds of problems that are no refusals: something failed, or did not end in time."""


class Services:
    """The services of the catalogue, each started when it is first needed.

    The one whose queue is full is started anew each time: it is full for some seconds only.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._started: dict[Place, Service] = {}

    def __getitem__(self, place: Place) -> Service:
        if place not in self._started or place == "full":
            self._started[place] = _STARTS[place](self._stack)
        return self._started[place]


def _plain(stack: ExitStack) -> Service:
    return stack.enter_context(serve(module=_TIMED, **_SETTINGS))


def _guarded(stack: ExitStack) -> Service:
    return stack.enter_context(serve(module=_TIMED, api_keys=KEY, **_SETTINGS))


def _hurried(stack: ExitStack) -> Service:
    return stack.enter_context(serve(module=_TIMED, log_level="error", request_timeout_s=0.05))


def _loading(stack: ExitStack) -> Service:
    started = stack.enter_context(serve("--loading", module=_TIMED, wait=False, exit_code=None, **_SETTINGS))
    started.wait_until_listening()
    return started


@contextmanager
def filled(service: Service) -> Iterator[None]:
    """Keep a queue of one token full inside the `with` block: all lanes hang, and one text waits."""
    with ExitStack() as stack:
        for _ in range(_LANES + 1):
            client = stack.enter_context(service.connect())
            client.sendall(request_bytes(body=b'{"inputs": "%s"}' % HANG.encode()))
            time.sleep(0.3)
        service.wait_for_metric(f'headlight_queue_tokens{{model="{MODEL}"}}', 1)
        yield


def _full(stack: ExitStack) -> Service:
    """Start a service that runs what ends in a minute, and whose queue takes one."""
    settings = _SETTINGS | {"max_queue_tokens": 1, "drain_timeout_s": 0.5}
    started = stack.enter_context(serve("--hanging", module=_TIMED, exit_code=None, **settings))
    stack.enter_context(filled(started))
    return started


_STARTS: dict[Place, Callable[[ExitStack], Service]] = {
    "plain": _plain,
    "guarded": _guarded,
    "hurried": _hurried,
    "loading": _loading,
    "full": _full,
}


@dataclass(frozen=True)
class Cost:
    """The statuses of some requests, and what each took: in the app on the event loop, and altogether."""

    statuses: set[int]
    loop_s: list[float]
    """Sorted, and empty if no app has seen the requests."""
    process_s: float
    """Processor time of all threads of the process, on average."""


def measure(service: Service, sent: bytes, count: int) -> Cost:
    """Send a request over and over, on one connection as long as it stays open."""
    method = sent.partition(b" ")[0].decode()
    service.http.get("/times")
    statuses, connected = set[int](), service.connect()
    clock = _clock_of(service.process.pid)
    before = time.clock_gettime(clock)
    try:
        for _ in range(count):
            connected.sendall(sent)
            answer = read_answer(connected, method)
            statuses.add(answer.status_code)
            if answer.headers["connection"] == "close":
                connected.close()
                connected = service.connect()
        process_s = (time.clock_gettime(clock) - before) / count
    finally:
        connected.close()
    return Cost(statuses, sorted(1e-9 * ns for ns, _ in service.http.get("/times").json()), process_s)


def measure_together(service: Service, sent: bytes, status: int, count: int) -> float:
    """Send a request on many connections at once, over and over; returns the processor time of each."""
    connections = [service.connect() for _ in range(_TOGETHER)]
    expected, clock = b"HTTP/1.1 %d " % status, _clock_of(service.process.pid)
    before = time.clock_gettime(clock)
    for _ in range(count // _TOGETHER):
        for one in connections:
            one.sendall(sent)
        for one in connections:
            assert one.recv(65536).startswith(expected)
    process_s = time.clock_gettime(clock) - before
    for one in connections:
        one.close()
    return process_s / (count // _TOGETHER * _TOGETHER)


def _clock_of(pid: int) -> int:
    """The clock of the processor time of another process, as clock_getcpuclockid(3) makes it on Linux."""
    return (~pid << 3) | 2
