"""LlamaIndex's embedding and re-ranker for Jina's service."""

import numpy as np

from tests.references.comparing import distance
from tests.references.cross_encoder import CrossEncoder
from tests.support.libraries import answers, needs
from tests.support.serving import Service
from tests.support.tei import QUERY, RANKED

NAME = "llama_index_jina"
pytestmark = needs(NAME)

SET_UP = """
from llama_index.embeddings.jinaai import JinaEmbedding
def embedding(model="mini", **options):
    made = JinaEmbedding(model=model, api_key="any", **options)
    made._api.api_url = given["url"] + "/v1/embeddings"  # the class has no argument for it
    return made
"""
EMBED = (
    SET_UP
    + """
texts = given["texts"]
print(json.dumps({
    "float": embedding().get_text_embedding_batch(texts),
    "query": embedding(task="retrieval.query").get_query_embedding(texts[0]),
    "binary": embedding(encoding_documents="binary").get_text_embedding_batch(texts),
    "ubinary": embedding(encoding_documents="ubinary").get_text_embedding_batch(texts),
    "late": embedding(late_chunking=True).get_text_embedding_batch(texts),
}))
"""
)
RERANK = """
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.jinaai_rerank import JinaRerank
nodes = [NodeWithScore(node=TextNode(text=text)) for text in given["texts"]]
ranker = JinaRerank(base_url=given["url"] + "/v1", api_key="any", model="ranker", top_n=2)
best = ranker.postprocess_nodes(nodes, query_str=given["query"])
print(json.dumps([[given["texts"].index(one.node.text), one.score] for one in best]))
"""
ERROR = (
    SET_UP
    + """
try:
    embedding("other").get_text_embedding("a")
except RuntimeError as error:
    print(json.dumps(str(error)))
"""
)


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """As numbers, as bits, and of the parts of one text."""
    texts = ["A man is eating.", " Someone eats."]
    expected = np.array([one["embedding"] for one in tei.encode(texts, normalize=True)["data"]])
    found = answers(NAME, EMBED, url=tei.url, texts=texts)
    assert distance(found["float"], expected) <= 2e-6
    assert distance([found["query"]], expected[:1]) <= 2e-6
    for kind in ("binary", "ubinary"):
        assert np.array_equal(found[kind], expected > 0)
    spans = [[0, len(texts[0])], [len(texts[0]), len("".join(texts))]]
    native = tei.encode("".join(texts), chunks=spans, outputs=[], normalize=True)["data"][0]
    assert distance(found["late"], native["chunks"]["embeddings"]) <= 2e-6


def test_the_best_nodes_are_those_of_the_cross_encoder(tei: Service, tei_ranker: CrossEncoder) -> None:
    """By the same scores."""
    found = answers(NAME, RERANK, url=tei.url, query=QUERY, texts=RANKED)
    scores = tei_ranker.predict(QUERY, RANKED).tolist()
    best = sorted(range(len(RANKED)), key=lambda i: -scores[i])[:2]
    assert [index for index, _ in found] == best
    assert distance([score for _, score in found], [scores[i] for i in best]) <= 1e-5


def test_an_error_is_the_service_s_sentence(tei: Service) -> None:
    """It raises what it finds as `detail`."""
    assert "the models are: mini" in answers(NAME, ERROR, url=tei.url)
