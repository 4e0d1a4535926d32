"""Every format over HTTP: the same numbers, sent whole or in pieces, and refusals of what has no effect."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from backports import zstd

from tests.support.backends import both_backends
from tests.support.doubles import DRAG
from tests.support.serving import (
    JSON,
    LONG,
    NDJSON,
    NPZ,
    ROUTES,
    SAFETENSORS,
    Json,
    Service,
    assert_problem,
    post,
    read_npz,
    read_safetensors,
    request_bytes,
    serve,
)

pytestmark = both_backends

TEXTS = ["The cat sat on the mat.", "one", ""]
BODIES: dict[str, Json] = {
    "/encode": {"inputs": TEXTS, "outputs": ["sentence", "tokens"], "layers": [0, -1]},
    "/attention": {"inputs": TEXTS, "layers": [0, 5], "heads": [3, 0], "decimals": 9},
}
LARGE: dict[str, Json] = {
    "/encode": {"inputs": [LONG] * 2, "outputs": ["tokens"], "layers": [0, -1]},
    "/attention": {"inputs": LONG, "layers": [0, 1]},
}
READERS = {NPZ: read_npz, SAFETENSORS: read_safetensors}


def raw(service: Service, path: str, body: Json, **headers: str) -> tuple[httpx.Headers, bytes]:
    """The bytes of a 200 as they were sent."""
    names = {"Accept-Encoding": "identity"} | {k.replace("_", "-"): v for k, v in headers.items()}
    with service.http.stream("POST", path, json=body, headers=names) as response:
        content = b"".join(response.iter_raw())
        assert response.status_code == 200, content
        return response.headers, content


Ask = Callable[[str, Json], Json]


@pytest.fixture(scope="module")
def in_json(service: Service) -> Ask:
    """The answers in JSON, each of which is asked for once: other formats are compared with them."""
    sent: dict[str, bytes] = {}

    def ask(path: str, body: Json) -> Json:
        question = f"{path} {json.dumps(body)}"
        if question not in sent:
            sent[question] = raw(service, path, body)[1]
        answer: Json = json.loads(sent[question])
        return answer

    return ask


def without_decimals(body: Json) -> Json:
    return {name: value for name, value in body.items() if name != "decimals"}


@pytest.mark.in_turns
@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("bodies", [BODIES, LARGE], ids=["short", "long"])
@pytest.mark.parametrize("path", ROUTES)
def test_binary_formats_carry_the_numbers_of_json(
    service: Service, in_json: Ask, path: str, bodies: dict[str, Json], dtype: str, kind: str
) -> None:
    """All arrays and columns are those of the JSON answer, as near as declared; the size is told before."""
    if dtype == "uint8" and path == "/encode":
        pytest.skip("there are no maps")
    expected = in_json(path, bodies[path])
    headers, content = raw(service, f"{path}?dtype={dtype}", without_decimals(bodies[path]), Accept=kind)
    assert headers["content-type"] == kind
    assert int(headers["content-length"]) == len(content)
    arrays, rest = READERS[kind](content)
    assert rest["dtype"] == dtype
    rounding = 0.0 if path == "/encode" else 0.5e-9 if bodies is BODIES else 0.5e-6
    for i, item in enumerate(expected["data"]):
        for name in ("embedding", "token_embeddings", "attention"):
            assert (name in item) == (f"{i}.{name}" in arrays)
            if (numbers := item.pop(name, None)) is None:
                continue
            stored = arrays[f"{i}.{name}"]
            assert stored.dtype == dtype
            scale = np.float32(rest["scale"]) if dtype == "uint8" else np.float32(1)
            exact = np.array(numbers, dtype=np.float32)
            assert stored.shape == exact.shape
            # One text alone or in a batch differs by 2e-6; JSON adds its rounding.
            bound = rest["max_error"] + rounding + 2e-6 * max(1.0, float(np.abs(exact).max(initial=0)))
            assert np.abs(stored.astype(np.float32) * scale - exact).max(initial=0) <= bound
    assert rest["data"] == expected["data"]
    assert rest["usage"] == expected["usage"]
    assert rest.get("axes") == expected.get("axes")


@pytest.mark.parametrize("bodies", [BODIES, LARGE], ids=["short", "long"])
@pytest.mark.parametrize("path", ROUTES)
def test_lines_are_the_items_of_json(
    service: Service, in_json: Ask, path: str, bodies: dict[str, Json]
) -> None:
    """Each line is a whole item, in any order, and the last one has the rest."""
    expected = in_json(path, bodies[path])
    headers, content = raw(service, path, bodies[path], Accept=NDJSON)
    assert headers["content-type"] == NDJSON
    assert headers["transfer-encoding"] == "chunked"
    assert content.endswith(b"\n")
    *items, last = [json.loads(line) for line in content.splitlines()]
    assert last == {name: value for name, value in expected.items() if name != "data"}
    items.sort(key=lambda item: item["index"])
    for item, other in zip(items, expected["data"], strict=True):
        assert item.keys() == other.keys()
        for name, value in item.items():
            if name in ("embedding", "token_embeddings", "attention"):
                assert np.abs(np.array(value) - np.array(other[name])).max() <= 1e-5
            else:
                assert value == other[name]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("kind", [JSON, NDJSON])
def test_long_text_is_compressed_where_the_client_reads_it(service: Service, path: str, kind: str) -> None:
    """gzip and zstd of the same JSON, whole and in pieces; short answers and files are sent as they are."""
    for bodies in (BODIES, LARGE):
        plain = raw(service, path, bodies[path], Accept=kind)
        for coding, decode in (("gzip", gzip.decompress), ("zstd", zstd.decompress)):
            headers, content = raw(service, path, bodies[path], Accept=kind, Accept_Encoding=coding)
            assert headers["vary"] == "Accept, Accept-Encoding"
            if bodies is BODIES and path == "/attention":  # less than 16 KiB
                assert "content-encoding" not in headers
                continue
            assert headers["content-encoding"] == coding
            assert len(content) < 0.6 * len(plain[1])
            assert len(decode(content)) == pytest.approx(len(plain[1]), rel=0.01)
            json.loads(decode(content).splitlines()[-1])
    headers, _ = raw(service, path, without_decimals(LARGE[path]), Accept=NPZ, Accept_Encoding="gzip")
    assert "content-encoding" not in headers


def test_a_long_answer_is_sent_in_pieces(service: Service) -> None:
    """In chunks, with those stages in Server-Timing that are over when the head goes."""
    headers, _ = raw(service, "/attention", LARGE["/attention"])
    assert headers["transfer-encoding"] == "chunked"
    assert "content-length" not in headers
    stages = [stage.partition(";")[0] for stage in headers["server-timing"].split(", ")]
    assert stages == ["tokenize", "queue", "compute"]
    headers, _ = raw(service, "/attention", LARGE["/attention"], Accept=NDJSON)
    assert [part.partition(";")[0] for part in headers["server-timing"].split(", ")] == ["tokenize", "queue"]


@pytest.mark.parametrize("kind", [JSON, NDJSON, NPZ])
def test_a_client_of_http_1_0_gets_no_chunks(service: Service, kind: str) -> None:
    """HTTP/1.0 knows none: there the size is told."""
    body = json.dumps(LARGE["/attention"]).encode()
    request = request_bytes("/attention", body, [f"Accept: {kind}"]).replace(b"HTTP/1.1", b"HTTP/1.0")
    answer = service.raw(request)
    assert answer.status_code == 200
    assert answer.headers["transfer-encoding"] is None
    assert int(answer.headers["content-length"]) == len(answer.content) > 500_000


REFUSED: list[tuple[str, str, Json, Json]] = [
    ("?dtype=float16", JSON, {}, {"field": "query.dtype", "actual": "float16"}),
    ("?dtype=float16", NDJSON, {}, {"field": "query.dtype"}),
    ("?dtype=int8", NPZ, {}, {"field": "query.dtype", "allowed": ["float32", "float16", "uint8"]}),
    ("?dtype=int8", JSON, {}, {"field": "query.dtype", "allowed": ["float32", "float16", "uint8"]}),
    ("?dtype=", NPZ, {}, {"field": "query.dtype"}),
    ("?dtype=float16&dtype=float16", NPZ, {}, {"field": "query.dtype"}),
    ("?dtype=float16&x=1", NPZ, {}, {"field": "query.x"}),
    ("?inputs=a", JSON, {}, {"field": "query.inputs"}),
    ("?&", NPZ, {}, {"field": "query."}),
]


@pytest.mark.parametrize(("query", "kind", "options", "members"), REFUSED)
@pytest.mark.parametrize("path", ROUTES)
def test_a_query_without_effect_is_refused(
    service: Service, path: str, query: str, kind: str, options: Json, members: Json
) -> None:
    """`dtype` is the only query parameter, of binary formats only, with three values."""
    response = post(service, {"inputs": "a", **options}, path + query, Accept=kind)
    assert_problem(response, 422, "invalid-request", **members)


def test_uint8_is_for_maps(service: Service) -> None:
    """Where there are none it is refused, before the model is looked for."""
    body = {"inputs": "a", "model": "unknown"}
    response = post(service, body, "/encode?dtype=uint8", Accept=NPZ)
    assert_problem(response, 422, "invalid-request", field="query.dtype", allowed=["float32", "float16"])


@pytest.mark.parametrize("kind", [NPZ, SAFETENSORS])
def test_decimals_have_no_effect_on_files(service: Service, kind: str) -> None:
    """They are refused there unless they are the default; JSON and ndjson take them."""
    body = {"inputs": "a", "decimals": 5}
    assert_problem(post(service, body, "/attention", Accept=kind), 422, "invalid-request", field="decimals")
    assert post(service, body, "/attention", Accept=NDJSON).status_code == 200
    assert post(service, body | {"decimals": 6}, "/attention", Accept=kind).status_code == 200


def test_the_order_of_refusals(service: Service) -> None:
    """406 comes before what is wrong with the body, that before the query, and that before the model."""
    bad = {"inputs": [], "model": "unknown"}
    response = post(service, bad, "/encode?dtype=x", Accept="text/html")
    assert_problem(response, 406, "not-acceptable")
    response = service.http.post("/encode?dtype=x", content=b"{", headers={"Accept": NPZ})
    assert_problem(response, 400, "malformed-json")
    response = post(service, {"inputs": "a", "model": "unknown"}, "/encode?dtype=x", Accept=NPZ)
    assert_problem(response, 422, "invalid-request", field="query.dtype")
    response = post(service, {"inputs": "a", "model": "unknown"}, "/encode?dtype=float16", Accept=NPZ)
    assert_problem(response, 404, "model-not-found")


@pytest.mark.in_turns
@pytest.mark.parametrize(("kind", "name"), [(JSON, "json"), (NDJSON, "ndjson"), (NPZ, "npz")])
@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize("bodies", [BODIES, LARGE], ids=["short", "long"])
def test_the_bytes_that_are_sent_are_counted(
    service: Service, bodies: dict[str, Json], kind: str, name: str, coding: str
) -> None:
    """By their format, after compression."""
    counter = f'headlight_response_bytes_total{{format="{name}",route="/attention"}}'
    stage = 'headlight_stage_duration_seconds_count{model="all-MiniLM-L6-v2",stage="serialize"}'
    before = service.metrics()
    body = without_decimals(bodies["/attention"])
    _, content = raw(service, "/attention", body, Accept=kind, Accept_Encoding=coding)
    after = service.metrics()
    assert after[counter] - before[counter] == len(content)
    assert after[stage] - before[stage] == 1


@pytest.fixture(scope="module")
def dragging() -> Iterator[Service]:
    """A service that is slow at a word, and runs one text of a dozen tokens at a time."""
    with serve(module="tests.support.doubles", max_batch_tokens=16, threads=1) as started:
        yield started


@pytest.mark.parametrize("coding", ["identity", "gzip", "zstd"])
def test_a_line_comes_before_the_next_is_computed(dragging: Service, coding: str) -> None:
    """The first item is there when most of the others have not run, compressed or not."""
    headers = {"Accept": NDJSON, "Accept-Encoding": coding}
    decoders: dict[str, Any] = {"gzip": zlib.decompressobj(31), "zstd": zstd.ZstdDecompressor()}
    run = 'headlight_batch_inputs_sum{model="all-MiniLM-L6-v2"}'
    inputs, before = ["word " * 10, *[f"{DRAG} {'word ' * 9}"] * 6], dragging.metrics()[run]
    text = b""
    with dragging.http.stream("POST", "/encode", json={"inputs": inputs}, headers=headers) as response:
        assert response.status_code == 200
        pieces = response.iter_raw()
        while b"\n" not in text:
            piece = next(pieces)
            text += decoders[coding].decompress(piece) if coding in decoders else piece
        assert dragging.metrics()[run] - before < len(inputs)
    assert json.loads(text.splitlines()[0])["index"] == 0
