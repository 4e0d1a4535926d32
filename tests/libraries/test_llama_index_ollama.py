"""LlamaIndex's embedding for servers of Ollama."""

from tests.references.comparing import distance
from tests.support.libraries import answers, needs
from tests.support.serving import Service

NAME = "llama_index_ollama"
pytestmark = needs(NAME)

EMBED = """
import asyncio
from llama_index.embeddings.ollama import OllamaEmbedding
model = OllamaEmbedding(model_name="mini", base_url=given["url"], ollama_additional_kwargs={"num_ctx": 64})
print(json.dumps({
    "texts": model.get_text_embedding_batch(given["texts"]),
    "async": asyncio.run(model.aget_text_embedding_batch(given["texts"])),
    "query": model.get_query_embedding(given["texts"][0]),
}))
"""


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """Texts and a query, sync and async."""
    texts = ["A man is eating.", "Someone eats."]
    expected = [item["embedding"] for item in tei.encode(texts, normalize=True)["data"]]
    found = answers(NAME, EMBED, url=tei.url, texts=texts)
    assert distance(found["texts"], expected) <= 2e-6
    assert distance(found["async"], expected) <= 2e-6
    assert distance([found["query"]], expected[:1]) <= 2e-6
