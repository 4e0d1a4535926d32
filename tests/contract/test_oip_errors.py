"""What the Open Inference Protocol refuses, each with one sentence that says what to change."""

import gzip
import json
import struct
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.doubles import DRAG
from tests.support.oip import LENGTH, ask, assert_error, binary, elements, ids, path, text
from tests.support.serving import LONG, Json, Service, serve

GOOD = {"inputs": [text("a")]}
KEY = "key-0123456789abcdef"


def changed(**parts: object) -> Json:
    """The good tensor with other parts, or without those that are None."""
    return {name: value for name, value in {**text("a"), **parts}.items() if value is not None}


REFUSED: dict[str, tuple[Json, str]] = {
    "no inputs": ({}, "inputs is required"),
    "an empty list": ({"inputs": []}, "at least one item"),
    "many": ({"inputs": [text("a")] * 17}, "at most 16"),
    "another name": ({"inputs": [text("a", name="INPUT0")]}, "text, text_pair, input_ids, attention_mask"),
    "twice": ({"inputs": [text("a"), text("a")]}, "The inputs are text, text"),
    "a pair alone": ({"inputs": [text("a", name="text_pair")]}, "alone or with text_pair"),
    "texts and ids": ({"inputs": [text("a"), ids([[101, 102]])]}, "alone or with attention_mask"),
    "fewer pairs": ({"inputs": [text("a", "b"), text("c", name="text_pair")]}, "2 elements and text_pair 1"),
    "the type of texts": ({"inputs": [changed(datatype="STRING")]}, "send it as BYTES"),
    "the type of ids": ({"inputs": [{**ids([[1]]), "datatype": "INT32"}]}, "send it as INT64"),
    "a rank": ({"inputs": [changed(shape=[1, 1])]}, "send [n]"),
    "no texts": ({"inputs": [changed(shape=[0], data=[])]}, "at least one element"),
    "no ids": ({"inputs": [{**ids([[1]]), "shape": [1, 0]}]}, "send [n, tokens]"),
    "a negative length": ({"inputs": [changed(shape=[-1])]}, "inputs.0.shape.0 must be at least 0"),
    "a fraction of a length": ({"inputs": [changed(shape=[1.5])]}, "inputs.0.shape.0 must be an integer"),
    "a length as a float": (
        {"inputs": [changed(shape=[1.0])]},
        "inputs.0.shape.0 must be an integer, but 1.0 is written as a float: leave out the fraction",
    ),
    "ids as floats": (
        {"inputs": [{**ids([[101, 102]]), "data": [101.0, 102.0]}]},
        "input_ids.0.0 must be a 64-bit integer, without a fraction",
    ),
    "fewer texts": ({"inputs": [changed(shape=[2])]}, "has 1 elements, but its shape needs 2"),
    "fewer ids": ({"inputs": [{**ids([[1, 2]]), "shape": [2, 2], "data": [1, 2]}]}, "has 2 elements"),
    "rows": ({"inputs": [{**ids([[1, 2]]), "shape": [2, 2]}]}, "has 1 elements, but its shape needs 2"),
    "a short row": (
        {"inputs": [{"name": "input_ids", "datatype": "INT64", "shape": [2, 2], "data": [[1, 2], [3]]}]},
        "input_ids.1 has 1 elements",
    ),
    "a number as a text": ({"inputs": [changed(data=[3])]}, "text.0 must be a string"),
    "nested texts": ({"inputs": [changed(data=[["a"]])]}, "text.0 must be a string"),
    "a text as an id": ({"inputs": [ids([[101, "b"]])]}, "input_ids.0.1 must be a 64-bit integer"),
    "a float as an id": ({"inputs": [ids([[101, 1.5]])]}, "input_ids.0.1 must be a 64-bit integer"),
    "65 bits": ({"inputs": [ids([[101, 2**63]])]}, "input_ids.0.1 must be a 64-bit integer"),
    "an unknown id": ({"inputs": [ids([[101, 30522]])]}, "input_ids.0.1 is 30522"),
    "a negative id": ({"inputs": [ids([[-1]])]}, "input_ids.0.0 is -1"),
    "another mask": (
        {"inputs": [ids([[101, 102]]), ids([[1]], "attention_mask")]},
        "attention_mask is [1, 1]",
    ),
    "an empty mask": ({"inputs": [ids([[101, 102]]), ids([[0, 0]], "attention_mask")]}, "attention_mask.0"),
    "a gap": ({"inputs": [ids([[101, 1, 102]]), ids([[1, 0, 1]], "attention_mask")]}, "attention_mask.0"),
    "a 2": ({"inputs": [ids([[101, 102]]), ids([[1, 2]], "attention_mask")]}, "attention_mask.0"),
    "no data": ({"inputs": [changed(data=None)]}, "neither data nor the parameter"),
    "both": ({"inputs": [changed(parameters={"binary_data_size": 5})]}, "both data and the parameter"),
    "shared memory": (
        {"inputs": [changed(data=None, parameters={"shared_memory_region": "a"})]},
        "send its data",
    ),
    "another output": ({**GOOD, "outputs": [{"name": "logits"}]}, "send embedding"),
    "an output twice": ({**GOOD, "outputs": [{"name": "embedding"}] * 2}, "once"),
    "classes": (
        {**GOOD, "outputs": [{"name": "embedding", "parameters": {"classification": 2}}]},
        "classification, which is not supported",
    ),
    "an output in shared memory": (
        {**GOOD, "outputs": [{"name": "embedding", "parameters": {"shared_memory_region": "a"}}]},
        "shared_memory_region, which is not supported",
    ),
    "a number as an id of the request": ({**GOOD, "id": 7}, "id must be a string"),
    "a wrong option": (
        {**GOOD, "parameters": {"normalize": "yes"}},
        "parameters.normalize must be true or false",
    ),
    "dimensions": ({**GOOD, "parameters": {"dimensions": 385}}, "dimensions is 385"),
    "no dimensions": ({**GOOD, "parameters": {"dimensions": 0}}, "parameters.dimensions must be at least 1"),
    "a prompt": ({**GOOD, "parameters": {"prompt_name": "query"}}, 'prompt_name is "query"'),
    "a long text": ({"inputs": [text("a", LONG)], "parameters": {"truncate": False}}, "text.1"),
    "many texts": ({"inputs": [text(*["a"] * 257)]}, "text has 257 items and the limit is 256: split"),
    "many ids": (
        {"inputs": [{**ids([[1]]), "shape": [200, 200]}]},
        "40000 ids in JSON and the limit is 32768: send them as bytes after the JSON, or fewer texts",
    ),
    "many values": (
        {"inputs": [text(*["a"] * 34_000)] * 2},
        "values and the limit is 66368: send tensors as bytes after the JSON, or split it",
    ),
    "no object": ({"inputs": ["a"]}, "inputs.0 must be a JSON object"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_request_is_a_400_that_says_what_to_change(tei: Service, name: str) -> None:
    """Each names the tensor or the field."""
    body, part = REFUSED[name]
    assert_error(ask(tei, body), 400, part)


def test_json_is_json(tei: Service) -> None:
    """What is not, and what is no object, are a 400."""
    for content, part in (
        (b'{"inputs": [', "not valid JSON"),
        (b"", "not valid JSON"),
        (b"[]", "JSON object"),
    ):
        assert_error(tei.http.post(path(), content=content), 400, part)


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b'{"ready":', "The body is not valid JSON"),
        (b"[1]", "must be a JSON object, such as"),
        (b'{"ready": 3}', "ready must be true or false"),
    ],
)
def test_a_body_of_the_index_is_json(tei: Service, body: bytes, part: str) -> None:
    """It may be left out, and says whether only models that are ready are listed, which all are."""
    where = "/v2/repository/index"
    assert_error(tei.http.post(where, content=body), 400, part)
    listed = tei.http.post(where).json()
    assert listed
    for valid in (b"", b"{}", b'{"ready": true}', b'{"ready": null, "other": 1}'):
        assert tei.http.post(where, content=valid).json() == listed


def test_bytes_are_as_many_as_is_said(tei: Service) -> None:
    """Too few, too many, and sizes that no body has."""
    octets = elements("a", "b")
    tensor = binary(text("a", "b"), octets)
    body = {"inputs": [tensor]}
    assert_error(
        ask(tei, body, octets[:-1]), 400, "binary_data_size of text is 10 bytes, but only 9 are left"
    )
    assert_error(ask(tei, body, octets + b"x"), 400, "11 bytes after the JSON")
    assert_error(ask(tei, GOOD, b"x"), 400, "1 bytes after the JSON")
    assert_error(ask(tei, body), 400, "10 bytes, but only 0 are left")
    for size in (-1, 2**70, "10", 1.5, True):
        wrong = {"inputs": [{**tensor, "parameters": {"binary_data_size": size}}]}
        assert_error(ask(tei, wrong, octets), 400, "binary_data_size")
    three = binary({**text("a"), "shape": [3]}, octets)
    assert_error(ask(tei, {"inputs": [three]}, octets), 400, "text.2 ends after the 10 bytes")
    one = binary(text("a"), octets)
    assert_error(ask(tei, {"inputs": [one]}, octets), 400, "end after 5 bytes")
    for length in (5, 2**32 - 1):
        false = struct.pack("<I", length) + b"a"
        assert_error(ask(tei, {"inputs": [binary(text("a"), false)]}, false), 400, "text.0 ends after")
    numbers = binary(ids([[101, 102]]), b"12345678")
    assert_error(ask(tei, {"inputs": [numbers]}, b"12345678"), 400, "send 8 bytes for each INT64")


def test_texts_are_utf_8(tei: Service) -> None:
    """In a tensor, and as a whole body."""
    octets = elements("a", b"ab\xff")
    body = {"inputs": [binary(text("a", "b"), octets)]}
    assert_error(ask(tei, body, octets), 400, "text.1 is not valid UTF-8 at byte 2")
    response = tei.http.post(path(), content=b"\xff", headers={LENGTH: "0"})
    assert_error(response, 400, "text is not valid UTF-8 at byte 0")


@pytest.mark.parametrize("length", ["-1", "a", "1.0", "9" * 19, "30000", "٣"])
def test_the_length_of_the_json_is_within_the_body(tei: Service, length: str) -> None:
    """A whole number that is not larger than the body."""
    sent = {LENGTH.encode(): length.encode()}
    response = tei.http.post(path(), content=json.dumps(GOOD), headers=sent)
    assert_error(response, 400, f"The header {LENGTH}")
    assert_error(response, 400, "send the size of the JSON")


@pytest.fixture(scope="module")
def small() -> Iterator[Service]:
    """A service that takes small bodies, returns small answers and asks for a key."""
    with serve(max_body_bytes=4000, max_response_bytes=8000, api_keys=KEY) as started:
        started.http.headers["Authorization"] = f"Bearer {KEY}"
        yield started


ONLY = "all-MiniLM-L6-v2"


def compressed(service: Service, content: bytes, coding: str) -> httpx.Response:
    return service.http.post(path(ONLY), content=content, headers={"Content-Encoding": coding})


def test_a_body_is_as_large_as_the_limit_allows_once_it_is_decompressed(small: Service) -> None:
    """A bomb of a few bytes is refused without being decompressed to its end."""
    body = json.dumps({**GOOD, "parameters": {"dimensions": 2}}).encode()
    exact = body[:-1] + b" " * (4000 - len(body)) + b"}"
    assert compressed(small, gzip.compress(exact), "gzip").status_code == 200
    assert_error(compressed(small, gzip.compress(exact + b" "), "gzip"), 413, "the limit is 4000")
    bomb = zlib.compress(b" " * 3_000_000)
    assert len(bomb) < 4000
    assert_error(compressed(small, bomb, "deflate"), 413, "the limit is 4000")
    assert_error(small.http.post(path(ONLY), content=b" " * 4001), 413, "the limit is 4000")


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_damaged_body_is_a_400(small: Service, coding: str) -> None:
    """Cut short, with more after its end, and of another coding."""
    content = json.dumps(GOOD).encode()
    whole = gzip.compress(content) if coding == "gzip" else zlib.compress(content)
    assert_error(compressed(small, whole[:-1], coding), 400, "its end is missing")
    assert_error(compressed(small, whole + b"x", coding), 400, "bytes follow its end")
    assert_error(
        compressed(small, whole[:15] + b"\xff\xff\xff" + whole[18:], coding), 400, f"not valid {coding}"
    )
    assert_error(compressed(small, json.dumps(GOOD).encode(), coding), 400, f"not valid {coding}")
    assert_error(compressed(small, b"", coding), 400, "its end is missing")


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip"])
def test_another_coding_is_a_501_that_names_the_known_ones(small: Service, coding: str) -> None:
    """As Triton answers."""
    response = compressed(small, b"", coding)
    assert_error(response, 501, "gzip or deflate")
    assert response.headers["accept-encoding"] == "gzip, deflate"


def test_a_response_has_its_limit(small: Service) -> None:
    """Bytes are fewer than numbers, and dimensions a way out."""
    texts = text(*["a"] * 4)
    assert_error(ask(small, {"inputs": [texts]}, to=ONLY), 413, "`dimensions`")
    assert (
        ask(small, {"inputs": [texts], "parameters": {"binary_data_output": True}}, to=ONLY).status_code
        == 200
    )
    assert ask(small, {"inputs": [texts], "parameters": {"dimensions": 2}}, to=ONLY).status_code == 200


@pytest.mark.parametrize(
    ("method", "where"),
    [
        ("POST", path(ONLY)),
        ("GET", f"/v2/models/{ONLY}"),
        ("GET", path(ONLY, "ready")),
        ("GET", "/v2"),
        ("GET", "/v2/models"),
        ("POST", "/v2/repository/index"),
        ("GET", path(ONLY, "config")),
    ],
)
def test_keys_guard_what_names_models(small: Service, method: str, where: str) -> None:
    """Health needs none."""
    without = {"Authorization": "Bearer other"}
    response = small.http.request(method, where, headers=without, content=json.dumps(GOOD).encode())
    assert_error(response, 401, "key")
    for probe in ("/v2/health/live", "/v2/health/ready"):
        assert small.http.get(probe, headers=without).status_code == 200


def test_another_model_or_version_is_a_404(tei: Service) -> None:
    """That lists the models."""
    for rest in ("infer", "versions/1/infer"):
        response = tei.http.post(path("other/one", rest), content=json.dumps(GOOD))
        assert_error(response, 404, '"other/one" is not served here; the models are: mini, ')
    assert_error(tei.http.post(path("mini", "versions/2/infer"), content=b"{}"), 404, "its only version is 1")
    for rest in ("/versions/2", "/versions/2/ready"):
        assert_error(tei.http.get(f"/v2/models/mini{rest}"), 404, "its only version is 1")
    for rest in ("", "/ready", "/versions/1", "/versions/1/ready"):
        assert_error(tei.http.get(f"/v2/models/other{rest}"), 404, "is not served here")


@pytest.mark.parametrize(
    ("method", "where"),
    [
        ("GET", path(rest="config")),
        ("GET", path(rest="versions/1/config")),
        ("GET", path(rest="stats")),
        ("GET", "/v2/models/stats"),
        ("POST", path(rest="trace/setting")),
        ("GET", "/v2/trace/setting"),
        ("POST", "/v2/logging"),
        ("POST", "/v2/repository/models/mini/load"),
        ("POST", "/v2/repository/models/org/mini/unload"),
        ("GET", "/v2/systemsharedmemory/status"),
        ("POST", "/v2/cudasharedmemory/region/a/register"),
    ],
)
def test_what_triton_has_besides_is_a_404_that_clients_can_read(
    tei: Service, method: str, where: str
) -> None:
    """With a sentence that says so, which clients can read."""
    assert_error(tei.http.request(method, where), 404, f"{where} is not supported")


@pytest.mark.parametrize(
    ("method", "where", "allowed"),
    [
        ("GET", path(), "POST"),
        ("PUT", path(), "POST"),
        ("GET", path(rest="versions/1/infer"), "POST"),
        ("POST", "/v2/models/mini", "GET"),
        ("POST", path(rest="ready"), "GET"),
        ("POST", "/v2", "GET"),
        ("GET", "/v2/repository/index", "POST"),
    ],
)
def test_another_method_is_a_405(tei: Service, method: str, where: str, allowed: str) -> None:
    """That names the right one."""
    response = tei.http.request(method, where)
    assert_error(response, 405, f"supports {allowed}")
    assert response.headers["allow"] == allowed


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("where", ["/v2/", "/v2/nothing", "/v2/health", "/v2/health/", "/v2/embed/x"])
def test_other_paths_are_a_404_that_clients_can_read(tei: Service, method: str, where: str) -> None:
    """Clients of this protocol read `error` alone."""
    response = tei.http.request(method, where)
    assert_error(response, 404, f"There is no route {where}; ")
    assert_error(response, 404, "; /docs lists the routes.")


def test_what_follows_a_model_is_a_404_unless_a_route_has_it(tei: Service) -> None:
    """Triton's generation is not supported; all other words are read as parts of a model's name."""
    for rest in ("generate", "generate_stream", "versions/1/generate"):
        assert_error(tei.http.post(path(rest=rest), content=b"{}"), 404, f"{rest} is not supported")
    found = tei.http.get(path(rest="other"))
    assert_error(found, 404, '"mini/other" is not served here; the models are: mini, ')
    assert_error(tei.http.post(path(rest="other"), content=b"{}"), 405, "supports GET, not POST")


def test_paths_of_cohere_keep_their_form(tei: Service) -> None:
    """They begin as those of this protocol do."""
    for where in ("/v2/embed", "/v2/rerank"):
        for method in ("GET", "PUT"):
            refused = tei.http.request(method, where)
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
            assert refused.json()["message"] == f"{where} supports POST, not {method}."
        assert "is required" in tei.http.post(where, json={}).json()["message"]


def test_an_overloaded_service_says_when_to_retry() -> None:
    """A 429 with its header, whose sentence the client's exception has."""
    with serve(max_queue_tokens=512) as short, ThreadPoolExecutor(8) as pool:
        body = {"inputs": [text(*["many words of a text " * 10] * 8)]}
        found = list(pool.map(lambda _: ask(short, body, to=ONLY), range(40)))
    full = [response for response in found if response.status_code != 200]
    assert 0 < len(full) < len(found)
    for response in full:
        assert_error(response, 429, "Retry after the time in Retry-After")
        assert int(response.headers["retry-after"]) >= 1


def test_a_request_has_its_deadline(tei: Service) -> None:
    """As that of the native routes."""
    texts = text(*["many different words of a text " * 40] * 200)
    response = ask(tei, {"inputs": [texts]}, X_Request_Timeout_Ms="1")
    assert_error(response, 504, "was not ready within 0.001 s")


@pytest.mark.thorough
def test_a_service_that_is_not_ready_is_alive() -> None:
    """While it shuts down, what needs its models is a 503."""
    with (
        serve(module="tests.support.doubles", drain_timeout_s=20) as busy,
        ThreadPoolExecutor(1) as pool,
    ):
        slow = pool.submit(ask, busy, {"inputs": [text(DRAG)]}, to=ONLY)
        busy.wait_for_metric("headlight_requests_in_flight{}", 1)
        busy.signal()
        until = time.monotonic() + 10
        while busy.http.get("/v2/health/ready").status_code == 200:
            assert time.monotonic() < until
        assert busy.http.get("/v2/health/live").status_code == 200
        assert_error(ask(busy, GOOD, to=ONLY), 503, "shutting down")
        for where in (path(ONLY, "ready"), f"/v2/models/{ONLY}", "/v2/models"):
            assert_error(busy.http.get(where), 503, "shutting down")
        assert slow.result().status_code == 200
        assert busy.wait() == 0
