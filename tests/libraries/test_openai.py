"""OpenAI's own library, with embeddings and models."""

from model.checkpoints.source import resolve
from tests.references.checkpoints import MINILM
from tests.references.comparing import distance
from tests.support.libraries import answers, needs
from tests.support.serving import LONG, Service, requests_total, serve

NAME = "openai"
pytestmark = needs(NAME)

EMBED = """
import asyncio, openai
set_up = {"base_url": given["url"] + "/v1", "api_key": "any"}
client, other = openai.OpenAI(**set_up), openai.AsyncOpenAI(**set_up)
embed = lambda **more: client.embeddings.create(model=given["model"], input=given["texts"], **more)
vectors = lambda found: [one.embedding for one in found.data]
async def embed_async():
    return await other.embeddings.create(model=given["model"], input=given["texts"])
bytes_, floats = embed(), embed(encoding_format="float")
print(json.dumps({
    "bytes": vectors(bytes_),
    "floats": vectors(floats),
    "async": vectors(asyncio.run(embed_async())),
    "cut": vectors(embed(dimensions=8)),
    "usage": bytes_.usage.total_tokens,
    "models": [one.id for one in client.models.list()],
    "model": client.models.retrieve(given["model"]).id,
}))
"""
ERRORS = """
import openai
client = openai.OpenAI(base_url=given["url"] + "/v1", api_key=given["key"])
def tried(key=None, **body):
    used = client if key is None else client.with_options(api_key=key)
    try:
        used.embeddings.create(**{"model": given["model"], "input": "a", **body})
    except openai.APIStatusError as error:
        return [type(error).__name__, error.code, error.param, bool(error.request_id), error.message]
print(json.dumps({
    "dimensions": tried(dimensions=0),
    "ids": tried(input=[[1820, 5679]]),
    "model": tried(model="org/other"),
    "key": tried(key="wrong-0123456789abcdef"),
}))
"""
HURRIED = """
import asyncio, openai
client = openai.AsyncOpenAI(base_url=given["url"] + "/v1", api_key="any", max_retries=10)
embed = client.embeddings.with_raw_response.create
async def run():
    return await asyncio.gather(*(embed(model=given["model"], input=given["texts"]) for _ in range(8)))
print(json.dumps([[one.retries_taken, len(one.parse().data)] for one in asyncio.run(run())]))
"""


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """As bytes, the library's default, as numbers, async and cut; the models are listed."""
    texts = ["A man is eating.", "Someone eats."]
    native = tei.encode(texts, normalize=True)
    expected = [item["embedding"] for item in native["data"]]
    found = answers(NAME, EMBED, url=tei.url, texts=texts, model="mini")
    for form in ("bytes", "floats", "async"):
        assert distance(found[form], expected) <= 2e-6
    cut = tei.encode(texts, normalize=True, dimensions=8)["data"]
    assert distance(found["cut"], [item["embedding"] for item in cut]) <= 2e-6
    assert found["usage"] == native["usage"]["input_tokens"]
    assert found["model"] == found["models"][0] == "mini"


def test_errors_are_the_classes_of_the_library() -> None:
    """With code, field, request id and a sentence."""
    key = "key-0123456789abcdef"
    with serve(api_keys=key) as guarded:
        found = answers(NAME, ERRORS, url=guarded.url, key=key, model="all-MiniLM-L6-v2")
    assert found["dimensions"][:4] == ["BadRequestError", None, "dimensions", True]
    assert found["ids"][:4] == ["BadRequestError", None, "input.0", True]
    assert "such as tiktoken, send texts instead" in found["ids"][4]
    assert found["model"][:4] == ["NotFoundError", "model_not_found", "model", True]
    assert found["key"][:2] == ["AuthenticationError", "invalid_api_key"]


LATE = """
import openai
client = openai.OpenAI(base_url=given["url"] + "/v1", api_key="any")
try:
    client.embeddings.create(
        model=given["model"], input=given["texts"], extra_headers={"X-Request-Timeout-Ms": "1"}
    )
except openai.InternalServerError as error:
    print(json.dumps([error.status_code, client.models.retrieve(given["model"]).id]))
"""


def test_what_would_be_late_again_is_sent_once() -> None:
    """A passed deadline; and a model whose name has a slash, which the library quotes, is found."""
    with serve(model=f"org/name={resolve(MINILM)}") as slow:
        late = answers(NAME, LATE, url=slow.url, texts=[LONG] * 64, model="org/name")
        sent = slow.metrics()[requests_total("/v1/embeddings", 504)]
    assert late == [504, "org/name"]
    assert sent == 1


def test_refused_requests_are_sent_again() -> None:
    """Some requests of many at once are refused with 429, and all succeed."""
    texts = [LONG] * 16
    with serve(max_queue_tokens=16 * 256) as busy:
        found = answers(NAME, HURRIED, url=busy.url, texts=texts, model="all-MiniLM-L6-v2")
        refused = busy.metrics()[requests_total("/v1/embeddings", 429)]
    assert [count for _, count in found] == [len(texts)] * 8
    assert sum(retries for retries, _ in found) == refused > 0


REFUSED = """
import time
from concurrent.futures import ThreadPoolExecutor
import openai

def call(i):
    told, waited = [], []
    def asked(request):
        if told:
            waited.append(time.monotonic() - told[-1][0])
    def answered(response):
        if response.status_code == 429:
            told.append((time.monotonic(), int(response.headers["retry-after-ms"])))
    http = openai.DefaultHttpxClient(event_hooks={"request": [asked], "response": [answered]})
    client = openai.OpenAI(base_url=given["url"] + "/v1", api_key="any", max_retries=i % 2, http_client=http)
    error = None
    try:
        client.embeddings.create(model=given["model"], input=given["texts"])
    except openai.RateLimitError as caught:
        error = [caught.code, int(caught.response.headers["retry-after"]), caught.request_id is not None]
    return {"error": error, "waits": [[seconds, ms / 1000] for seconds, (_, ms) in zip(waited, told)]}

with ThreadPoolExecutor(8) as pool:
    print(json.dumps(list(pool.map(call, range(8)))))
"""


def test_a_refusal_is_a_rate_limit_error_and_its_delay_is_kept() -> None:
    """The library waits as long as it was told, in milliseconds; then the error has its code."""
    texts = [LONG] * 16
    with serve(max_queue_tokens=16 * 256) as busy:
        calls = answers(NAME, REFUSED, url=busy.url, texts=texts, model="all-MiniLM-L6-v2")
    errors = [call["error"] for call in calls if call["error"]]
    waits = [wait for call in calls for wait in call["waits"]]
    assert errors
    assert all(code == "rate_limit_exceeded" and wait >= 1 and known for code, wait, known in errors)
    assert waits
    assert all(waited >= told > 0 for waited, told in waits)


STREAMED = """
import asyncio, openai
set_up = {"base_url": given["url"] + "/v1", "api_key": "any"}
body = {"model": "mini", "input": given["texts"], "encoding_format": "float"}
client, other = openai.OpenAI(**set_up), openai.AsyncOpenAI(**set_up)
vectors = lambda pieces: [one["embedding"] for one in json.loads(b"".join(pieces))["data"]]

async def ask():
    async with other.embeddings.with_streaming_response.create(**body) as response:
        return [piece async for piece in response.iter_bytes()]

with client.embeddings.with_streaming_response.create(**body) as response:
    pieces = list(response.iter_bytes())
print(json.dumps([len(pieces), vectors(pieces), vectors(asyncio.run(ask()))]))
"""


def test_bodies_are_read_as_they_arrive(tei: Service) -> None:
    """Those of megabytes in several pieces, which are together the answer; of both clients."""
    texts = [f"Text number {i}." for i in range(256)]
    pieces, found, others = answers(NAME, STREAMED, url=tei.url, texts=texts)
    expected = [item["embedding"] for item in tei.encode(texts, normalize=True)["data"]]
    assert pieces > 1
    assert distance(found, expected) <= 2e-6
    assert distance(others, expected) <= 2e-6
