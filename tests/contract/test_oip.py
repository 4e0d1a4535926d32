"""The Open Inference Protocol, by plain HTTP over a real socket."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from model.checkpoints.source import resolve
from service.lifecycle import VERSION
from tests.references.checkpoints import MINILM
from tests.references.comparing import distance
from tests.support.oip import (
    LENGTH,
    OCTETS,
    ask,
    assert_error,
    binary,
    elements,
    ids,
    path,
    text,
    vectors,
)
from tests.support.serving import JSON, LONG, Json, Service, requests_total, serve
from tests.support.tei import TEXT, TEXTS

ALL = [TEXT, *TEXTS, "Zürich 東京 🌍", ""]
AS_BYTES = {"outputs": [{"name": "embedding", "parameters": {"binary_data": True}}]}


@pytest.fixture(scope="module")
def slashed() -> Iterator[Service]:
    """A model whose name has a slash, and another that has the name of one of its routes."""
    with serve(model=f"org/mini={resolve(MINILM)},ready={resolve(MINILM)}") as started:
        yield started


def native(service: Service, inputs: object, **options: object) -> list[list[float]]:
    return [one["embedding"] for one in service.encode(inputs, **options)["data"]]


@pytest.mark.parametrize("returned", [{}, AS_BYTES, {"parameters": {"binary_data_output": True}}])
@pytest.mark.parametrize("sent", ["json", "nested", "bytes"])
def test_vectors_are_those_of_the_native_route(tei: Service, sent: str, returned: Json) -> None:
    """In each form of the texts and of the vectors, also of an empty text and of other scripts."""
    tensor, octets = text(*ALL), elements(*ALL)
    if sent == "bytes":
        response = ask(tei, {"inputs": [binary(tensor, octets)], **returned}, octets)
    else:
        response = ask(tei, {"inputs": [tensor], **returned})
    found, answer = vectors(response)
    assert (LENGTH in response.headers) == bool(returned)
    assert found.shape == (len(ALL), 384)
    assert distance(found, native(tei, ALL)) <= 2e-6
    assert (answer["model_name"], answer["model_version"]) == ("mini", "1")
    assert "id" not in answer


def test_pairs_are_two_tensors(tei: Service) -> None:
    """Sent in any order, one as bytes and one as JSON."""
    pairs = elements(*TEXTS)
    inputs = [binary(text(*TEXTS, name="text_pair"), pairs), text(TEXT, TEXT)]
    found, _ = vectors(ask(tei, {"inputs": inputs}, pairs, to="ranker"))
    expected = tei.encode([[TEXT, one] for one in TEXTS], model="ranker")["data"]
    assert distance(found, [one["embedding"] for one in expected]) <= 2e-6


def test_ids_run_as_they_are_and_padding_does_not(tei: Service) -> None:
    """The native ids of a text give its vector, with zeros of the mask before or after them."""
    lists = [one["token_ids"] for one in tei.encode(TEXTS)["data"]]
    expected = native(tei, TEXTS)
    for one, vector in zip(lists, expected, strict=True):
        found, _ = vectors(ask(tei, {"inputs": [ids([one])]}))
        assert distance(found, [vector]) <= 2e-6
    width = max(map(len, lists)) + 2
    after, before = ([0] * (width - len(one)) for one in lists)
    padded = [lists[0] + after, before + lists[1]]
    masks = [[1] * len(lists[0]) + after, before + [1] * len(lists[1])]
    for listed in (masks, list(np.ravel(masks).tolist())):
        mask = {**ids(masks, "attention_mask"), "data": listed}
        found, _ = vectors(ask(tei, {"inputs": [ids(padded), mask]}))
        assert distance(found, expected) <= 2e-6
    octets = [np.array(one, "<i8").tobytes() for one in (padded, masks)]
    tensors = [binary(ids(padded), octets[0]), binary(ids(masks, "attention_mask"), octets[1])]
    found, _ = vectors(ask(tei, {"inputs": tensors}, *octets))
    assert distance(found, expected) <= 2e-6


def padded(rows: int, columns: int) -> tuple[list[list[int]], list[list[int]]]:
    """Ids of texts of a few tokens with much padding, and their mask."""
    rest = [0] * (columns - 3)
    return [[101, 2158 + i, 102, *rest] for i in range(rows)], [[1, 1, 1, *rest]] * rows


def test_as_many_ids_as_the_limit_may_have_a_mask(tei: Service) -> None:
    """In JSON, flat and in rows: the limit is of each tensor, not of both."""
    tokens, mask = padded(256, 128)
    expected, _ = vectors(ask(tei, {"inputs": [ids([one[:3]]) for one in tokens[:1]]}))
    for flat in (False, True):
        tensors = [ids(tokens), ids(mask, "attention_mask")]
        if flat:
            tensors = [{**one, "data": np.ravel(one["data"]).tolist()} for one in tensors]
        found, _ = vectors(ask(tei, {"inputs": tensors}))
        assert found.shape == (256, 384)
        assert distance(found[:1], expected) <= 2e-6


def test_more_ids_may_be_sent_as_bytes(tei: Service) -> None:
    """As many as a body holds, as the error of too many in JSON says."""
    tokens, mask = padded(250, 512)
    octets = [np.array(one, "<i8").tobytes() for one in (tokens, mask)]
    tensors = [binary(ids(tokens), octets[0]), binary(ids(mask, "attention_mask"), octets[1])]
    found, _ = vectors(ask(tei, {"inputs": tensors}, *octets))
    assert found.shape == (250, 384)
    wrong = np.full((250, 1000), 30_522, "<i8").tobytes()
    refused = ask(tei, {"inputs": [binary({**ids([[1]]), "shape": [250, 1000]}, wrong)]}, wrong)
    assert_error(refused, 400, "input_ids.0.0 is 30522")


def test_parameters_are_those_of_the_native_route(tei: Service) -> None:
    """`dimensions`, `normalize` and `prompt_name` change the vectors; reserved and null ones nothing."""

    def found(to: str = "mini", **parameters: object) -> object:
        return vectors(ask(tei, {"inputs": [text(TEXT)], "parameters": parameters}, to=to))[0]

    assert distance(found(dimensions=8), native(tei, [TEXT], dimensions=8)) <= 2e-6
    raw = native(tei, [TEXT], normalize=False, model="prompted")
    assert distance(found("prompted", normalize=False), raw) <= 2e-6
    name = next(iter(tei.http.get("/info").json()["models"][5]["prompts"]))
    expected = native(tei, [TEXT], prompt_name=name, model="prompted")
    assert distance(found("prompted", prompt_name=name), expected) <= 2e-6
    assert distance(expected, native(tei, [TEXT], prompt="", model="prompted")) > 1e-3
    reserved: Json = {"timeout": 5, "priority": 1, "sequence_id": 7, "sequence_start": True, "triton_x": "a"}
    assert distance(found(**reserved, dimensions=None, other=[1]), native(tei, [TEXT])) <= 2e-6


def test_cut_texts_are_counted(tei: Service) -> None:
    """The answer says how many texts were too long, and nothing if there are none."""
    found, answer = vectors(ask(tei, {"inputs": [text(LONG, TEXT, LONG)]}))
    assert answer["parameters"] == {"truncated_inputs": 2}
    assert distance(found, native(tei, [LONG, TEXT, LONG])) <= 2e-6
    assert "parameters" not in vectors(ask(tei, {"inputs": [text(TEXT)]}))[1]


def test_an_id_comes_back(tei: Service) -> None:
    """Whatever characters it has, also before bytes."""
    for given in ("7", 'a "b" \\ é', ""):
        for returned in ({}, AS_BYTES):
            _, answer = vectors(ask(tei, {"id": given, "inputs": [text(TEXT)], **returned}))
            assert answer["id"] == given


def test_a_listed_output_is_json_unless_it_says_otherwise(tei: Service) -> None:
    """As Triton reads it: the parameter of the request is for requests that list none."""
    body = {"inputs": [text(TEXT)], "outputs": [{"name": "embedding"}]}
    response = ask(tei, {**body, "parameters": {"binary_data_output": True}})
    assert response.headers["content-type"] == JSON
    assert vectors(ask(tei, {**body, "outputs": []}))[0].shape == (1, 384)


def test_a_body_without_json_is_one_text(tei: Service) -> None:
    """The header is 0, and the vector comes back as bytes."""
    response = tei.http.post(path(), content=ALL[3].encode(), headers={LENGTH: "0"})
    assert response.headers["content-type"] == OCTETS
    assert distance(vectors(response)[0], native(tei, [ALL[3]])) <= 2e-6


@pytest.mark.parametrize("coding", ["", "identity", "Identity"])
@pytest.mark.parametrize("to", [path(), "/embed"])
def test_no_coding_has_several_names(tei: Service, to: str, coding: str) -> None:
    """An empty header says what none does, also to other routes."""
    body = {"inputs": [text(TEXT)]} if to == path() else {"inputs": TEXT}
    headers = {"Content-Type": JSON, "Content-Encoding": coding}
    response = tei.http.post(to, content=json.dumps(body), headers=headers)
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("kind", [None, "text/plain", OCTETS, "application/json; charset=latin-1", "no type"])
def test_any_content_type_is_fine(tei: Service, kind: str | None) -> None:
    """Clients send none, or that of their library."""
    head = {} if kind is None else {"Content_Type": kind}
    assert vectors(ask(tei, {"inputs": [text(TEXT)]}, **head))[0].shape == (1, 384)


@pytest.mark.parametrize(
    ("coding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("GZIP", gzip.compress)]
)
def test_bodies_may_be_compressed(tei: Service, coding: str, compress: Callable[[bytes], bytes]) -> None:
    """The header counts the bytes of the JSON as it was before."""
    octets = elements(*ALL)
    head = json.dumps({"inputs": [binary(text(*ALL), octets)]}).encode()
    headers = {"Content-Encoding": coding, LENGTH: str(len(head))}
    response = tei.http.post(path(), content=compress(head + octets), headers=headers)
    assert distance(vectors(response)[0], native(tei, ALL)) <= 2e-6


@pytest.mark.in_turns
@pytest.mark.parametrize("returned", [{}, AS_BYTES])
@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate", "gzip"),
        ("zstd, deflate;q=0.5", "deflate"),
        ("zstd", None),
        ("identity", None),
    ],
)
def test_answers_are_compressed_if_that_is_asked(
    tei: Service, accepted: str, coding: str | None, returned: Json
) -> None:
    """With a coding that clients know, if they are long; the header counts the bytes before."""
    texts = [f"Text number {i}." for i in range(40)]
    response = ask(tei, {"inputs": [text(*texts)], **returned}, Accept_Encoding=accepted)
    assert response.headers.get("content-encoding") == coding
    assert distance(vectors(response)[0], native(tei, texts)) <= 2e-6
    short = ask(tei, {"inputs": [text(TEXT)], **returned}, Accept_Encoding=accepted)
    assert "content-encoding" not in short.headers


def test_metadata_are_never_compressed(tei: Service) -> None:
    """The asynchronous client would not decompress them."""
    for one in ("/v2", "/v2/models/mini", "/v2/models", "/v2/models/none"):
        response = tei.http.get(one, headers={"Accept-Encoding": "gzip, deflate, zstd"})
        assert "content-encoding" not in response.headers


def test_large_answers_arrive_whole(tei: Service) -> None:
    """As many texts as a request may have, in both forms."""
    texts = [f"Text number {i}." for i in range(256)]
    expected = native(tei, texts)
    for returned in ({}, AS_BYTES):
        assert distance(vectors(ask(tei, {"inputs": [text(*texts)], **returned}))[0], expected) <= 2e-6


def test_the_server_and_its_models_are_described(tei: Service) -> None:
    """Names, versions, and tensors whose variable lengths are -1."""
    assert tei.http.get("/v2").json() == {
        "name": "headlight",
        "version": VERSION,
        "extensions": ["binary_tensor_data", "model_repository"],
    }
    found = tei.http.get("/v2/models/mini").json()
    assert found == tei.http.get("/v2/models/mini/versions/1").json()
    assert {name: found[name] for name in ("name", "versions", "platform", "outputs")} == {
        "name": "mini",
        "versions": ["1"],
        "platform": "headlight_torch",
        "outputs": [{"name": "embedding", "datatype": "FP32", "shape": [-1, 384]}],
    }
    assert found["inputs"] == [
        {"name": "text", "datatype": "BYTES", "shape": [-1]},
        {"name": "text_pair", "datatype": "BYTES", "shape": [-1]},
        {"name": "input_ids", "datatype": "INT64", "shape": [-1, -1]},
        {"name": "attention_mask", "datatype": "INT64", "shape": [-1, -1]},
    ]
    names = ["mini", "ranker", "labels", "splade", "names", "prompted"]
    assert tei.http.get("/v2/models").json() == {"models": names}
    listed = [{"name": name, "version": "1", "state": "READY", "reason": ""} for name in names]
    for body in (b"", b'{"ready": true}', b'{"ready": false}'):
        assert tei.http.post("/v2/repository/index", content=body).json() == listed


def test_health_is_of_the_server_and_of_each_model(tei: Service) -> None:
    """A 200 for what is ready."""
    assert tei.http.get("/v2/health/live").json() == {"live": True}
    assert tei.http.get("/v2/health/ready").json() == {"ready": True}
    for rest in ("ready", "versions/1/ready"):
        assert tei.http.get(path("names", rest)).json() == {"name": "names", "ready": True}


@pytest.mark.parametrize("written", ["org/mini", "org%2Fmini"])
def test_a_model_may_have_a_slash_in_its_name(slashed: Service, written: str) -> None:
    """As tritonclient writes it, and as others do; in each route."""
    for rest in ("infer", "versions/1/infer"):
        body = json.dumps({"inputs": [text(TEXT)]})
        found, answer = vectors(slashed.http.post(path(written, rest), content=body))
        assert answer["model_name"] == "org/mini"
        assert distance(found, native(slashed, [TEXT])) <= 2e-6
    for rest in ("", "/versions/1", "/ready", "/versions/1/ready"):
        assert slashed.http.get(f"/v2/models/{written}{rest}").json()["name"] == "org/mini"


def test_requests_are_counted_under_one_route(tei: Service) -> None:
    """Whatever the model, so that names do not become series; with inputs and bytes."""
    names = [requests_total("/v2/models/infer", status) for status in (200, 404)]
    inputs = 'headlight_inputs_total{model="mini",route="/v2/models/infer"}'
    before = tei.metrics()
    ask(tei, {"inputs": [text(TEXT, TEXT)]})
    tei.http.post(path("mini", "versions/1/infer"), content=json.dumps({"inputs": [text(TEXT)]}))
    ask(tei, {"inputs": [text(TEXT)]}, to="none")
    after = tei.metrics()
    assert [after[name] - before[name] for name in (*names, inputs)] == [2, 1, 3]
    assert set(after) == set(before)


def test_the_routes_of_cohere_are_still_theirs(tei: Service) -> None:
    """They begin with the same segment."""
    response = tei.http.post("/v2/embed", json={"texts": [TEXT]})
    assert distance(response.json()["embeddings"]["float"], native(tei, [TEXT], normalize=True)) <= 2e-6
