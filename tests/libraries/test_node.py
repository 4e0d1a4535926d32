"""Libraries for JavaScript that were written for other servers: their defaults, and what their errors say."""

import re

import numpy as np
import pytest

from tests.references.comparing import distance
from tests.support.libraries import NODE, answers, needs
from tests.support.serving import Service, answered, requests_total

MODEL = "all-MiniLM-L6-v2"
TEXTS = ["A man is eating.", "Someone eats."]

# For each library a function that embeds texts at a base URL.
EMBEDDING = {
    "openai": """
import OpenAI from "openai";
async function embedded(baseURL, model, input) {
  const found = await new OpenAI({ baseURL, apiKey: "any" }).embeddings.create({ model, input });
  return found.data.map((one) => one.embedding);
}
""",
    "langchain_openai": """
import { OpenAIEmbeddings } from "@langchain/openai";
async function embedded(baseURL, model, texts) {
  const client = new OpenAIEmbeddings({ model, apiKey: "any", configuration: { baseURL } });
  return await client.embedDocuments(texts);
}
""",
    "ai": """
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany } from "ai";
async function embedded(baseURL, name, values) {
  const model = createOpenAICompatible({ name: "headlight", baseURL }).embeddingModel(name);
  return (await embedMany({ model, values })).embeddings;
}
""",
    "cohere": """
import { CohereClientV2 } from "cohere-ai";
async function embedded(environment, model, texts) {
  const options = { inputType: "search_document", embeddingTypes: ["float"] };
  const client = new CohereClientV2({ environment, token: "any" });
  return (await client.embed({ model, texts, ...options })).embeddings.float;
}
""",
    "voyageai": """
import { VoyageAIClient } from "voyageai";
async function embedded(environment, model, input) {
  const found = await new VoyageAIClient({ environment, apiKey: "any" }).embed({ model, input });
  return found.data.map((one) => one.embedding);
}
""",
    "huggingface_inference": """
import { InferenceClient } from "@huggingface/inference";
async function embedded(endpointUrl, model, inputs) {
  return await new InferenceClient("any", { endpointUrl }).featureExtraction({ inputs });
}
""",
}
BASES = dict.fromkeys(EMBEDDING, "/v1") | {"cohere": "", "huggingface_inference": "/tei"}
PRINTED = "console.log(JSON.stringify(await embedded(given.base, given.model, given.texts)));"
FAILURE = """
try {
  await embedded(given.base, given.model, given.texts);
  console.log("null");
} catch (error) { console.log(JSON.stringify(error.message)); }
"""
RANKING = {
    "cohere": """
import { CohereClientV2 } from "cohere-ai";
const client = new CohereClientV2({ environment: given.base, token: "any" });
const { results } = await client.rerank(given.request);
console.log(JSON.stringify(results));
""",
    "voyageai": """
import { VoyageAIClient } from "voyageai";
const client = new VoyageAIClient({ environment: given.base, apiKey: "any" });
const { data } = await client.rerank(given.request);
console.log(JSON.stringify(data));
""",
}


def each(*names: str) -> list[object]:
    """Parameters, each with the marks of its environment."""
    return [pytest.param(name, marks=needs(NODE + name)) for name in names]


def sent(service: Service, route: str) -> float:
    """How many requests to a route were answered with 200."""
    return service.metrics().get(requests_total(route), 0)


@pytest.mark.parametrize("name", each(*EMBEDDING))
def test_vectors_are_the_native_ones(service: Service, name: str) -> None:
    """At the base URL of docs/protocols.md."""
    found = answers(
        NODE + name, EMBEDDING[name] + PRINTED, base=service.url + BASES[name], model=MODEL, texts=TEXTS
    )
    expected = [one["embedding"] for one in service.encode(TEXTS, normalize=True)["data"]]
    assert distance(found, expected) <= 2e-6


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        pytest.param("langchain_openai", 2, marks=needs(NODE + "langchain_openai")),
        pytest.param("ai", 1, marks=needs(NODE + "ai")),
    ],
)
def test_a_thousand_texts_take_the_library_s_own_batches(service: Service, name: str, requests: int) -> None:
    """LangChain sends 512 in each, and `ai` all of them."""
    texts = [f"This is text {number}." for number in range(1000)]
    before = sent(service, "/v1/embeddings")
    found = answers(
        NODE + name, EMBEDDING[name] + PRINTED, base=service.url + "/v1", model=MODEL, texts=texts
    )
    assert sent(service, "/v1/embeddings") - before == requests
    expected = [
        one["embedding"]
        for first in range(0, 1000, 250)
        for one in service.encode(texts[first : first + 250], normalize=True)["data"]
    ]
    assert np.shape(found) == (1000, 384)
    assert distance(found, expected) <= 2e-6


@pytest.mark.parametrize("name", each(*RANKING))
def test_scores_are_the_native_ones(service: Service, name: str) -> None:
    """In the same order."""
    query, documents = "Who eats?", ["A dog slept.", "A man is eating.", "Nobody is here."]
    found = answers(
        NODE + name,
        RANKING[name],
        base=service.url + BASES[name],
        request={"model": MODEL, "query": query, "documents": documents},
    )
    native = answered(service.http.post("/rerank", json={"query": query, "texts": documents}))["data"]
    assert [one["index"] for one in found] == [one["index"] for one in native]
    assert distance([one["relevanceScore"] for one in found], [one["score"] for one in native]) <= 2e-6


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        pytest.param(name, wrong, marks=needs(NODE + name))
        for name in ("openai", "langchain_openai", "ai", "voyageai", "cohere")
        for wrong in ("/openai", "/v1/v1", "/v1/embeddings", "/v2")
    ],
)
def test_a_wrong_base_url_is_answered_with_the_right_one(service: Service, name: str, wrong: str) -> None:
    """In the text of the library's own error."""
    found = answers(
        NODE + name, EMBEDDING[name] + FAILURE, base=service.url + wrong, model=MODEL, texts=TEXTS
    )
    protocol = "Cohere's" if name == "cohere" else "OpenAI's"
    right = re.escape(service.url + BASES[name])
    assert re.search(rf"{right} for {protocol}", found), found


@pytest.mark.parametrize(
    "name", [pytest.param("huggingface_inference", marks=needs(NODE + "huggingface_inference"))]
)
def test_a_wrong_address_of_the_hub_s_client_is_answered_with_the_right_one(
    service: Service, name: str
) -> None:
    """It prints `error` of the body, as a text."""
    base = service.url + "/hf/embed"
    found = answers(NODE + name, EMBEDDING[name] + FAILURE, base=base, model=MODEL, texts=TEXTS)
    assert f"{service.url}/tei for text-embeddings-inference's" in found
