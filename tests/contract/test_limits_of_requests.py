"""Limits of length that a request sets: `truncate_prompt_tokens` and `max_tokens_per_doc`."""

from typing import Any

import numpy as np
import pytest

from tests.contract.test_openai import PATH, assert_error
from tests.references.comparing import distance
from tests.support.serving import LONG, Json, Service, post
from tests.support.tei import TEXT, TEXTS, ask

WORDS = "the man is eating a piece of bread while another man plays a guitar on the table"


def vector(tei: Service, given: Any, **fields: Any) -> list[float]:
    (found,) = ask(tei, PATH, input=given, **fields)["data"]
    return list(found["embedding"])


def ids_of(tei: Service, text: str) -> list[int]:
    (found,) = post(tei, {"inputs": text}, "/tokenize").json()["data"]
    return list(found["token_ids"])


@pytest.mark.parametrize("most", [3, 4, 9])
def test_the_last_tokens_are_kept(tei: Service, most: int) -> None:
    """Special ones included, which stay where they are; lists of ids are cut in the same way."""
    first, *inner, last = ids_of(tei, WORDS)
    kept = [first, *inner[2 - most :], last]
    expected = vector(tei, [kept])
    assert distance(vector(tei, WORDS, truncate_prompt_tokens=most), expected) <= 2e-6
    assert distance(vector(tei, [[first, *inner, last]], truncate_prompt_tokens=most), expected) <= 2e-6
    answer = post(tei, {"input": [WORDS, "a"], "truncate_prompt_tokens": most}, PATH)
    assert answer.headers["x-truncated-inputs"] == "1"
    assert answer.json()["usage"]["prompt_tokens"] == most + 3


@pytest.mark.parametrize("most", [3, 4, 9])
@pytest.mark.parametrize("side", ["left", "right", None])
def test_tokens_are_removed_from_the_side_that_is_named(tei: Service, most: int, side: str | None) -> None:
    """As vLLM does: the first tokens remain of what is cut from the right; by default the last ones do."""
    first, *inner, last = ids_of(tei, WORDS)
    kept = inner[: most - 2] if side == "right" else inner[2 - most :]
    expected = vector(tei, [[first, *kept, last]])
    fields: Json = {"truncate_prompt_tokens": most, "truncation_side": side}
    assert distance(vector(tei, WORDS, **fields), expected) <= 2e-6
    assert distance(vector(tei, [[first, *inner, last]], **fields), expected) <= 2e-6
    found = ask(tei, "/v1/rerank", query=WORDS, documents=["a man"], **fields)["results"][0]
    text = vector(tei, "a man", **fields)
    assert found["relevance_score"] == pytest.approx(float(np.dot(expected, text)), abs=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_side_holds_at_the_models_limit_too(tei: Service, side: str) -> None:
    """Of every text that is too long: alone, with -1, and among those that are ranked."""
    native = tei.encode([f"start {LONG} end"], truncation_side=side, normalize=True)["data"][0]["embedding"]
    for fields in ({}, {"truncate_prompt_tokens": -1}, {"truncate": True}):
        found = vector(tei, f"start {LONG} end", truncation_side=side, **fields)
        assert distance(found, native) <= 2e-6
    ranked: Json = {"query": "a man", "documents": [f"start {LONG} end"], "truncation_side": side}
    for path in ("/v1/rerank", "/v2/rerank"):
        score = ask(tei, path, **ranked)["results"][0]["relevance_score"]
        assert score == pytest.approx(float(np.dot(vector(tei, "a man"), native)), abs=1e-5)


@pytest.mark.parametrize("wrong", ["Left", "middle", 1, True])
def test_other_sides_are_refused(tei: Service, wrong: Any) -> None:
    """With the two that there are."""
    for path, body in ((PATH, {"input": TEXT}), ("/v1/rerank", {"query": TEXT, "documents": TEXTS})):
        refused = post(tei, {**body, "truncation_side": wrong}, path)
        assert_error(refused, 400, "truncation_side", "'right' or 'left'")


def test_a_limit_above_the_text_changes_nothing(tei: Service) -> None:
    """Nor does -1, the model's own limit, at which the last tokens are kept, too."""
    for most in (100, 10**6, -1):
        assert vector(tei, WORDS, truncate_prompt_tokens=most) == vector(tei, WORDS)
    native = tei.encode([f"{LONG} end"], truncation_side="left", normalize=True)["data"][0]["embedding"]
    for most in (10**6, -1):
        assert distance(vector(tei, f"{LONG} end", truncate_prompt_tokens=most), native) <= 2e-6


def test_it_limits_the_query_and_the_texts_that_are_ranked(tei: Service) -> None:
    """Cosines are those of the vectors of the texts, each of which is cut."""
    body: Json = {"query": WORDS, "documents": TEXTS, "truncate_prompt_tokens": 4}
    found = {one["index"]: one["relevance_score"] for one in ask(tei, "/v1/rerank", **body)["results"]}
    query, *others = (vector(tei, text, truncate_prompt_tokens=4) for text in (WORDS, *TEXTS))
    cosines = [float(np.dot(query, other)) for other in others]
    assert distance([found[i] for i in range(len(TEXTS))], cosines) <= 1e-5
    whole = {
        one["index"]: one["relevance_score"]
        for one in ask(tei, "/v1/rerank", query=WORDS, documents=TEXTS)["results"]
    }
    assert distance([whole[i] for i in range(len(TEXTS))], cosines) > 1e-2


@pytest.mark.parametrize("wrong", [0, -2, 1.5, "4", True])
def test_other_limits_are_refused(tei: Service, wrong: Any) -> None:
    """With the field, on both routes; so is a limit beside a field that forbids to cut."""
    field = "truncate_prompt_tokens"
    assert_error(post(tei, {"input": TEXT, field: wrong}, PATH), 400, field, field)
    ranked = {"query": TEXT, "documents": TEXTS}
    assert_error(post(tei, {**ranked, field: wrong}, "/v2/rerank"), 400, field, field)
    for forbids in ("truncate", "truncation"):
        refused = post(tei, {"input": TEXT, field: 4, forbids: False}, PATH)
        assert_error(refused, 400, field, "leave out one of the two")
    refused = post(tei, {**ranked, field: 4, "truncation": False}, "/v1/rerank")
    assert_error(refused, 400, field, "leave out one of the two")


def test_ids_that_are_cut_keep_the_special_token_at_the_end(tei: Service) -> None:
    """As texts do, whose vector the list of their ids has, too."""
    text = "the " * 400
    first, last = ids_of(tei, "a")[0], ids_of(tei, "a")[-1]
    the = ids_of(tei, "the")[1]
    ids = [first, *[the] * 400, last]
    assert distance(vector(tei, [ids]), vector(tei, text)) <= 2e-6
    body = {"inputs": [ids], "truncation_direction": "Left"}
    (found,) = ask(tei, "/embed", **body)
    assert distance(found, vector(tei, text)) <= 2e-6


@pytest.mark.parametrize("model", ["mini", "ranker"])
def test_the_first_tokens_of_documents_are_read(tei: Service, model: str) -> None:
    """The scores are those of texts cut at the place of a token; the whole ones are returned."""
    documents, query = [WORDS, "a man", "the guitar plays a song of the man"], "the man plays a guitar"
    body: Json = {"model": model, "inputs": documents, "special_tokens": "drop"}
    tokens = post(tei, body, "/tokenize").json()["data"]
    cut = [text[: one["offsets"][:5][-1][1]] for text, one in zip(documents, tokens, strict=True)]
    ranked: Json = {"model": model, "query": query}
    for path in ("/v1/rerank", "/v2/rerank"):
        found = ask(tei, path, documents=documents, max_tokens_per_doc=5, return_documents=True, **ranked)
        expected = ask(tei, path, documents=cut, **ranked)
        whole = ask(tei, path, documents=documents, **ranked)
        assert found["usage"] == expected["usage"] != whole["usage"]
        scores = [
            {one["index"]: one["relevance_score"] for one in answer["results"]}
            for answer in (found, expected, whole)
        ]
        first, second, third = ([one[i] for i in range(len(documents))] for one in scores)
        assert distance(first, second) <= 1e-6
        assert distance(first, third) > 1e-5
        assert all(one["document"]["text"] == documents[one["index"]] for one in found["results"])
    refused = post(tei, {**ranked, "documents": documents, "max_tokens_per_doc": 0}, "/v2/rerank")
    assert_error(refused, 400, "max_tokens_per_doc", "at least 1")
