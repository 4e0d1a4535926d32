"""LiteLLM, which calls servers of several protocols."""

import pytest

from tests.references.comparing import distance
from tests.references.cross_encoder import CrossEncoder
from tests.support.libraries import answers, needs
from tests.support.serving import Service
from tests.support.tei import QUERY, RANKED

NAME = "litellm"
pytestmark = needs(NAME)

EMBED = """
import litellm
base = given["url"] + "/v1"
vectors = lambda found: [one["embedding"] for one in found.data]
embed = lambda model: vectors(litellm.embedding(model, given["texts"], api_base=base, api_key="any"))
print(json.dumps([embed("openai/mini"), embed("hosted_vllm/mini")]))
"""
RERANK = """
import litellm
found = litellm.rerank(
    "hosted_vllm/ranker", given["query"], given["texts"], api_base=given["url"] + "/v1", api_key="any"
)
print(json.dumps([[one["index"], one["relevance_score"]] for one in found.results]))
"""


HUB = """
import asyncio, litellm
url, texts = given["url"], given["texts"]
# Without an `input_type` it asks the Hub what the model is for.
embed = {"api_base": url + "/tei/embed", "api_key": "any", "input_type": "embed"}
vectors = lambda found: [one["embedding"] for one in found.data]
print(json.dumps([
    vectors(litellm.embedding("huggingface/any", texts, **embed)),
    vectors(asyncio.run(litellm.aembedding("huggingface/any", texts, **embed))),
]))
"""
OLLAMA = """
import asyncio, litellm
url, texts = given["url"], given["texts"]
vectors = lambda found: [one["embedding"] for one in found.data]
print(json.dumps([
    vectors(litellm.embedding("ollama/mini", texts, api_base=url)),
    vectors(asyncio.run(litellm.aembedding("ollama/mini", texts, api_base=url))),
]))
"""
HUB_RERANK = """
import litellm
set_up = {"api_base": given["url"], "api_key": "any"}
found = litellm.rerank("huggingface/any", given["query"], given["texts"], **set_up)
print(json.dumps([[one["index"], one["relevance_score"]] for one in found.results]))
"""


@pytest.mark.parametrize("program", [EMBED, HUB, OLLAMA], ids=["openai and vllm", "hub", "ollama"])
def test_embeddings_are_native_vectors(program: str, tei: Service) -> None:
    """As of servers of OpenAI's protocol and of vLLM, of the hub and of Ollama; of these sync and async."""
    texts = ["A man is eating.", "Someone eats."]
    expected = [item["embedding"] for item in tei.encode(texts, normalize=True)["data"]]
    for found in answers(NAME, program, url=tei.url, texts=texts):
        assert distance(found, expected) <= 2e-6


def test_documents_are_ranked(tei: Service, tei_ranker: CrossEncoder) -> None:
    """By the scores of the cross-encoder, the largest first."""
    assert_ranked(answers(NAME, RERANK, url=tei.url, query=QUERY, texts=RANKED), tei_ranker)


def test_documents_are_ranked_in_the_hub_s_protocol(tei_ranking: Service, tei_ranker: CrossEncoder) -> None:
    """At the base URL of the contract."""
    assert_ranked(
        answers(NAME, HUB_RERANK, url=f"{tei_ranking.url}/tei", query=QUERY, texts=RANKED), tei_ranker
    )


def assert_ranked(found: list[tuple[int, float]], ranker: CrossEncoder) -> None:
    """Pairs of an index and a score are those of a cross-encoder, the largest score first."""
    scores = ranker.predict(QUERY, RANKED).tolist()
    assert [index for index, _ in found] == sorted(range(len(RANKED)), key=lambda i: -scores[i])
    assert distance([score for _, score in found], [scores[index] for index, _ in found]) <= 1e-5
