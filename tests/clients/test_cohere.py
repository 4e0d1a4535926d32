"""Cohere's own library, both versions of its client."""

from tests.references.comparing import distance
from tests.references.cross_encoder import CrossEncoder
from tests.support.clients import answers, needs
from tests.support.serving import Service
from tests.support.tei import QUERY, RANKED

NAME = "cohere"
pytestmark = needs(NAME)

EMBED = """
import cohere
set_up = {"base_url": given["url"], "api_key": "any"}
first, second = cohere.Client(**set_up), cohere.ClientV2(**set_up)
texts = given["texts"]
typed = second.embed(
    model="mini", texts=texts[:2], input_type="search_document", embedding_types=["float", "ubinary"]
).embeddings
print(json.dumps({
    "list": first.embed(model="mini", texts=texts).embeddings,
    "float": typed.float_,
    "ubinary": typed.ubinary,
}))
"""
RERANK = """
import cohere
client = cohere.ClientV2(base_url=given["url"], api_key="any")
found = client.rerank(model="ranker", query=given["query"], documents=given["texts"], top_n=2).results
print(json.dumps([[one.index, one.relevance_score] for one in found]))
"""
ERRORS = """
import cohere
client = cohere.ClientV2(base_url=given["url"], api_key="any")
def tried(**body):
    try:
        client.embed(**{"model": "mini", "texts": ["a"], "input_type": "search_query", **body})
    except cohere.core.api_error.ApiError as error:
        return [type(error).__name__, error.body["message"]]
print(json.dumps([tried(model="other"), tried(texts=["long " * 600], truncate="NONE")]))
"""


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """Of more texts than it sends at once, merged; and of several types."""
    texts = ["A man is eating.", "Someone eats.", *(f"Text number {i}." for i in range(198))]
    expected = [one["embedding"] for one in tei.encode(texts, normalize=True)["data"]]
    found = answers(NAME, EMBED, url=tei.url, texts=texts)
    assert distance(found["list"], expected) <= 2e-6
    assert distance(found["float"], expected[:2]) <= 2e-6
    native = tei.encode(texts[:2], normalize=True, precision="ubinary")["data"]
    assert found["ubinary"] == [one["embedding"] for one in native]


def test_documents_are_ranked(tei: Service, tei_ranker: CrossEncoder) -> None:
    """The best two, by the scores of the cross-encoder."""
    found = answers(NAME, RERANK, url=tei.url, query=QUERY, texts=RANKED)
    scores = tei_ranker.predict(QUERY, RANKED).tolist()
    assert [index for index, _ in found] == sorted(range(len(RANKED)), key=lambda i: -scores[i])[:2]
    assert distance([score for _, score in found], [scores[index] for index, _ in found]) <= 1e-5


def test_errors_are_the_classes_of_the_library(tei: Service) -> None:
    """With the service's sentence."""
    unknown, long = answers(NAME, ERRORS, url=tei.url)
    assert unknown[0] == "NotFoundError"
    assert "the models are: mini" in unknown[1]
    assert long[0] == "BadRequestError"
    assert "tokens long" in long[1]
