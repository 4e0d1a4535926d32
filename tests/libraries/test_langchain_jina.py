"""LangChain's embeddings of Jina, whose address is a constant of its module."""

from tests.references.comparing import distance
from tests.support.libraries import answers, needs
from tests.support.serving import Service

NAME = "langchain_jina"
pytestmark = needs(NAME)

EMBED = """
import asyncio
from langchain_community.embeddings import jina
jina.JINA_API_URL = given["url"] + "/v1/embeddings"  # the class has no argument for it
embeddings = jina.JinaEmbeddings(model_name="mini", jina_api_key="any")
print(json.dumps({
    "documents": embeddings.embed_documents(given["texts"]),
    "async": asyncio.run(embeddings.aembed_documents(given["texts"])),
    "query": embeddings.embed_query(given["texts"][0]),
}))
"""


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """Documents and a query, sync and async."""
    texts = ["A man is eating.", "Someone eats."]
    expected = [item["embedding"] for item in tei.encode(texts, normalize=True)["data"]]
    found = answers(NAME, EMBED, url=tei.url, texts=texts)
    assert distance(found["documents"], expected) <= 2e-6
    assert distance(found["async"], expected) <= 2e-6
    assert distance([found["query"]], expected[:1]) <= 2e-6
