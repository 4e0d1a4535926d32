"""The requests of rude clients, accepted and refused, beside which `polite.py` measures."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MODEL = "all-MiniLM-L6-v2"
_PROSE = "The quick brown fox jumps over the lazy dog and looks at the moon. "
_SHORT = "What is the weather today?"
_LONG = _PROSE * 30
_MIXED = [" ".join(["word"] * (3 + 7 * i % 60)) for i in range(32)]
_MANY = [_PROSE + str(i) for i in range(256)]
_LARGEST_BATCH = [" ".join(["word"] * 254)] * 256
_TOO_LARGE = 2_100_000
_LARGEST = 2 * 2**20 - 200


@dataclass(frozen=True)
class Noise:
    """A request that is sent again on each connection as soon as it is answered.

    `drip` bytes of its end are sent one at a time. After `leave_s` seconds the client closes the connection
    and opens another. `keys` says that it is for a service with keys, of which the request has none.
    """

    request: bytes
    drip: int = 0
    leave_s: float | None = None
    keys: bool = False


def noises(key: str | None = None) -> dict[str, Noise]:
    """Make all kinds of requests, by their names; they carry a key, if there is one."""
    lines = [f"Authorization: Bearer {key}"] if key else []

    def post(route: str, body: object, *further: str) -> bytes:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return _bytes_of("POST", route, content, [*lines, *further])

    def get(route: str, *further: str, method: str = "GET") -> bytes:
        return _bytes_of(method, route, b"", [*lines, *further])

    return {
        **{name: Noise(request) for name, request in _accepted(post).items()},
        **{name: Noise(request) for name, request in _explained(post).items()},
        **{name: Noise(request) for name, request in _refused(post, get).items()},
        **{name: Noise(get(f"/{name}")) for name in ("livez", "info", "metrics", "openapi.json", "docs")},
        "explorer": Noise(get("/explorer")),
        "preflight": Noise(
            get("/encode", "Origin: http://a", "Access-Control-Request-Method: POST", method="OPTIONS")
        ),
        "no key, 401": Noise(_bytes_of("POST", "/encode", b'{"inputs": "a"}', []), keys=True),
        "malformed HTTP, 400": Noise(b"POST /encode HTTP/1.1\r\nHost localhost\r\n\r\n"),
        "new connections": Noise(post("/encode", {"inputs": _SHORT}, "Connection: close")),
        "bytes one by one": Noise(post("/encode", {"inputs": _SHORT}), drip=38),
        "clients that leave": Noise(post("/encode", {"inputs": _MIXED}), leave_s=0.05),
    }


def _accepted(post: Callable[..., bytes]) -> dict[str, bytes]:
    """Requests that are answered with 200 by the embedded model, those of other protocols among them."""
    npz = "Accept: application/x-npz"
    query = {"query": _SHORT, "texts": _MIXED}
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [_SHORT]}
    return {
        "short text": post("/encode", {"inputs": _SHORT}),
        "32 mixed texts": post("/encode", {"inputs": _MIXED}),
        "256 texts": post("/encode", {"inputs": _MANY}),
        "256 longest texts": post("/encode", {"inputs": _LARGEST_BATCH}),
        "long text": post("/encode", {"inputs": _LONG}),
        "text of 2 MB": post("/encode", {"inputs": _PROSE * (_LARGEST // len(_PROSE) - 1)}),
        "punctuation of 2 MB": post("/encode", {"inputs": "!" * (_LARGEST - 100)}),
        "token vectors": post("/encode", {"inputs": _LONG, "outputs": ["tokens"]}),
        "token vectors, gzip": post(
            "/encode", {"inputs": _LONG, "outputs": ["tokens"]}, "Accept-Encoding: gzip"
        ),
        "sentences": post("/encode", {"inputs": _LONG, "chunks": "sentences", "outputs": []}),
        "maps": post("/attention", {"inputs": _LONG}),
        "summary": post("/attention", {"inputs": _LONG, "summary": True, "maps": False}),
        "maps, npz": post("/attention", {"inputs": _LONG}, npz),
        "rerank": post("/rerank", query),
        "similarity": post("/similarity", {"texts": _MIXED}),
        "tokenize": post("/tokenize", {"inputs": _MANY}),
        "decode": post("/decode", {"token_ids": [list(range(2_000, 2_256))] * 16}),
        "tei": post("/embed", {"inputs": _MIXED}),
        "openai": post("/v1/embeddings", {"model": MODEL, "input": _MIXED}),
        "cohere": post(
            "/v2/embed",
            {
                "model": MODEL,
                "texts": _MIXED,
                "input_type": "search_query",
                "embedding_types": ["float", "int8"],
            },
        ),
        "oip": post(f"/v2/models/{MODEL}/infer", {"inputs": [tensor]}),
    }


def _explained(post: Callable[..., bytes]) -> dict[str, bytes]:
    """Explanations by every method, for which up to some 80,000 tokens run."""
    pairs = [[_LONG, _PROSE * 8]] * 4
    bodies: dict[str, dict[str, object]] = {
        "parts": {"inputs": pairs, "method": "parts"},
        "occlusion": {"inputs": pairs[:1], "method": "occlusion"},
        "heads": {"inputs": pairs[:2], "method": "heads"},
        "faithfulness": {"inputs": pairs, "method": "parts", "faithfulness": True},
    }
    return {f"explain: {name}": post("/explain", body) for name, body in bodies.items()}


def _refused(post: Callable[..., bytes], get: Callable[..., bytes]) -> dict[str, bytes]:
    """Requests that are refused, by their names with the status."""
    short = {"inputs": _SHORT}
    return {
        "4,096 outputs, 422": post("/encode", {**short, "outputs": ["x"] * 4_096}),
        "100,000 chunks, 422": post("/encode", {**short, "chunks": [[0, 1]] * 100_000}),
        "4,096 chunks, 422": post("/encode", {**short, "chunks": [[7, 7]] * 4_096}),
        "100,000 layers, 422": post("/encode", {**short, "layers": [99] * 100_000, "outputs": ["tokens"]}),
        "unknown fields, 422": post("/encode", {**short, **{f"field{i}": i for i in range(1_000)}}),
        "wrong types, 422": post("/encode", {"inputs": [{"a": 1}] * 10_000}),
        "too long, 422": post("/encode", {"inputs": _LONG, "truncate": False}),
        "predict, 422": post("/predict", short),
        "malformed JSON, 400": post("/encode", b'{"inputs": [' + b'"a",' * 10_000),
        "deep JSON, 400": post("/encode", b'{"inputs": ' + b"[" * 100_000),
        "too many inputs, 413": post("/encode", {"inputs": ["a"] * 100_000}),
        "large body, 413": post("/encode", {"inputs": "a" * _TOO_LARGE}),
        "large sweep, 413": post("/explain", {"inputs": [[_LONG, _LONG]] * 64, "method": "heads"}),
        "large answer, 413": post("/attention", {"inputs": [_LONG] * 64}),
        "media type, 415": post("/encode", short, "Content-Type: text/plain"),
        "accept, 406": post("/encode", short, "Accept: image/png"),
        "route, 404": get("/nothing/here"),
        "model, 404": post("/encode", {**short, "model": "m" * 1_000}),
        "method, 405": get("/encode"),
    }


def _bytes_of(method: str, route: str, body: bytes, lines: Sequence[str]) -> bytes:
    head = [f"{method} {route} HTTP/1.1", "Host: localhost", *lines]
    if method == "POST":
        if not any(line.startswith("Content-Type:") for line in lines):
            head.append("Content-Type: application/json")
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode() + body
