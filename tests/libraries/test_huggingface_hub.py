"""`InferenceClient` of huggingface_hub, at the base URL of its contract as at its routes."""

import pytest

from tests.references.comparing import distance
from tests.support.libraries import answers, needs
from tests.support.serving import LONG, Service, post, serve

NAME = "huggingface_hub"
pytestmark = needs(NAME)
TEXTS = ["A man is eating.", "Someone eats.", "The sky is blue."]

EMBED = """
from huggingface_hub import InferenceClient
client = InferenceClient(model=given["url"], token="hf_some_token_of_the_hub")
print(json.dumps(client.feature_extraction(given["texts"], **given["options"]).tolist()))
"""
SIMILARITY = """
from huggingface_hub import InferenceClient
print(json.dumps(InferenceClient(model=given["url"]).sentence_similarity(given["texts"][0], given["texts"])))
"""
LABELS = """
from huggingface_hub import InferenceClient
client = InferenceClient(model=given["url"])
labels = client.text_classification("What a wonderful film!", top_k=given["top_k"])
print(json.dumps([[one.label, one.score] for one in labels]))
"""
ENTITIES = """
from huggingface_hub import InferenceClient
found = InferenceClient(model=given["url"]).token_classification(
    "Ada Lovelace lived in London.", aggregation_strategy="simple"
)
print(json.dumps([[one.entity_group, one.word, one.start, one.end, one.score] for one in found]))
"""
ERROR = """
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
try:
    InferenceClient(model=given["url"]).feature_extraction(given["text"], truncate=False)
except HfHubHTTPError as error:
    print(json.dumps([error.response.status_code, error.response.json()["error_type"], str(error)]))
"""
ASYNC = """
import asyncio
from huggingface_hub import AsyncInferenceClient
async def ask():
    async with AsyncInferenceClient(model=given["url"]) as client:
        return (await client.feature_extraction(given["texts"])).tolist()
print(json.dumps(asyncio.run(ask())))
"""


@pytest.mark.parametrize("path", ["", "/", "/embed", "/tei", "/tei/", "/tei/embed"])
def test_features_are_native_vectors(tei: Service, path: str) -> None:
    """A bare address is common; a token of the Hub is sent along, and does no harm."""
    expected = [item["embedding"] for item in tei.encode(TEXTS, normalize=True)["data"]]
    found = answers(NAME, EMBED, url=tei.url + path, texts=TEXTS, options={})
    assert distance(found, expected) <= 2e-6


def test_every_option_of_features_has_its_effect(tei: Service) -> None:
    """Cut on the left, not normalised, of fewer dimensions."""
    options = {"truncate": True, "truncation_direction": "left", "normalize": False, "dimensions": 16}
    found = answers(NAME, EMBED, url=f"{tei.url}/tei", texts=LONG + " end", options=options)
    native = tei.encode(LONG + " end", truncation_side="left", normalize=False, dimensions=16)
    assert distance(found, [native["data"][0]["embedding"]]) <= 2e-6


def test_the_async_client_has_the_same_vectors(tei: Service) -> None:
    """Its twin, over another HTTP client."""
    expected = [item["embedding"] for item in tei.encode(TEXTS, normalize=True)["data"]]
    assert distance(answers(NAME, ASYNC, url=f"{tei.url}/tei", texts=TEXTS), expected) <= 2e-6


@pytest.mark.parametrize("path", ["/", "/tei", "/tei/similarity"])
def test_similarities_are_native_ones(tei: Service, path: str) -> None:
    """One sentence with all, itself included."""
    native = post(tei, {"source": TEXTS[0], "texts": TEXTS}, "/similarity").json()
    found = answers(NAME, SIMILARITY, url=tei.url + path, texts=TEXTS)
    assert distance(found, native["similarities"]) <= 2e-6


def test_labels_and_entities_are_native_ones(tei_moods: Service, tei_names: Service) -> None:
    """All labels of a text, or the best; and entities, with their places."""
    body = {"inputs": "What a wonderful film!"}
    native = [
        [one["label"], one["score"]] for one in post(tei_moods, body, "/predict").json()["data"][0]["labels"]
    ]
    assert answers(NAME, LABELS, url=f"{tei_moods.url}/tei", top_k=None) == native
    assert answers(NAME, LABELS, url=f"{tei_moods.url}/tei/predict", top_k=1) == native[:1]
    body = {"inputs": "Ada Lovelace lived in London.", "aggregation": "simple"}
    entities = post(tei_names, body, "/predict").json()["data"][0]["entities"]
    assert answers(NAME, ENTITIES, url=f"{tei_names.url}/tei") == [
        [one["label"], one["text"], one["start"], one["end"], one["score"]] for one in entities
    ]


def test_an_error_is_the_library_s_own(tei: Service) -> None:
    """With the status and the sentence of the service."""
    status, kind, sentence = answers(NAME, ERROR, url=f"{tei.url}/tei", text=LONG)
    assert (status, kind) == (422, "Validation")
    assert "422" in sentence


STATE = """
from huggingface_hub import InferenceClient
client = InferenceClient(provider="hf-inference", token="hf_x")
info = client.get_endpoint_info(model=given["url"])
print(json.dumps([info["model_id"], info["max_client_batch_size"], client.health_check(model=given["url"])]))
"""


@pytest.mark.parametrize("path", ["", "/tei"])
def test_the_endpoint_tells_what_it_is(tei: Service, path: str) -> None:
    """Its model, its limit, and that it is well."""
    assert answers(NAME, STATE, url=tei.url + path) == ["mini", 256, True]


KEYED = """
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
client = InferenceClient(model=given["url"], token=given["key"])
try:
    print(json.dumps(list(client.feature_extraction("a").shape)))
except HfHubHTTPError as error:
    print(json.dumps(error.response.status_code))
"""


def test_its_token_is_the_key_of_the_service() -> None:
    """Where keys are set, a right one opens, and any other is an error of the library."""
    key = "key-0123456789abcdef"
    with serve(api_keys=key) as guarded:
        assert answers(NAME, KEYED, url=f"{guarded.url}/tei", key=key) == [1, 384]
        assert answers(NAME, KEYED, url=f"{guarded.url}/tei", key="hf_of_the_hub") == 401
