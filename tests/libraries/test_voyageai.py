"""Voyage's own library."""

import numpy as np

from tests.references.comparing import distance
from tests.references.cross_encoder import CrossEncoder
from tests.support.libraries import answers, needs
from tests.support.serving import Service
from tests.support.tei import QUERY, RANKED

NAME = "voyageai"
pytestmark = needs(NAME)

SET_UP = """
import asyncio, voyageai
client = voyageai.Client(api_key="any", base_url=given["url"] + "/v1")
"""
EMBED = (
    SET_UP
    + """
found = {}
for kind in ("float", "int8", "uint8", "binary", "ubinary"):
    one = client.embed(given["texts"], model="mini", input_type="document", output_dtype=kind)
    found[kind] = [list(map(float, vector)) for vector in one.embeddings]
other = voyageai.AsyncClient(api_key="any", base_url=given["url"] + "/v1")
found["async"] = asyncio.run(other.embed(given["texts"], model="mini", input_type="document")).embeddings
print(json.dumps([found, one.total_tokens]))
"""
)
PARTS = (
    SET_UP
    + """
found = {}
for kind in ("float", "int8", "ubinary"):
    one = client.contextualized_embed(given["inputs"], model="mini", input_type="document", output_dtype=kind)
    found[kind] = [[list(map(float, vector)) for vector in each.embeddings] for each in one.results]
print(json.dumps([found, one.total_tokens]))
"""
)
RERANK = (
    SET_UP
    + """
found = client.rerank(given["query"], given["texts"], model="ranker", top_k=2)
print(json.dumps([[one.index, one.relevance_score, one.document] for one in found.results]))
"""
)
ERRORS = (
    SET_UP
    + """
def tried(**body):
    try:
        client.embed(**{"texts": ["a"], "model": "mini", **body})
    except voyageai.error.VoyageError as error:
        return [type(error).__name__, str(error)]
print(json.dumps([tried(output_dimension=1000), tried(model="other")]))
"""
)


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """Of each type, with true usage."""
    texts = ["A man is eating.", "Someone eats."]
    found, tokens = answers(NAME, EMBED, url=tei.url, texts=texts)
    native = tei.encode(texts, normalize=True)
    assert tokens == native["usage"]["input_tokens"]
    for form in ("float", "async"):
        assert distance(found[form], [one["embedding"] for one in native["data"]]) <= 2e-6
    for kind in ("int8", "uint8", "binary", "ubinary"):
        expected = tei.encode(texts, normalize=True, precision=kind)["data"]
        assert np.array_equal(found[kind], [one["embedding"] for one in expected])


def test_parts_of_documents_are_native_chunks(tei: Service) -> None:
    """Of each document by itself, with true usage."""
    parts = [["A man is eating.", " He is hungry."], ["It rains."]]
    found, tokens = answers(NAME, PARTS, url=tei.url, inputs=parts)
    used = 0
    for kind in ("float", "int8", "ubinary"):
        for i, document in enumerate(parts):
            ends = [0, len(document[0]), len("".join(document))]
            spans = [[ends[j], ends[j + 1]] for j in range(len(document))]
            native = tei.encode(
                "".join(document),
                chunks=spans,
                outputs=[],
                normalize=True,
                precision="float32" if kind == "float" else kind,
            )
            expected = native["data"][0]["chunks"]["embeddings"]
            assert distance(found[kind][i], expected) <= (2e-6 if kind == "float" else 1)
            used += native["usage"]["input_tokens"] * (kind == "float")
    assert tokens == used


def test_documents_are_ranked(tei: Service, tei_ranker: CrossEncoder) -> None:
    """The best two, by the scores of the cross-encoder."""
    found = answers(NAME, RERANK, url=tei.url, query=QUERY, texts=RANKED)
    scores = tei_ranker.predict(QUERY, RANKED).tolist()
    assert [index for index, _, _ in found] == sorted(range(len(RANKED)), key=lambda i: -scores[i])[:2]
    assert distance([score for _, score, _ in found], [scores[index] for index, _, _ in found]) <= 1e-5
    assert [document for _, _, document in found] == [RANKED[index] for index, _, _ in found]


def test_errors_are_the_classes_of_the_library(tei: Service) -> None:
    """With the service's sentence; of a 404 it has no class of its own."""
    dimension, model = answers(NAME, ERRORS, url=tei.url)
    assert dimension[0] == "InvalidRequestError"
    assert "384" in dimension[1]
    assert model[0] == "APIError"
    assert "the models are: mini" in model[1]
