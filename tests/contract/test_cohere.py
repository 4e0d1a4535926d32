"""The contracts of Cohere, and of Jina and Voyage for ranking, by plain HTTP over a real socket."""

from base64 import b64decode

import numpy as np
import pytest

from service.protocols.cohere.embed import CohereEmbedRequest
from service.protocols.cohere.rerank import CohereRerankRequest
from service.protocols.cohere.tokens import CohereDetokenizeRequest, CohereTokenizeRequest
from tests.contract.test_openai import assert_error
from tests.references.comparing import distance
from tests.references.cross_encoder import CrossEncoder
from tests.support.serving import LONG, Json, Service, post
from tests.support.tei import QUERY, RANKED, TEXT, TEXTS, ask


def test_vectors_are_a_list_or_by_type(tei: Service) -> None:
    """A list only in the first version and without types; each type equals the native precision."""
    texts = [TEXT, *TEXTS]
    expected = [one["embedding"] for one in tei.encode(texts, normalize=True)["data"]]
    first = ask(tei, "/v1/embed", texts=texts)
    assert first["response_type"] == "embeddings_floats"
    assert first["texts"] == texts
    assert distance(first["embeddings"], expected) <= 2e-6
    second = ask(tei, "/v2/embed", texts=texts, input_type="classification")
    assert second["response_type"] == "embeddings_by_type"
    assert second["embeddings"].keys() == {"float"}
    types = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
    found = ask(tei, "/v1/embed", texts=texts, embedding_types=types)["embeddings"]
    assert list(found) == types
    assert distance(found["float"], expected) <= 2e-6
    assert distance([np.frombuffer(b64decode(one), np.float32) for one in found["base64"]], expected) <= 2e-6
    for kind in types[1:5]:
        native = tei.encode(texts, normalize=True, precision=kind)["data"]
        assert distance(found[kind], [one["embedding"] for one in native]) <= 1


def test_vectors_are_those_of_the_options(tei: Service) -> None:
    """Cut, with a prompt, and truncated from either side or not at all."""
    prompted = {"model": "prompted", "normalize": True}
    expected = tei.encode([QUERY], prompt_name="passage", dimensions=8, **prompted)["data"][0]["embedding"]
    body: Json = {"model": "prompted", "texts": [QUERY], "input_type": "search_document"}
    found = ask(tei, "/v2/embed", output_dimension=8, **body)["embeddings"]["float"]
    assert distance(found, [expected]) <= 2e-6
    for truncate, side in (("START", "left"), ("END", "right")):
        text = f"begin {LONG} end"
        native = tei.encode([text], truncation_side=side, normalize=True)["data"][0]["embedding"]
        found = ask(tei, "/v2/embed", texts=[text], truncate=truncate)["embeddings"]["float"]
        assert distance(found, [native]) <= 2e-6
    refused = post(tei, {"texts": [TEXT, LONG], "truncate": "NONE"}, "/v2/embed")
    assert_error(refused, 400, "texts.1", "tokens long")


def test_inputs_may_have_parts(tei: Service) -> None:
    """Text parts of an input are lines of one text."""
    inputs = [{"content": [{"type": "text", "text": text} for text in TEXTS]}, {"content": [{"text": TEXT}]}]
    answer = ask(tei, "/v2/embed", inputs=inputs, input_type="classification")
    assert answer["texts"] == ["\n".join(TEXTS), TEXT]
    expected = [one["embedding"] for one in tei.encode(answer["texts"], normalize=True)["data"]]
    assert distance(answer["embeddings"]["float"], expected) <= 2e-6


def test_tokens_become_text_again(tei: Service) -> None:
    """Without the special tokens that the tokenizer adds."""
    native = tei.encode("hello world")["data"][0]
    answer = ask(tei, "/v1/tokenize", model="mini", text="hello world")
    assert answer["tokens"] == native["token_ids"][1:-1]
    assert answer["token_strings"] == native["tokens"][1:-1]
    text = ask(tei, "/v1/detokenize", model="mini", tokens=answer["tokens"])
    assert text == {"text": "hello world", "meta": answer["meta"]}


def test_null_fields_do_no_harm(tei: Service) -> None:
    """In every optional field of every route."""
    documents: Json = {"query": QUERY, "documents": RANKED}
    for path, schema, body in (
        ("/v1/embed", CohereEmbedRequest, {"texts": [TEXT]}),
        ("/v2/embed", CohereEmbedRequest, {"texts": [TEXT]}),
        ("/v1/rerank", CohereRerankRequest, documents),
        ("/v2/rerank", CohereRerankRequest, documents),
        ("/v1/tokenize", CohereTokenizeRequest, {"text": TEXT}),
        ("/v1/detokenize", CohereDetokenizeRequest, {"tokens": [1037]}),
    ):
        nulls = dict.fromkeys(schema.model_fields) | body
        ask(tei, path, unknown=None, **nulls)


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_documents_are_ranked_as_natively(tei: Service, tei_ranker: CrossEncoder, path: str) -> None:
    """The scores are those of sentence-transformers' CrossEncoder, the largest first."""
    scores = tei_ranker.predict(QUERY, RANKED)
    order = np.argsort(-scores).tolist()
    answer = ask(tei, path, model="ranker", query=QUERY, documents=RANKED, top_n=None)
    assert [one["index"] for one in answer["results"]] == order
    assert distance([one["relevance_score"] for one in answer["results"]], scores[order]) <= 1e-5
    assert all(one.keys() == {"index", "relevance_score"} for one in answer["results"])
    assert answer["usage"]["total_tokens"] > 0
    # Clients of Voyage for other languages than Python send no option that tells them apart, and read these.
    assert (answer["object"], answer["data"]) == ("list", answer["results"])
    documents = [{"text": text} for text in RANKED]
    body: Json = {"model": "ranker", "query": QUERY, "documents": documents, "return_documents": True}
    best = ask(tei, path, top_n=2, **body)["results"]
    assert [(one["index"], one["document"]) for one in best] == [(i, {"text": RANKED[i]}) for i in order[:2]]


def test_voyage_has_a_form_of_its_own(tei: Service) -> None:
    """Told by `top_k` or `truncation`: `data` in the place of `results`, documents as strings."""
    body: Json = {"model": "ranker", "query": QUERY, "documents": RANKED}
    other = ask(tei, "/v1/rerank", **body)["results"]
    answer = ask(tei, "/v1/rerank", top_k=1, truncation=True, return_documents=True, **body)
    assert answer.keys() == {"object", "data", "model", "usage"}
    assert answer["object"] == "list"
    assert answer["data"] == [{**other[0], "document": RANKED[other[0]["index"]]}]
    assert len(ask(tei, "/v1/rerank", truncation=True, **body)["data"]) == len(RANKED)
    long = {**body, "documents": ["a", LONG], "truncation": False}
    assert_error(post(tei, long, "/v1/rerank"), 400, "documents.1", "tokens long")


@pytest.mark.parametrize(
    ("path", "body", "param", "part"),
    [
        ("/v1/embed", {}, "texts", "texts is required unless inputs is given"),
        ("/v2/embed", {"texts": ["a"], "inputs": [{"content": [{"text": "a"}]}]}, "inputs", "cannot be"),
        ("/v2/embed", {"inputs": ["a"]}, "inputs.0", '"content" is a list'),
        ("/v2/embed", {"inputs": [{"content": [{"type": "image_url"}]}]}, "inputs.0.content.0", "images"),
        ("/v1/tokenize", {"text": ""}, "text", "empty"),
        ("/v1/tokenize", {"text": LONG}, "text", "tokens long"),
        ("/v1/detokenize", {"tokens": []}, "tokens", "must be a list of at least one token id"),
        ("/v1/detokenize", {"tokens": [[1]]}, "tokens", "must be a list of at least one token id"),
        ("/v2/embed", {"texts": ["a"], "embedding_types": "float"}, "embedding_types", "must be a list of"),
        ("/v1/detokenize", {"tokens": [99999]}, "tokens.0", "is not a token id"),
        ("/v2/embed", {"texts": []}, "texts", "must be a non-empty list of strings"),
        ("/v2/embed", {"texts": ["a", 3]}, "texts.1", "texts.1 must be a string"),
        ("/v2/embed", {"texts": ["a"], "embedding_types": ["half"]}, "embedding_types.0", "'ubinary'"),
        (
            "/v2/embed",
            {"texts": ["a"], "output_dimension": 12, "embedding_types": ["binary"]},
            "output_dimension",
            'embedding_types is "binary", which packs 8',
        ),
        ("/v1/embed", {"texts": ["a"], "output_dimension": 4096}, "output_dimension", "choose 1 to"),
        ("/v1/rerank", {"query": "a"}, "documents", "is required"),
        (
            "/v1/rerank",
            {"query": "a", "documents": ["a", {"image": "x"}]},
            "documents.1",
            'must be a string, or an object with "text"',
        ),
        ("/v1/rerank", {"query": "", "documents": ["a"]}, "query", "empty"),
        ("/v2/rerank", {"query": "a", "documents": ["a"], "model": "labels"}, "model", "/predict"),
        (
            "/v1/rerank",
            {"query": "a", "documents": ["a", "b"], "top_n": 1, "top_k": 2},
            "top_k",
            "top_k is 2 and top_n is 1, but the two fields mean the same: send only one of them",
        ),
        (
            "/v1/rerank",
            {"query": "a", "documents": ["a", "b"], "top_n": 1, "top_k": 2**70},
            "top_k",
            "but the two fields mean the same: send only one of them",
        ),
        (
            "/v2/embed",
            {"texts": ["a"], "embedding_types": ["x"] * 7},
            "embedding_types",
            "must be a list of at most 6",
        ),
    ],
    ids=str,
)
def test_errors_name_the_field(tei: Service, path: str, body: Json, param: str, part: str) -> None:
    """As 400, in the form that the clients of all three read."""
    assert_error(post(tei, body, path), 400, param, part)


@pytest.mark.parametrize(
    ("top", "ways"),
    [("top_n", ["lower `top_n` to "]), ("top_k", ["lower `top_k` to ", "leave out `return_documents`"])],
)
def test_errors_of_ranking_name_the_fields_of_the_client(top: str, ways: list[str], narrow: Service) -> None:
    """In the sentence and beside it: the native route has other names for them."""
    body: Json = {"query": "a", "documents": ["a word" * 20] * 100, top: 99, "return_documents": True}
    refused = post(narrow, body, "/v1/rerank")
    assert refused.status_code == 413
    sentence = refused.json()["error"]["message"]
    assert all(way in sentence for way in ways), sentence
    assert "return_texts" not in sentence


@pytest.mark.parametrize("count", [257, 5000, 40_000])
@pytest.mark.parametrize(
    ("path", "field", "one"),
    [
        ("/v1/embed", "texts", "a"),
        ("/v2/embed", "texts", "a"),
        ("/v2/embed", "inputs", {"content": [{"type": "text", "text": "a"}]}),
        ("/v1/rerank", "documents", "a"),
    ],
)
def test_too_many_texts_are_counted(tei: Service, path: str, field: str, one: object, count: int) -> None:
    """The error has the field that the client sent, its items and the limit of the service."""
    body = {"query": "a", field: [one] * count}
    part = f"{field} has {count} items and the limit is 256: split them"
    assert_error(post(tei, body, path), 400, field, part)
