"""Haystack's components for servers of Ollama."""

from tests.references.comparing import distance
from tests.support.libraries import answers, needs
from tests.support.serving import Service

NAME = "haystack_ollama"
pytestmark = needs(NAME)

EMBED = """
from haystack import Document
from haystack_integrations.components.embedders.ollama import OllamaDocumentEmbedder, OllamaTextEmbedder
set_up = {"model": "mini", "url": given["url"]}
texts = OllamaDocumentEmbedder(**set_up, progress_bar=False, batch_size=2)
found = texts.run([Document(content=text) for text in given["texts"]])
print(json.dumps({
    "texts": [one.embedding for one in found["documents"]],
    "query": OllamaTextEmbedder(**set_up).run(given["texts"][0])["embedding"],
}))
"""


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """Documents, in two calls, and a query."""
    texts = ["A man is eating.", "Someone eats.", "A dog slept."]
    expected = [item["embedding"] for item in tei.encode(texts, normalize=True)["data"]]
    found = answers(NAME, EMBED, url=tei.url, texts=texts)
    assert distance(found["texts"], expected) <= 2e-6
    assert distance([found["query"]], expected[:1]) <= 2e-6
