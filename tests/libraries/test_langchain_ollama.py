"""LangChain's embedding for servers of Ollama."""

from tests.references.comparing import distance
from tests.support.libraries import answers, needs
from tests.support.serving import Service

NAME = "langchain_ollama"
pytestmark = needs(NAME)

EMBED = """
import asyncio
from langchain_ollama import OllamaEmbeddings
def made(name, **options):
    return OllamaEmbeddings(model=name, base_url=given["url"], validate_model_on_init=True, **options)
texts = given["texts"]
found = {}
for name in ("mini", "mini:latest"):
    found[name] = made(name).embed_documents(texts)
try:
    made("other")
except ValueError as error:
    found["other"] = str(error)
model = made("mini", dimensions=8, num_ctx=64, keep_alive=60)
found["query"] = model.embed_query(texts[0])
found["async"] = asyncio.run(model.aembed_documents(texts))
print(json.dumps(found))
"""


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """Of a model that it looks for first, by its name and with the tag; sync and async, cut and whole."""
    texts = ["A man is eating.", "Someone eats."]
    expected = [item["embedding"] for item in tei.encode(texts, normalize=True)["data"]]
    cut = [item["embedding"] for item in tei.encode(texts, normalize=True, dimensions=8)["data"]]
    found = answers(NAME, EMBED, url=tei.url, texts=texts)
    for name in ("mini", "mini:latest"):
        assert distance(found[name], expected) <= 2e-6
    assert distance([found["query"]], cut[:1]) <= 2e-6
    assert distance(found["async"], cut) <= 2e-6
    assert "Model `other` not found" in found["other"]
    assert "mini:latest" in found["other"]
