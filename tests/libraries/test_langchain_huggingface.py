"""`HuggingFaceEndpointEmbeddings` of LangChain, whose client is replaced by one with an address."""

from tests.references.comparing import distance
from tests.support.libraries import answers, needs
from tests.support.serving import Service

NAME = "langchain_huggingface"
pytestmark = needs(NAME)

PROGRAM = """
import asyncio
from huggingface_hub import AsyncInferenceClient, InferenceClient
from langchain_huggingface import HuggingFaceEndpointEmbeddings
embeddings = HuggingFaceEndpointEmbeddings(model="any/name", huggingfacehub_api_token="hf_x")
embeddings.client = InferenceClient(model=given["url"])
embeddings.async_client = AsyncInferenceClient(model=given["url"])
print(json.dumps({
    "documents": embeddings.embed_documents(given["texts"]),
    "query": embeddings.embed_query(given["texts"][0]),
    "async": asyncio.run(embeddings.aembed_documents(given["texts"])),
}))
"""


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """Documents and a query, sync and async; it replaces line breaks by spaces."""
    expected = [item["embedding"] for item in tei.encode(["A man\nis eating.", "é"], normalize=True)["data"]]
    found = answers(NAME, PROGRAM, url=f"{tei.url}/tei", texts=["A man\nis eating.", "é"])
    assert distance(found["documents"], expected) <= 2e-6
    assert distance(found["async"], expected) <= 2e-6
    assert distance([found["query"]], expected[:1]) <= 2e-6
