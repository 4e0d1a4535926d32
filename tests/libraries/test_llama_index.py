"""The embedding and the re-ranker of LlamaIndex for text-embeddings-inference."""

from tests.references.comparing import distance
from tests.references.cross_encoder import CrossEncoder
from tests.support.libraries import answers, needs
from tests.support.serving import Service, serve
from tests.support.tei import QUERY, RANKED

NAME = "llama_index"
pytestmark = needs(NAME)

BARE = {"token": "not-a-key"}

EMBED = """
import asyncio
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
model = TextEmbeddingsInference(model_name="any", base_url=given["url"], auth_token="x")
print(json.dumps({
    "texts": model.get_text_embedding_batch(given["texts"]),
    "async": asyncio.run(model.aget_text_embedding_batch(given["texts"])),
    "query": model.get_query_embedding(given["texts"][0]),
}))
"""
RERANK = """
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference
nodes = [NodeWithScore(node=TextNode(text=text)) for text in given["texts"]]
ranker = TextEmbeddingInference(base_url=given["url"], top_n=2, auth_token=given["token"])
best = ranker.postprocess_nodes(nodes, query_str=given["query"])
print(json.dumps([[given["texts"].index(one.node.text), one.score] for one in best]))
"""


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """Texts and a query, sync and async, at the base URL of the contract and at the root."""
    texts = ["A man is eating.", "Someone eats."]
    expected = [item["embedding"] for item in tei.encode(texts, normalize=True)["data"]]
    for url in (tei.url, f"{tei.url}/tei"):
        found = answers(NAME, EMBED, url=url, texts=texts)
        assert distance(found["texts"], expected) <= 2e-6
        assert distance(found["async"], expected) <= 2e-6
        assert distance([found["query"]], expected[:1]) <= 2e-6


def test_the_best_nodes_are_those_of_the_cross_encoder(
    tei_ranking: Service, tei_ranker: CrossEncoder
) -> None:
    """At the base URL of the contract. Its token is bare, and ignored."""
    found = answers(NAME, RERANK, url=f"{tei_ranking.url}/tei", query=QUERY, texts=RANKED, **BARE)
    scores = tei_ranker.predict(QUERY, RANKED).tolist()
    best = sorted(range(len(RANKED)), key=lambda i: -scores[i])[:2]
    assert [index for index, _ in found] == best
    assert distance([score for _, score in found], [scores[i] for i in best]) <= 1e-5


def test_a_key_is_written_with_its_scheme(tei_ranker: CrossEncoder) -> None:
    """Where keys are set: the re-ranker sends the token as the whole header."""
    key = "key-0123456789abcdef"
    with serve(model=tei_ranker.folder, api_keys=key) as guarded:
        given = {"url": f"{guarded.url}/tei", "query": QUERY, "texts": RANKED}
        assert len(answers(NAME, RERANK, token=f"Bearer {key}", **given)) == 2
