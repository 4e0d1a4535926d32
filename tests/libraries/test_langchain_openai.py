"""LangChain's embeddings of OpenAI."""

from tests.references.comparing import distance
from tests.support.libraries import answers, needs
from tests.support.serving import Service

NAME = "langchain_openai"
pytestmark = needs(NAME)

EMBED = """
from langchain_openai import OpenAIEmbeddings
model = OpenAIEmbeddings(
    model="mini",
    base_url=given["url"] + "/v1",
    api_key="any",
    check_embedding_ctx_length=False,
    chunk_size=100,
)
texts = given["texts"]
print(json.dumps({"documents": model.embed_documents(texts), "query": model.embed_query(texts[0])}))
"""


DEFAULT_BATCH = """
from langchain_openai import OpenAIEmbeddings
model = OpenAIEmbeddings(
    model="mini", base_url=given["url"] + "/v1", api_key="any", check_embedding_ctx_length=False
)
print(json.dumps(model.embed_documents(given["texts"])))
"""


def test_a_thousand_texts_are_one_request(tei: Service) -> None:
    """It sends as many at once, unless its `chunk_size` is smaller."""
    texts = [f"Text number {i}." for i in range(1000)]
    expected = tei.encode(texts[-100:], normalize=True)["data"]
    found = answers(NAME, DEFAULT_BATCH, url=tei.url, texts=texts)
    assert len(found) == 1000
    assert distance(found[-100:], [one["embedding"] for one in expected]) <= 2e-6


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """Of more texts than one call may have, an empty one among them, with its own tokenizing turned off."""
    texts = ["A man is eating.", "", *(f"Text number {i}." for i in range(298))]
    expected = [tei.encode(some, normalize=True)["data"] for some in (texts[:150], texts[150:])]
    found = answers(NAME, EMBED, url=tei.url, texts=texts)
    assert distance(found["documents"], [one["embedding"] for some in expected for one in some]) <= 2e-6
    assert distance(found["query"], expected[0][0]["embedding"]) <= 2e-6
