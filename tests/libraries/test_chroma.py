"""Chroma's embedding functions: of text-embeddings-inference, of OpenAI's protocol and of Ollama."""

from tests.references.comparing import distance
from tests.support.libraries import answers, needs
from tests.support.serving import Service

NAME = "chroma"
pytestmark = needs(NAME)

PROGRAM = """
from chromadb.utils.embedding_functions import HuggingFaceEmbeddingServer
embed = HuggingFaceEmbeddingServer(url=given["url"])
print(json.dumps([vector.tolist() for vector in embed(given["texts"])]))
"""
OPENAI = """
import warnings
from chromadb.utils.embedding_functions import OpenAIEmbeddingFunction
warnings.simplefilter("ignore")
embed = OpenAIEmbeddingFunction(api_key="any", api_base=given["url"] + "/v1", model_name="mini")
print(json.dumps([vector.tolist() for vector in embed(given["texts"])]))
"""
OLLAMA = """
from chromadb.utils.embedding_functions import OllamaEmbeddingFunction
embed = OllamaEmbeddingFunction(url=given["url"], model_name="mini")
print(json.dumps([vector.tolist() for vector in embed(given["texts"])]))
"""


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """At its own route, at the base URL, and at the root."""
    texts = ["A man is eating.", "Someone eats."]
    expected = [item["embedding"] for item in tei.encode(texts, normalize=True)["data"]]
    for path in ("/tei/embed", "/tei", ""):
        assert distance(answers(NAME, PROGRAM, url=tei.url + path, texts=texts), expected) <= 2e-6


def test_embeddings_of_openai_s_protocol_are_native_vectors(tei: Service) -> None:
    """All texts in one call."""
    texts = ["A man is eating.", "Someone eats."]
    expected = [item["embedding"] for item in tei.encode(texts, normalize=True)["data"]]
    assert distance(answers(NAME, OPENAI, url=tei.url, texts=texts), expected) <= 2e-6


def test_embeddings_of_ollama_s_protocol_are_native_vectors(tei: Service) -> None:
    """By Ollama's library, which it calls."""
    texts = ["A man is eating.", "Someone eats."]
    expected = [item["embedding"] for item in tei.encode(texts, normalize=True)["data"]]
    assert distance(answers(NAME, OLLAMA, url=tei.url, texts=texts), expected) <= 2e-6
