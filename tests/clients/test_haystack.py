"""Haystack's embedders and ranker for text-embeddings-inference."""

from tests.references.comparing import distance
from tests.references.cross_encoder import CrossEncoder
from tests.support.clients import answers, needs
from tests.support.serving import Service
from tests.support.tei import QUERY, RANKED

NAME = "haystack"
pytestmark = needs(NAME)

EMBED = """
from haystack import Document
from haystack_integrations.components.embedders.huggingface_api import (
    HuggingFaceAPIDocumentEmbedder,
    HuggingFaceAPITextEmbedder,
)
kind = {"api_type": "text_embeddings_inference", "api_params": {"url": given["url"]}}
documents = HuggingFaceAPIDocumentEmbedder(**kind).run([Document(content=text) for text in given["texts"]])
text = HuggingFaceAPITextEmbedder(**kind, normalize=True).run(given["texts"][0])
print(json.dumps({"documents": [d.embedding for d in documents["documents"]], "text": text["embedding"]}))
"""
SPARSE = """
from haystack_integrations.components.embedders.huggingface_api import HuggingFaceTEISparseTextEmbedder
found = HuggingFaceTEISparseTextEmbedder(api_base_url=given["url"]).run(given["text"])["sparse_embedding"]
print(json.dumps([found.indices, found.values]))
"""
RERANK = """
from haystack import Document
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from haystack_integrations.components.rankers.huggingface_api.ranker import TruncationDirection
ranker = HuggingFaceTEIRanker(url=given["url"])
documents = [Document(content=text) for text in given["texts"]]
found = ranker.run(given["query"], documents, truncation_direction=TruncationDirection.RIGHT)["documents"]
print(json.dumps([[given["texts"].index(one.content), one.score] for one in found]))
"""
ERROR = """
from haystack import Document
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from haystack_integrations.components.rankers.huggingface_api.ranker import TruncationDirection
try:
    HuggingFaceTEIRanker(url=given["url"]).run(
        "a", [Document(content=str(i)) for i in range(5)], truncation_direction=TruncationDirection.RIGHT
    )
except Exception as error:
    print(json.dumps(str(error)))
"""


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """Documents are not normalised by default, unlike the text here; more of them than it sends at a time."""
    texts = [f"A man is eating {i} apples." for i in range(40)]
    found = answers(NAME, EMBED, url=tei.url, texts=texts)
    plain = [item["embedding"] for item in tei.encode(texts, normalize=False)["data"]]
    unit = tei.encode(texts[:1], normalize=True)["data"][0]["embedding"]
    assert distance(found["documents"], plain) <= 2e-6
    assert distance(found["text"], unit) <= 2e-6


def test_sparse_embeddings_are_native_ones(tei_words: Service) -> None:
    """The number of each word and its weight."""
    native = tei_words.encode(QUERY, outputs=["sparse"])["data"][0]["sparse"]
    assert answers(NAME, SPARSE, url=tei_words.url, text=QUERY) == [native["token_ids"], native["weights"]]


def test_documents_are_ranked_as_by_the_cross_encoder(tei_ranking: Service, tei_ranker: CrossEncoder) -> None:
    """At the address itself, where it always posts: the direction of truncation says which contract it is."""
    found = answers(NAME, RERANK, url=tei_ranking.url, query=QUERY, texts=RANKED)
    scores = tei_ranker.predict(QUERY, RANKED).tolist()
    assert [index for index, _ in found] == sorted(range(len(RANKED)), key=lambda i: -scores[i])
    assert distance([score for _, score in found], sorted(scores, reverse=True)) <= 1e-5


def test_an_error_says_what_the_service_says(tei_ranking: Service) -> None:
    """It is raised, not taken for an answer."""
    assert "422" in answers(NAME, ERROR, url=tei_ranking.url)
