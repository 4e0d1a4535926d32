"""The contract of text-embeddings-inference: its own requests, by plain HTTP over a real socket."""

import re
from typing import Any

import numpy as np
import pytest

from tests.references.classifiers import Classifier
from tests.references.comparing import distance
from tests.references.cross_encoder import CrossEncoder
from tests.support.serving import LONG, Json, Service, assert_problem, post
from tests.support.tei import QUERY, RANKED, TEXT, TEXTS, ask, assert_error

# ---------------------------------------------------------------------------------------- embeddings


@pytest.mark.parametrize("path", ["/embed", "/tei/embed", "/", "/tei"])
def test_a_text_is_embedded_as_natively(tei: Service, path: str) -> None:
    """A list of vectors, also of one text, of unit norm; on the bare address as on its own path."""
    whole = [TEXT, *TEXTS]
    expected = [item["embedding"] for item in tei.encode(whole, normalize=True)["data"]]
    assert distance(ask(tei, path, inputs=whole), expected) <= 2e-6
    assert distance(ask(tei, path, inputs=TEXT), expected[:1]) <= 2e-6


def test_vectors_are_those_of_the_options(tei: Service) -> None:
    """Not normalised, cut before that, and with a prompt, each equal to the native option's."""
    for given, native in (
        ({"normalize": False}, {"normalize": False}),
        ({"dimensions": 8}, {"dimensions": 8, "normalize": True}),
        ({"truncate": True, "truncation_direction": "Left"}, {"truncation_side": "left", "normalize": True}),
    ):
        found = ask(tei, "/embed", inputs=[LONG + " end"], **given)
        expected = tei.encode([LONG + " end"], **native)["data"][0]["embedding"]
        assert distance(found, [expected]) <= 2e-6
    prompted = {"model": "prompted", "normalize": False, "prompt_name": "passage"}
    expected = tei.encode([QUERY], **prompted)["data"][0]["embedding"]
    assert distance(ask(tei, "/embed", inputs=QUERY, **prompted), [expected]) <= 2e-6


def test_unknown_and_null_fields_do_no_harm(tei: Service) -> None:
    """Clients send fields that servers do not know, and null for what was not set."""
    nulls = dict.fromkeys(["truncate", "prompt_name", "dimensions", "normalize", "parameters", "model"])
    assert ask(tei, "/embed", inputs=TEXT, options={"x": 1}, **nulls) == ask(tei, "/embed", inputs=TEXT)


def test_ids_run_as_they_are_sent(tei: Service) -> None:
    """The ids of a text, special ones included, give its vector; a list of ids is one input."""
    ids = [tei.encode(text)["data"][0]["token_ids"] for text in (TEXT, TEXTS[0])]
    expected = ask(tei, "/embed", inputs=[TEXT, TEXTS[0]])
    assert distance(ask(tei, "/embed", inputs=ids), expected) <= 2e-6
    assert distance(ask(tei, "/embed", inputs=ids[0]), expected[:1]) <= 2e-6
    assert distance(ask(tei, "/embed", inputs=[TEXT, ids[1]]), expected) <= 2e-6
    assert_error(post(tei, {"inputs": [[101, 99999]]}, "/embed"), 422, "Validation", "inputs.0.1 is 99999")
    assert_error(post(tei, {"inputs": [101, 99999]}, "/embed"), 422, "Validation", "inputs.1 is 99999")


def test_each_token_has_a_vector(tei: Service) -> None:
    """/embed_all: input, token, component; special tokens included, not pooled."""
    found = ask(tei, "/embed_all", inputs=[TEXT, TEXTS[0]])
    for one, item in zip(found, tei.encode([TEXT, TEXTS[0]], outputs=["tokens"])["data"], strict=True):
        assert np.shape(one) == (len(item["tokens"]), 384)
        assert distance(one, item["token_embeddings"][0]) <= 2e-6 * np.abs(item["token_embeddings"]).max()


def test_long_answers_are_the_same_numbers(tei: Service) -> None:
    """Of megabytes, which are written in pieces, as of one text."""
    texts = [f"{LONG} {i}" for i in range(12)]
    found = ask(tei, "/embed_all", inputs=texts)
    for i in (0, 11):
        assert np.shape(found[i]) == (256, 384)
        assert distance(found[i], ask(tei, "/embed_all", inputs=texts[i])[0]) <= 2e-6 * np.abs(found[i]).max()
    tokens = ask(tei, "/tei/tokenize", inputs=["é " * 200] * 60)
    assert tokens == ask(tei, "/tei/tokenize", inputs="é " * 200) * 60


def test_ids_become_text_for_a_prompt(tei: Service) -> None:
    """Without their special tokens: the vector is that of the text with its prompt."""
    options = {"model": "prompted", "prompt_name": "passage"}
    ids = tei.encode("the man", model="prompted", prompt="")["data"][0]["token_ids"]
    found = ask(tei, "/embed", inputs=[ids], **options)
    assert distance(found, ask(tei, "/embed", inputs="the man", **options)) <= 2e-6


def test_words_have_weights(tei: Service) -> None:
    """/embed_sparse: those above 0, as SPLADE defines them; a model without them is a 424."""
    (found,) = ask(tei, "/embed_sparse", inputs=QUERY, model="splade")
    native = tei.encode(QUERY, model="splade", outputs=["sparse"])["data"][0]["sparse"]
    assert [one["index"] for one in found] == native["token_ids"]
    assert [one["value"] for one in found] == native["weights"]
    assert ask(tei, "/", inputs=QUERY, model="splade") == [found]
    assert_error(post(tei, {"inputs": QUERY}, "/embed_sparse"), 424, "Backend", "Backend error: The model")


def test_an_answer_reports_its_work(tei: Service) -> None:
    """The eight x- headers are there; tokens are those that the native route counts."""
    response = post(tei, {"inputs": [TEXT, "é🙂"]}, "/embed")
    headers = response.headers
    assert headers["x-compute-type"] == "cpu+optimized"
    names = ("compute-time", "total-time", "tokenization-time", "queue-time", "inference-time")
    assert all(re.fullmatch(r"\d+", headers[f"x-{name}"]) for name in names)
    assert headers["x-compute-characters"] == str(len(TEXT) + 2)
    assert int(headers["x-compute-tokens"]) == tei.encode([TEXT, "é🙂"])["usage"]["input_tokens"]


@pytest.mark.parametrize(
    ("service", "path", "body", "characters"),
    [
        ("tei", "/embed", {"inputs": ["é🙂", "abc"]}, 5),
        ("tei_moods", "/tei/predict", {"inputs": ["é🙂", "abc"]}, 5),
        ("tei_ranking", "/tei/rerank", {"query": "é🙂", "texts": ["abc", "d"]}, 2 * 2 + 4),
        ("tei", "/tei/similarity", {"inputs": {"source_sentence": "é🙂", "sentences": ["abc", "d"]}}, 6),
    ],
)
def test_characters_are_counted_as_there(
    request: pytest.FixtureRequest, service: str, path: str, body: Any, characters: int
) -> None:
    """In code points; those of a query once for each text, those of a source once."""
    response = post(request.getfixturevalue(service), body, path)
    assert response.headers["x-compute-characters"] == str(characters)


# ------------------------------------------------------------------------------- labels and rankings


def test_labels_are_those_of_the_pipeline(tei: Service, tei_classifier: Classifier) -> None:
    """A text, a pair, and a batch of lists of one or two; the largest score first; logits if asked."""

    def assert_scores(found: list[Json], text: Any, function: str | None = None) -> None:
        expected = tei_classifier.scores(text, function)
        assert [one["label"] for one in found] == [one["label"] for one in expected]
        assert distance([one["score"] for one in found], [one["score"] for one in expected]) <= 1e-5

    assert_scores(ask(tei, "/tei/predict", model="labels", inputs="the man"), "the man")
    assert_scores(ask(tei, "/", model="labels", inputs="the man"), "the man")
    assert_scores(ask(tei, "/tei/predict", model="labels", inputs=["the", "man"]), ("the", "man"))
    one, pair = ask(tei, "/tei/predict", model="labels", inputs=[["the"], ["the", "man"]])
    assert_scores(one, "the")
    assert_scores(pair, ("the", "man"))
    raw = ask(tei, "/tei/predict", model="labels", inputs="the man", raw_scores=True)
    assert_scores(raw, "the man", "none")


def test_the_form_of_the_hub_has_all_labels(tei: Service, tei_classifier: Classifier) -> None:
    """Its client reads element 0 of the list, so that a text's labels are in a list of their own."""
    body: Json = {"inputs": "the man", "model": "labels", "parameters": {}}
    ((*labels,),) = ask(tei, "/tei/predict", **body)
    assert len(labels) == 3
    assert ask(tei, "/tei/predict", **body | {"parameters": {"top_k": 1}}) == [labels[:1]]
    logits = ask(tei, "/tei/predict", **body | {"parameters": {"function_to_apply": "none"}})
    expected = tei_classifier.scores("the man", "none")
    assert distance([one["score"] for one in logits[0]], [one["score"] for one in expected]) <= 1e-5
    refused = post(tei, body | {"parameters": {"function_to_apply": "sigmoid"}}, "/tei/predict")
    assert_error(refused, 422, "Validation", "function_to_apply")


def test_the_hub_in_javascript_has_all_labels_too(tei: Service) -> None:
    """It sends no `parameters`, and reads element 0 as well; entities are a list for every client."""
    agent = {"User-Agent": "@huggingface/inference/4.13.0 Node.js/22"}
    for path in ("/tei", "/tei/predict"):
        plain = ask(tei, path, inputs="the man", model="labels")
        found = tei.http.post(path, json={"inputs": "the man", "model": "labels"}, headers=agent)
        assert found.json() == [plain]
    body = {"inputs": "Ada Lovelace lived in London.", "model": "names"}
    entities = tei.http.post("/tei", json=body, headers=agent).json()
    assert entities
    assert entities == ask(tei, "/tei", **body)


def test_entities_have_the_names_of_the_hub(tei: Service) -> None:
    """A token classifier answers with entity groups, each the native entity."""
    text = "Ada Lovelace lived in London."
    found = ask(tei, "/", inputs=text, model="names", parameters={"aggregation_strategy": "simple"})
    native = post(tei, {"inputs": text, "model": "names", "aggregation": "simple"}, "/predict").json()
    assert found == [
        {
            "entity_group": one["label"],
            "score": one["score"],
            "word": one["text"],
            "start": one["start"],
            "end": one["end"],
        }
        for one in native["data"][0]["entities"]
    ]
    assert [one["word"] for one in found] == ["Ada Lovelace", "London"]


@pytest.mark.parametrize("path", ["/tei/rerank", "/", "/tei", "/tei/", "/invocations", "/tei/invocations"])
def test_texts_are_ranked_as_by_the_cross_encoder(
    tei_ranking: Service, tei_ranker: CrossEncoder, path: str
) -> None:
    """Index and score, the largest first; with text if asked; the default is the sigmoid of the logit."""
    body: Json = {"query": QUERY, "texts": RANKED, "truncation_direction": "right"}
    for raw in (False, True):
        found = ask(tei_ranking, path, **body, raw_scores=raw)
        assert all(list(one) == ["index", "score"] for one in found)
        scores = {one["index"]: one["score"] for one in found}
        expected = tei_ranker.predict(QUERY, RANKED, raw=raw)
        assert distance([scores[i] for i in range(len(RANKED))], expected) <= 1e-5
        assert [one["score"] for one in found] == sorted(scores.values(), reverse=True)
    shown = ask(tei_ranking, path, **body, return_text=True)
    assert all(one["text"] == RANKED[one["index"]] for one in shown)


def test_what_is_no_reranker_says_so(tei: Service) -> None:
    """A 424, as a route that does not fit the model is there."""
    body = {"query": "a", "texts": ["b"]}
    assert_error(post(tei, body, "/tei/rerank"), 424, "Backend", "is not a re-ranker model")
    assert_error(post(tei, body | {"model": "labels"}, "/tei/rerank"), 424, "Backend")
    assert_error(post(tei, {"inputs": "a"}, "/tei/predict"), 424, "Backend")


@pytest.mark.parametrize("path", ["/tei/similarity", "/", "/tei"])
def test_similarities_are_cosines(tei: Service, path: str) -> None:
    """Those of the native route; of a sentence with itself 1."""
    inputs = {"source_sentence": TEXT, "sentences": [TEXT, *TEXTS]}
    found = ask(tei, path, inputs=inputs, parameters={"truncate": True})
    native = post(tei, {"source": TEXT, "texts": [TEXT, *TEXTS]}, "/similarity").json()
    assert distance(found, native["similarities"]) <= 2e-6
    assert abs(found[0] - 1) <= 1e-6


# -------------------------------------------------------------------------------------------- tokens


def test_tokens_say_where_they_are_in_bytes(tei: Service) -> None:
    """Offsets count bytes of UTF-8; special tokens have none; text is the part of the text."""
    (tokens,) = ask(tei, "/tei/tokenize", inputs="é b")
    native = tei.encode("é b")["data"][0]
    assert [one["id"] for one in tokens] == native["token_ids"]
    assert [(one["start"], one["stop"]) for one in tokens] == [(None, None), (0, 2), (3, 4), (None, None)]
    assert [one["text"] for one in tokens] == ["[CLS]", "é", "b", "[SEP]"]
    assert [one["special"] for one in tokens] == [True, False, False, True]
    ((first, second),) = ask(tei, "/tei/tokenize", inputs=["é b"], add_special_tokens=False)
    assert [first, second] == tokens[1:3]


def test_tokens_of_a_prompt_count_as_text(tei: Service) -> None:
    """They come first, and the text begins after them."""
    (tokens,) = ask(tei, "/tei/tokenize", model="prompted", prompt_name="passage", inputs="🙂 man")
    whole = "hello world 🙂 man".encode()
    assert [whole[t["start"] : t["stop"]].decode() for t in tokens if not t["special"]] == [
        *("hello", "world", "🙂", "man")
    ]


def test_ids_become_text(tei: Service) -> None:
    """Of one list or of several, with and without special tokens."""
    ids = tei.encode("hello world")["data"][0]["token_ids"]
    assert ask(tei, "/tei/decode", ids=ids) == ["hello world"]
    assert ask(tei, "/tei/decode", ids=[ids, ids[1:2]]) == ["hello world", "hello"]
    assert ask(tei, "/tei/decode", ids=ids, skip_special_tokens=False) == ["[CLS] hello world [SEP]"]


# ----------------------------------------------------------------------------------- native routes


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/predict", {"inputs": "a", "model": "labels", "parameters": {}}, "parameters"),
        ("/rerank", {"query": "a", "texts": ["b"], "truncation_direction": "right"}, "truncation_direction"),
        ("/tokenize", {"inputs": "a", "add_special_tokens": True}, "add_special_tokens"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["a"]}}, "inputs"),
        ("/decode", {"ids": [101]}, "ids"),
    ],
)
def test_a_native_route_says_where_the_other_one_is(tei: Service, path: str, body: Json, field: str) -> None:
    """Bodies of this contract are refused there like any other with an unknown field, and answered here."""
    document = assert_problem(post(tei, body, path), 422, "invalid-request")
    assert f"{field} is not a known field" in document["detail"]
    use = f"; clients of text-embeddings-inference use /tei{path}: add /tei to the base URL."
    assert document["detail"].endswith(use)
    model = {"model": "ranker"} if path == "/rerank" else {}
    assert isinstance(ask(tei, f"/tei{path}", **body, **model), list)
    other = assert_problem(post(tei, {"nonsense": 1}, path), 422, "invalid-request")
    assert "text-embeddings-inference" not in other["detail"]


COHERE = "; clients of Cohere use /v2/embed: add /v2 to the base URL"
SENTENCES = "; clients of text-embeddings-inference use /tei/similarity: add /tei to the base URL"
RANKERS = "; clients of Cohere, Jina and Voyage use /v1/rerank: add /v1 to the base URL"


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/encode", {"text": "a"}, "inputs is required; text is not a known field (did you mean inputs?)"),
        ("/encode", {"texts": ["a"]}, "(did you mean inputs?)"),
        ("/attention", {"documents": ["a"]}, "(did you mean inputs?)"),
        ("/attention", {"inputs": "a", "source_sentence": "a"}, SENTENCES),
        ("/predict", {"text": "a"}, "(did you mean inputs?)"),
        ("/tokenize", {"text": "a"}, "(did you mean inputs?)"),
        ("/similarity", {"documents": ["a"]}, "(did you mean texts?)"),
        ("/similarity", {"texts": ["a"], "source_sentence": "a"}, f"(did you mean source?){SENTENCES}"),
        ("/rerank", {"query": "a", "inputs": ["a"]}, "(did you mean texts?)"),
        ("/rerank", {"query": "a", "documents": ["a"]}, f"(did you mean texts?){RANKERS}"),
        ("/tei/rerank", {"query": "a", "documents": ["a"]}, f"(did you mean texts?){RANKERS}"),
        ("/embed", {"texts": ["a"]}, f"(did you mean inputs?){COHERE}"),
        ("/v1/embeddings", {"inputs": ["a"]}, "(did you mean input?)"),
        ("/v1/embeddings", {"texts": ["a"]}, "(did you mean input?)"),
        ("/v1/rerank", {"query": "a", "texts": ["a"]}, "(did you mean documents?)"),
    ],
)
def test_fields_of_other_servers_lead_to_ours(tei: Service, path: str, body: Json, sentence: str) -> None:
    """The error names the field that is meant, or the base URL with which the client would be right."""
    refused = post(tei, body, path)
    assert refused.status_code in (400, 422)
    document = refused.json()
    said = document["error"] if path.startswith(("/tei", "/embed")) else document["detail"]
    assert said.endswith(f"{sentence}.")


def test_info_has_the_keys_of_both(tei: Service, tei_ranking: Service) -> None:
    """What the first model is for, and the limits; the native keys are as they are."""
    info, ranking = tei.http.get("/info").json(), tei_ranking.http.get("/tei/info").json()
    assert info["model_id"] == info["served_model_name"] == info["models"][0]["name"] == "mini"
    assert info["model_type"] == {"embedding": {"pooling": "mean"}}
    assert ranking["model_type"] == {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}
    assert (info["max_input_length"], info["max_client_batch_size"]) == (256, 256)
    assert info["auto_truncate"] is True
    assert info["limits"]["max_inputs"] == 256


def test_metrics_count_by_the_route_without_the_prefix(tei: Service) -> None:
    """So that a rule counts a route once, whatever its address; `/` and `/tei` are one."""
    before = tei.metrics()
    for path in ("/embed", "/tei/embed", "/", "/tei", "/tei/", "/invocations", "/tei/invocations"):
        ask(tei, path, inputs=TEXT)
    after = tei.metrics()
    for route, requests in (("/embed", 2), ("/tei", 5)):
        for series in (
            f'headlight_requests_total{{kind="inference",route="{route}",status="200"}}',
            f'headlight_inputs_total{{model="mini",route="{route}"}}',
        ):
            assert after[series] - before.get(series, 0) == requests, series
    assert not any('route="/tei/' in series for series in after)
    assert after['headlight_requests_total{kind="other",route="/",status="307"}'] >= 0


def test_the_address_for_browsers_stays(tei: Service) -> None:
    """GET / leads to the documentation, while POST / embeds."""
    assert tei.http.get("/").headers["location"] == "docs"
    refused = tei.http.put("/")
    assert refused.status_code == 405
    assert {"GET", "HEAD", "POST"} <= set(refused.headers["allow"].split(", "))
