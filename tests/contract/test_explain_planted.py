"""`/explain` of a model with known weights, in which one word and one head decide: each method finds them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.references.comparing import distance
from tests.references.planted import HEAD, HEADS, LAYER, LAYERS, WORD, Planted, write_planted
from tests.support.serving import Json, Service, answered, post, serve

TEXTS = ["the man beats hello boy", f"{WORD} world", f"a man, a boy, the world. {WORD}!"]
PAIRS = [["the hello man", "hello a boy"], ["world hello", "hello the beats boy . hello"]]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return write_planted(tmp_path_factory.mktemp("models") / "classifier", classifies=True)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return write_planted(tmp_path_factory.mktemp("models") / "encoder", classifies=False)


@pytest.fixture(scope="module")
def served(classifier: Planted, encoder: Planted) -> Iterator[Service]:
    with serve(model=f"{classifier.folder},{encoder.folder}", threads=1) as started:
        yield started


def explain(service: Service, **body: object) -> list[Json]:
    data: list[Json] = answered(post(service, body, "/explain"))["data"]
    return data


def sides(item: Json) -> list[list[int]]:
    both = list(zip(item["token_ids"], item["segment_ids"], strict=True))
    return [[token for token, segment in both if segment == side] for side in (0, 1)]


def cosine(first: Any, second: Any) -> float:
    u, v = first.mean(0), second.mean(0)
    return float(u @ v / (np.linalg.norm(u) * np.linalg.norm(v)))


def test_occlusion_finds_the_word_of_a_label(served: Service, classifier: Planted) -> None:
    """All others add nothing; that word adds what it does by hand."""
    for item in explain(served, inputs=TEXTS, model="classifier", target={"label": "with"}):
        ids, units = item["token_ids"], item["units"]
        for text, (first, after), found in zip(
            units["text"], units["token_spans"], item["attributions"], strict=True
        ):
            without = classifier.without(ids, range(first, after))
            expected = classifier.logit(ids) - classifier.logit(without)
            assert abs(found - expected) <= 1e-5
            assert found > 0.1 if text == WORD else abs(found) <= 1e-6, text


def test_its_faithfulness_is_that_of_the_word(served: Service, classifier: Planted) -> None:
    """Without it the label has lost everything, and with it alone nothing."""
    for item in explain(
        served, inputs=TEXTS, model="classifier", target={"label": "with"}, faithfulness=True
    ):
        whole, found = classifier.logit(item["token_ids"]), item["faithfulness"]
        assert distance(found["comprehensiveness"], [whole] * 3) <= 1e-5
        assert distance(found["sufficiency"], [0] * 3) <= 1e-5


def test_heads_finds_the_head_of_a_label(served: Service, classifier: Planted) -> None:
    """All others add nothing."""
    for item in explain(served, inputs=TEXTS, model="classifier", target={"label": "with"}, method="heads"):
        ids, expected = item["token_ids"], np.zeros((LAYERS, HEADS))
        expected[LAYER, HEAD] = classifier.logit(ids) - classifier.logit(ids, ablated=True)
        assert expected.max() > 0.1
        assert distance(item["heads"], expected) <= 1e-5


def test_heads_finds_the_head_of_a_similarity(served: Service, encoder: Planted) -> None:
    """Through which both texts say the same."""
    for item in explain(served, inputs=PAIRS, model="encoder", method="heads"):
        whole, ablated = (
            cosine(*(encoder.states(ids, ablated=ablated) for ids in sides(item)))
            for ablated in (False, True)
        )
        expected = np.zeros((LAYERS, HEADS))
        expected[LAYER, HEAD] = whole - ablated
        assert expected.max() > 0.1
        assert distance(item["heads"], expected) <= 1e-5


def test_parts_of_a_similarity_are_where_the_words_are_the_same(served: Service, encoder: Planted) -> None:
    """Different tokens have in common what the head wrote to both, and nothing else."""
    for item in explain(served, inputs=PAIRS, model="encoder", method="parts", unit="token"):
        ids = sides(item)
        first, second = (encoder.states(one) for one in ids)
        norms = np.linalg.norm(first.mean(0)) * np.linalg.norm(second.mean(0))
        expected = first @ second.T / (len(first) * len(second) * norms)
        assert distance(item["parts"], expected) <= 1e-5
        same = np.equal.outer(*ids)
        assert np.array(item["parts"])[same].min() > np.array(item["parts"])[~same].max() + 1e-3


def test_occlusion_finds_the_word_of_a_similarity(served: Service, encoder: Planted) -> None:
    """It adds what it does by hand, and more than any other."""
    body = {"inputs": PAIRS, "model": "encoder", "method": "occlusion", "replacement": "mask"}
    for item in explain(served, **body):
        ids, units = sides(item), item["units"]
        states = [encoder.states(one) for one in ids]
        whole, found = cosine(*states), np.array(item["attributions"])
        for (first, after), side, effect in zip(units["token_spans"], units["segment"], found, strict=True):
            start = first - side * len(ids[0])
            changed = [*states]
            changed[side] = encoder.states(encoder.without(ids[side], range(start, start + after - first)))
            assert abs(effect - (whole - cosine(*changed))) <= 1e-5
        assert units["text"][int(found.argmax())] == WORD
