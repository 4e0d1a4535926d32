"""Ollama's own library, sync and async."""

from collections.abc import Iterator

import pytest

from model.checkpoints.source import resolve
from tests.references.checkpoints import MINILM
from tests.references.comparing import distance
from tests.support.libraries import AT_ONCE, CROWD, KEY, answers, needs, overloaded
from tests.support.serving import LONG, Service, serve

NAME = "ollama"
pytestmark = needs(NAME)

EMBED = """
import asyncio, ollama
client, other = ollama.Client(given["url"]), ollama.AsyncClient(given["url"])
texts = given["texts"]
asked = {"model": "mini", "input": texts}
cut = {"dimensions": 8, "keep_alive": "5m", "options": {"num_ctx": 64}}
async def of_async():
    older = [await other.embeddings("mini", text) for text in texts]
    return (await other.embed(**asked)).embeddings, [one.embedding for one in older]
found = client.embed(**asked)
both, older = asyncio.run(of_async())
print(json.dumps({
    "sync": found.embeddings,
    "async": both,
    "cut": client.embed(**asked, **cut).embeddings,
    "one": client.embed("mini:latest", texts[0]).embeddings,
    "older": [list(client.embeddings("mini", text).embedding) for text in texts],
    "older async": [list(one) for one in older],
    "tokens": found.prompt_eval_count,
    "model": found.model,
}))
"""
MODELS = """
import ollama
client = ollama.Client(given["url"])
listed, shown, loaded = client.list().models[0], client.show("mini"), client.ps().models[0]
print(json.dumps({
    "listed": [listed.model, listed.size, listed.details.family, listed.modified_at.tzinfo is not None],
    "digests": [listed.digest, loaded.digest],
    "shown": [shown.capabilities, shown.modelinfo["bert.embedding_length"], shown.details.parameter_size],
    "loaded": [loaded.name, loaded.context_length, loaded.size_vram, loaded.expires_at.astimezone().year],
    "pulled": [client.pull("mini").status, [one.status for one in client.pull("mini", stream=True)]],
}))
"""
ERRORS = """
import ollama
def tried(url=given["url"], key=None, call=lambda client: client.embed("mini", "a")):
    headers = {} if key is None else {"Authorization": "Bearer " + key}
    try:
        return call(ollama.Client(url, headers=headers)) and None
    except ollama.ResponseError as error:
        return [error.status_code, error.error]
print(json.dumps({
    "unknown": tried(call=lambda client: client.embed("other", "a")),
    "older": tried(call=lambda client: client.embeddings("other", "a")),
    "shown": tried(call=lambda client: client.show("other")),
    "pulled": tried(call=lambda client: client.pull("other")),
    "streamed": tried(call=lambda client: list(client.pull("other", stream=True))),
    "long": tried(call=lambda client: client.embed("mini", ["a", given["long"]], truncate=False)),
    "generate": tried(call=lambda client: client.generate("mini", "a")),
    "chat": tried(call=lambda client: client.chat("mini", [{"role": "user", "content": "a"}])),
    "no key": tried(given["guarded"]),
    "wrong key": tried(given["guarded"], "other"),
    "right key": tried(given["guarded"], given["key"]),
}))
"""
FULL = """
import ollama
def call():
    try:
        return len(ollama.Client(given["url"]).embed("mini", given["crowd"]).embeddings)
    except ollama.ResponseError as error:
        return [error.status_code, error.error]
print(json.dumps(at_once(call)))
"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[Service]:
    """A service with a key."""
    with serve(model=f"mini={MINILM}", api_keys=KEY) as started:
        yield started


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """Of unit length; by the older call without that."""
    texts = ["A man is eating.", "Someone eats.", ""]
    native = tei.encode(texts, normalize=True)
    expected = [one["embedding"] for one in native["data"]]
    found = answers(NAME, EMBED, url=tei.url, texts=texts)
    assert distance(found["sync"], expected) <= 2e-6
    assert distance(found["async"], expected) <= 2e-6
    assert distance(found["one"], expected[:1]) <= 2e-6
    cut = tei.encode(texts, normalize=True, dimensions=8)["data"]
    assert distance(found["cut"], [one["embedding"] for one in cut]) <= 2e-6
    assert (found["tokens"], found["model"]) == (native["usage"]["input_tokens"], "mini")
    plain = [one["embedding"] for one in tei.encode(texts, normalize=False)["data"]]
    for name in ("older", "older async"):
        assert distance(found[name][:2], plain[:2]) <= 2e-6
        assert found[name][2] == [], "there is no vector of an empty prompt"


def test_models_have_the_types_of_the_library(tei: Service) -> None:
    """Listed, shown, loaded and pulled."""
    size = (resolve(MINILM) / "model.safetensors").stat().st_size
    found = answers(NAME, MODELS, url=tei.url)
    assert found["listed"] == ["mini:latest", size, "bert", True]
    assert found["digests"][0] == found["digests"][1]
    assert found["shown"] == [["embedding"], 384, "22.6M"]
    assert found["loaded"] == ["mini:latest", 256, 0, 9000]
    assert found["pulled"] == ["success", ["success"]]


def test_errors_have_a_status_and_a_sentence(tei: Service, guarded: Service) -> None:
    """Those that programs look for are the original's."""
    found = answers(NAME, ERRORS, url=tei.url, guarded=guarded.url, key=KEY, long=LONG)
    for name in ("unknown", "older", "shown", "pulled", "streamed"):
        assert found[name] == [404, "model 'other' not found"]
    assert found["long"] == [400, "the input length exceeds the context length"]
    for name in ("generate", "chat"):
        assert found[name] == [400, f'"mini" does not support {name}']
    for name, part in (("no key", "requires an API key"), ("wrong key", "The API key is not valid")):
        status, sentence = found[name]
        assert status == 401
        assert part in sentence
    assert found["right key"] is None


def test_a_full_queue_is_a_503() -> None:
    """Of several calls at once; some of them are answered."""
    with overloaded() as busy:
        found = answers(NAME, AT_ONCE + FULL, url=busy.url, crowd=CROWD)
    refused = [one for one in found if isinstance(one, list)]
    assert {status for status, _ in refused} == {503}
    assert all("Retry after the time in Retry-After" in sentence for _, sentence in refused)
    answered = [one for one in found if not isinstance(one, list)]
    assert answered == [len(CROWD)] * len(answered) != []
