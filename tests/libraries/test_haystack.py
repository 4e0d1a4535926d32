"""Haystack's embedders and ranker for text-embeddings-inference."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.references.comparing import distance
from tests.references.cross_encoder import SIGMOID, CrossEncoder, write_cross_encoder
from tests.support.families import SIZES
from tests.support.libraries import AT_ONCE, KEY, answers, needs, refusals
from tests.support.serving import Service, serve
from tests.support.stand_in import Received, Reply, stand_in
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
OPENAI = """
from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.utils import Secret
kind = {"api_base_url": given["url"] + "/v1", "api_key": Secret.from_token("any"), "model": "mini"}
documents = [Document(content=text) for text in given["texts"]]
documents = OpenAIDocumentEmbedder(**kind, dimensions=8).run(documents)
text = OpenAITextEmbedder(**kind).run(given["texts"][0])
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
ranker = HuggingFaceTEIRanker(url=given["url"])
documents = [Document(content=text) for text in given["texts"]]
found = ranker.run(given["query"], documents)["documents"]
print(json.dumps([[given["texts"].index(one.content), one.score] for one in found]))
"""
ERROR = """
from haystack import Document
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
try:
    HuggingFaceTEIRanker(url=given["url"]).run("a", [Document(content=str(i)) for i in range(5)])
except Exception as error:
    print(json.dumps(str(error)))
"""


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """Documents are not normalised by default, unlike the text here; more of them than it sends at a time."""
    texts = [f"A man is eating {i} apples." for i in range(40)]
    found = answers(NAME, EMBED, url=f"{tei.url}/tei", texts=texts)
    plain = [item["embedding"] for item in tei.encode(texts, normalize=False)["data"]]
    unit = tei.encode(texts[:1], normalize=True)["data"][0]["embedding"]
    assert distance(found["documents"], plain) <= 2e-6
    assert distance(found["text"], unit) <= 2e-6


def test_embeddings_of_openai_s_protocol_are_native_vectors(tei: Service) -> None:
    """A text, and more documents than it sends at a time, of fewer dimensions."""
    texts = [f"A man is eating {i} apples." for i in range(40)]
    found = answers(NAME, OPENAI, url=tei.url, texts=texts)
    cut = tei.encode(texts, normalize=True, dimensions=8)["data"]
    assert distance(found["documents"], [item["embedding"] for item in cut]) <= 2e-6
    assert distance(found["text"], tei.encode(texts[0], normalize=True)["data"][0]["embedding"]) <= 2e-6


def test_sparse_embeddings_are_native_ones(tei_words: Service) -> None:
    """The number of each word and its weight."""
    native = tei_words.encode(QUERY, outputs=["sparse"])["data"][0]["sparse"]
    assert answers(NAME, SPARSE, url=f"{tei_words.url}/tei", text=QUERY) == [
        native["token_ids"],
        native["weights"],
    ]


@contextmanager
def at_its_own_address(service: Service) -> Iterator[str]:
    """An ingress that puts `/tei` before each path: the ranker drops that of its URL."""

    def forward(received: Received) -> Reply:
        headers = {name: value for name, value in received.headers.items() if name == "authorization"}
        url = f"{service.url}/tei{received.path}"
        answer = httpx.post(url, json=received.body, headers=headers, timeout=60, trust_env=False)
        kept = {
            name: value for name, value in answer.headers.items() if name in ("content-type", "retry-after")
        }
        return Reply(answer.status_code, [answer.content], kept)

    with stand_in(forward) as ingress:
        yield ingress.url


def test_documents_are_ranked_as_by_the_cross_encoder(tei_ranking: Service, tei_ranker: CrossEncoder) -> None:
    """Where the contract has an address of its own, since it always posts to `/rerank`."""
    with at_its_own_address(tei_ranking) as url:
        found = answers(NAME, RERANK, url=url, query=QUERY, texts=RANKED)
    scores = tei_ranker.predict(QUERY, RANKED).tolist()
    assert [index for index, _ in found] == sorted(range(len(RANKED)), key=lambda i: -scores[i])
    assert distance([score for _, score in found], sorted(scores, reverse=True)) <= 1e-5


def test_an_error_says_what_the_service_says(tei_ranking: Service) -> None:
    """It is raised, not taken for an answer."""
    with at_its_own_address(tei_ranking) as url:
        assert "422" in answers(NAME, ERROR, url=url)


CROWDED = (
    AT_ONCE
    + """
from haystack import Document
from haystack.utils import Secret
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
documents = [Document(content=text) for text in given["texts"]]
def rank(key, attempts):
    set_up = {"token": Secret.from_token(key), "max_retries": attempts, "timeout": 60}
    ranker = HuggingFaceTEIRanker(url=given["url"], **set_up)
    return ranker.run("the man", documents)
print(json.dumps({
    "wrong key": failure(lambda: rank("another", 1)),
    "refused": at_once(lambda: failure(lambda: rank(given["key"], 1))),
    "retried": at_once(lambda: failure(lambda: rank(given["key"], 10))),
}))
"""
)


def test_a_key_opens_and_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    """The ranker sends again what was refused with 429; another key is an error."""
    shape = SIZES | {"num_hidden_layers": 12, "hidden_size": 192, "intermediate_size": 768}
    folder = write_cross_encoder(
        tmp_path / "ranker", "Bert", "with modules", SIGMOID, num_labels=1, **shape
    ).folder
    texts = [f"{'the boy beats the man. ' * 30}{'a ' * i}" for i in range(32)]
    with (
        serve(model=folder, api_keys=KEY, max_queue_tokens=6000, threads=1) as busy,
        at_its_own_address(busy) as url,
    ):
        found = answers(NAME, CROWDED, url=url, key=KEY, texts=texts)
        refused = refusals(busy)
    assert found["wrong key"][0] == "RuntimeError"
    assert "401" in found["wrong key"][1]
    errors = [error for error in found["refused"] if error]
    assert errors
    assert all(kind == "RuntimeError" and "429" in sentence for kind, sentence in errors)
    assert found["retried"] == [None] * 6
    assert refused > len(errors)
