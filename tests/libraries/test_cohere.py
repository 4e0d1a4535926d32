"""Cohere's own library, both versions of its client."""

from tests.references.comparing import distance
from tests.references.cross_encoder import CrossEncoder
from tests.support.libraries import answers, needs
from tests.support.serving import LONG, Service
from tests.support.tei import QUERY, RANKED

NAME = "cohere"
pytestmark = needs(NAME)

EMBED = """
import asyncio, cohere
set_up = {"base_url": given["url"], "api_key": "any"}
first, second = cohere.Client(**set_up), cohere.ClientV2(**set_up)
texts = given["texts"]
ask = lambda: cohere.AsyncClientV2(**set_up).embed(
    model="mini", texts=texts[:2], input_type="search_document"
)
typed = second.embed(
    model="mini", texts=texts[:2], input_type="search_document", embedding_types=["float", "ubinary"]
).embeddings
print(json.dumps({
    "list": first.embed(model="mini", texts=texts).embeddings,
    "async": asyncio.run(ask()).embeddings.float_,
    "float": typed.float_,
    "ubinary": typed.ubinary,
}))
"""
RERANK = """
import asyncio, cohere
set_up = {"base_url": given["url"], "api_key": "any"}
asked = {"model": "ranker", "query": given["query"], "documents": given["texts"], "top_n": 2}
first = cohere.Client(**set_up).rerank(**asked, return_documents=True).results
assert [one.document.text for one in first] == [given["texts"][one.index] for one in first]
found = [
    first,
    cohere.ClientV2(**set_up).rerank(**asked).results,
    asyncio.run(cohere.AsyncClientV2(**set_up).rerank(**asked)).results,
]
print(json.dumps([[[one.index, one.relevance_score] for one in results] for results in found]))
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


TOKENS = """
import cohere
client = cohere.Client(base_url=given["url"], api_key="any")
found = {}
for offline in (False, True):
    tokens = client.tokenize(text=given["text"], model="mini", offline=offline).tokens
    found[str(offline)] = [tokens, client.detokenize(tokens=tokens, model="mini", offline=offline).text]
print(json.dumps([found, client.models.get("mini").context_length]))
"""
OPTIONS = """
import cohere
set_up = {"base_url": given["url"], "api_key": "any"}
first, second = cohere.Client(**set_up), cohere.ClientV2(**set_up)
cut = lambda side: second.embed(
    model="mini", texts=[given["text"]], input_type="search_document", truncate=side
).embeddings.float_
print(json.dumps({
    "START": cut("START"),
    "END": cut("END"),
    "typed": first.embed(model="mini", texts=["a", "b"], embedding_types=["float"]).embeddings.float_,
    "parts": second.embed(
        model="mini",
        inputs=[{"content": [{"type": "text", "text": "a"}]}],
        input_type="search_document",
        embedding_types=["float"],
    ).embeddings.float_,
}))
"""


def test_text_becomes_tokens_and_text_again(tei: Service) -> None:
    """By the routes, also after the library looked for a tokenizer of its own."""
    found, length = answers(NAME, TOKENS, url=tei.url, text="hello world")
    ids = tei.encode("hello world")["data"][0]["token_ids"][1:-1]
    assert found == {offline: [ids, "hello world"] for offline in ("False", "True")}
    assert length == 256


def test_options_have_their_effect(tei: Service) -> None:
    """Texts lose their beginning or their end; types make an object; an input may have parts."""
    text = f"begin {LONG} end"
    found = answers(NAME, OPTIONS, url=tei.url, text=text)
    for truncate, side in (("START", "left"), ("END", "right")):
        native = tei.encode([text], truncation_side=side, normalize=True)["data"][0]["embedding"]
        assert distance(found[truncate], [native]) <= 2e-6
    expected = [one["embedding"] for one in tei.encode(["a", "b"], normalize=True)["data"]]
    assert distance(found["typed"], expected) <= 2e-6
    assert distance(found["parts"], expected[:1]) <= 2e-6


def test_embeddings_are_native_vectors(tei: Service) -> None:
    """Of more texts than it sends at once, merged; and of several types."""
    texts = ["A man is eating.", "Someone eats.", *(f"Text number {i}." for i in range(198))]
    expected = [one["embedding"] for one in tei.encode(texts, normalize=True)["data"]]
    found = answers(NAME, EMBED, url=tei.url, texts=texts)
    assert distance(found["list"], expected) <= 2e-6
    assert distance(found["float"], expected[:2]) <= 2e-6
    assert distance(found["async"], expected[:2]) <= 2e-6
    native = tei.encode(texts[:2], normalize=True, precision="ubinary")["data"]
    assert found["ubinary"] == [one["embedding"] for one in native]


def test_documents_are_ranked(tei: Service, tei_ranker: CrossEncoder) -> None:
    """The best two, by the scores of the cross-encoder; of each client, and with documents of the first."""
    scores = tei_ranker.predict(QUERY, RANKED).tolist()
    for found in answers(NAME, RERANK, url=tei.url, query=QUERY, texts=RANKED):
        assert [index for index, _ in found] == sorted(range(len(RANKED)), key=lambda i: -scores[i])[:2]
        assert all(0 <= score <= 1 for _, score in found)
        assert distance([score for _, score in found], [scores[index] for index, _ in found]) <= 1e-5


def test_errors_are_the_classes_of_the_library(tei: Service) -> None:
    """With the service's sentence."""
    unknown, long = answers(NAME, ERRORS, url=tei.url)
    assert unknown[0] == "NotFoundError"
    assert "the models are: mini" in unknown[1]
    assert long[0] == "BadRequestError"
    assert "tokens long" in long[1]
