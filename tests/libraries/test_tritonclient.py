"""Triton's own library, by HTTP, in both of its clients."""

from typing import Any

import pytest

from service.lifecycle import VERSION
from tests.references.checkpoints import MINILM
from tests.references.comparing import distance
from tests.support.libraries import answers, needs
from tests.support.serving import Service, serve
from tests.support.tei import TEXT, TEXTS

NAME = "tritonclient"
pytestmark = needs(NAME)

ALL = [TEXT, *TEXTS, "Zürich 東京 🌍"]

HEAD = """
import asyncio, numpy as np, tritonclient.http as http, tritonclient.http.aio as aio
from tritonclient.utils import InferenceServerException
address = given["url"].removeprefix("http://")
model = given.get("model", "mini")
def tensor(values, name, kind, binary=True):
    made = http.InferInput(name, list(values.shape), kind)
    made.set_data_from_numpy(values, binary_data=binary)
    return made
def texts(*those, binary=True):
    return tensor(np.array([one.encode() for one in those], np.object_), "text", "BYTES", binary)
async def awaited(call, *arguments, **options):
    async with aio.InferenceServerClient(address) as client:
        return await getattr(client, call)(*arguments, **options)
def both(call, *arguments, **options):
    client = http.InferenceServerClient(address)
    return [getattr(client, call)(*arguments, **options), asyncio.run(awaited(call, *arguments, **options))]
def vectors(*arguments, **options):
    return [one.as_numpy("embedding").tolist() for one in both("infer", model, *arguments, **options)]
"""

STATE = """
print(json.dumps({
    "live": both("is_server_live"),
    "ready": both("is_server_ready"),
    "models": [both("is_model_ready", one) for one in ("mini", "ranker", "none")],
    "versions": [both("is_model_ready", "mini", one) for one in ("1", "2")],
    "server": both("get_server_metadata"),
    "model": both("get_model_metadata", "mini"),
    "index": both("get_model_repository_index"),
}))
"""

INFER = """
as_json = [http.InferRequestedOutput("embedding", binary_data=False)]
as_bytes = [http.InferRequestedOutput("embedding")]
sent = texts(*given["texts"])
named = both("infer", model, [sent], request_id="7")
many = [texts(*given["many"])]
print(json.dumps({
    "bytes": vectors([sent]),
    "listed": vectors([sent], outputs=as_bytes),
    "json": vectors([texts(*given["texts"], binary=False)], outputs=as_json),
    "gzip": vectors([sent], request_compression_algorithm="gzip", response_compression_algorithm="gzip"),
    "deflate": vectors(
        [sent], request_compression_algorithm="deflate", response_compression_algorithm="deflate"
    ),
    "version": vectors([sent], model_version="1", timeout=10_000_000, priority=1, sequence_id=3),
    "cut": vectors([sent], parameters={"dimensions": 8}),
    "id": [one.get_response()["id"] for one in named],
    "many": [
        value
        for coding in (None, "gzip", "deflate")
        for outputs in (None, as_json)
        for value in vectors(many, outputs=outputs, response_compression_algorithm=coding)
    ],
}))
"""

IDS = """
lists = given["ids"]
width = max(map(len, lists))
padded = np.array([one + [0] * (width - len(one)) for one in lists], np.int64)
mask = np.array([[1] * len(one) + [0] * (width - len(one)) for one in lists], np.int64)
print(json.dumps([
    vector
    for binary in (True, False)
    for vector in vectors(
        [tensor(padded, "input_ids", "INT64", binary), tensor(mask, "attention_mask", "INT64", binary)]
    )
]))
"""

ERRORS = """
def refused(call, *arguments, **options):
    client = http.InferenceServerClient(address)
    found = []
    for attempt in (
        lambda: getattr(client, call)(*arguments, **options),
        lambda: asyncio.run(awaited(call, *arguments, **options)),
    ):
        try:
            attempt()
        except InferenceServerException as error:
            found.append([error.status(), error.message()])
    return found
short = texts("a", "b")
short._parameters["binary_data_size"] = 11
print(json.dumps({
    "size": refused("infer", model, [short]),
    "name": refused("infer", "none", [texts("a")]),
    "version": refused("infer", model, [texts("a")], model_version="2"),
    "input": refused("infer", model, [tensor(np.ones((1, 2), np.float32), "INPUT0", "FP32")]),
    "metadata": refused("get_model_metadata", "none"),
    **{
        call: refused(call, *arguments)
        for call, arguments in {
            "get_model_config": [model],
            "get_inference_statistics": [],
            "get_trace_settings": [],
            "update_trace_settings": [],
            "get_log_settings": [],
            "load_model": [model],
            "unload_model": [model],
            "get_system_shared_memory_status": [],
            "get_cuda_shared_memory_status": [],
        }.items()
    },
}))
"""


def told(service: Service, program: str, **given: object) -> Any:
    """What a program prints, with what all of them define before it."""
    return answers(NAME, HEAD + program, url=service.url, **given)


def test_state_and_metadata(tei: Service) -> None:
    """Both clients read them; unknown models and versions are not ready."""
    found = told(tei, STATE)
    assert found["live"] == found["ready"] == [True, True]
    assert found["models"] == [[True, True], [True, True], [False, False]]
    assert found["versions"] == [[True, True], [False, False]]
    assert [one["version"] for one in found["server"]] == [VERSION] * 2
    assert [one["outputs"] for one in found["model"]] == [
        [{"name": "embedding", "datatype": "FP32", "shape": [-1, 384]}]
    ] * 2
    for index in found["index"]:
        assert [one["name"] for one in index] == ["mini", "ranker", "labels", "splade", "names", "prompted"]
        assert {one["state"] for one in index} == {"READY"}


def test_vectors_are_native_ones(tei: Service) -> None:
    """As bytes and as JSON, compressed and not, of other scripts, of many texts; and the id comes back."""
    many = [f"Text number {i}." for i in range(256)]
    found = told(tei, INFER, texts=ALL, many=many)
    native = [one["embedding"] for one in tei.encode(ALL)["data"]]
    for form in ("bytes", "listed", "json", "gzip", "deflate", "version"):
        assert [distance(one, native) <= 2e-6 for one in found[form]] == [True, True], form
    cut = [one["embedding"] for one in tei.encode(ALL, dimensions=8)["data"]]
    assert [distance(one, cut) <= 2e-6 for one in found["cut"]] == [True, True]
    assert found["id"] == ["7", "7"]
    expected = [one["embedding"] for one in tei.encode(many)["data"]]
    assert [distance(one, expected) <= 2e-6 for one in found["many"]] == [True] * 12


def test_ids_are_sent_with_padding_and_its_mask(tei: Service) -> None:
    """The native ids of texts of several lengths give their vectors."""
    native = tei.encode(ALL)["data"]
    found = told(tei, IDS, ids=[one["token_ids"] for one in native])
    expected = [one["embedding"] for one in native]
    assert [distance(one, expected) <= 2e-6 for one in found] == [True] * 4


def test_a_name_with_a_slash(tei: Service) -> None:
    """The client leaves it as it is."""
    with serve(model=f"org/mini={MINILM}") as slashed:
        found = told(
            slashed, "print(json.dumps(vectors([texts(given['text'])])))", model="org/mini", text=TEXT
        )
    native = [one["embedding"] for one in tei.encode([TEXT])["data"]]
    assert [distance(one, native) <= 2e-6 for one in found] == [True, True]


def test_errors_are_the_library_s_with_the_service_s_sentence(tei: Service) -> None:
    """Also of all that headlight does not have."""
    found = told(tei, ERRORS)
    expected = {
        "size": ("400", "11 bytes, but only 10 are left"),
        "name": ("404", "the models are: mini"),
        "version": ("404", "its only version is 1"),
        "input": ("400", "text, text_pair, input_ids, attention_mask"),
        "metadata": ("404", "the models are: mini"),
    }
    for call, refusals in found.items():
        status, part = expected.get(call, ("404", "is not supported"))
        assert [one[0] for one in refusals] == [status, status], call
        assert all(part in one[1] for one in refusals), call


KEYED = """
client = http.InferenceServerClient(address)
try:
    headers = {"Authorization": "Bearer " + given["key"]}
    print(json.dumps(list(client.infer(model, [texts("a")], headers=headers).as_numpy("embedding").shape)))
except InferenceServerException as error:
    print(json.dumps([error.status(), error.message()]))
"""


@pytest.mark.parametrize("right", [True, False])
def test_a_key_is_a_header(right: bool) -> None:
    """Where the service has keys; another one is an error of the library."""
    key = "key-0123456789abcdef"
    with serve(api_keys=key) as guarded:
        found = told(guarded, KEYED, model="all-MiniLM-L6-v2", key=key if right else "other")
    assert found == [1, 384] if right else (found[0] == "401" and "key" in found[1])
