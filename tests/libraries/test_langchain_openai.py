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


LIMIT = """
import openai
from langchain_openai import OpenAIEmbeddings
model = OpenAIEmbeddings(
    model="mini", base_url=given["url"] + "/v1", api_key="any", check_embedding_ctx_length=False
)
try:
    model.embed_documents(["a"] * 1000)
except openai.BadRequestError as error:
    print(json.dumps(str(error)))
"""


def test_more_texts_than_one_call_may_have_name_the_limit(tei: Service) -> None:
    """It sends a thousand at once, unless its `chunk_size` is smaller."""
    assert "the limit is 256" in answers(NAME, LIMIT, url=tei.url)


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """Of more texts than one call may have, an empty one among them, with its own tokenizing turned off."""
    texts = ["A man is eating.", "", *(f"Text number {i}." for i in range(298))]
    expected = [tei.encode(some, normalize=True)["data"] for some in (texts[:150], texts[150:])]
    found = answers(NAME, EMBED, url=tei.url, texts=texts)
    assert distance(found["documents"], [one["embedding"] for some in expected for one in some]) <= 2e-6
    assert distance(found["query"], expected[0][0]["embedding"]) <= 2e-6
