"""Rerankers that score a pair by the logit of a token, over a real socket, against `transformers`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.references.logit_score import FIXED, Reranker, write_reranker
from tests.support.backends import export_folder
from tests.support.serving import Json, Service, answered, assert_problem, post, serve

QUERY = "the man beats"
TEXTS = ["the boy", "", "hello world " * 30, "a\n\n b", "\u00e9\U0001f642 <|endoftext|> Q: a", " the boy "]
INSTRUCTION = "Find the boy"


@pytest.fixture(scope="module")
def rerankers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reranker]:
    """One of each kind: tied words, words of their own, one token alone, no template."""
    place = tmp_path_factory.mktemp("rerankers")
    return {
        "tied": write_reranker(place / "tied", tie_word_embeddings=True),
        "alone": write_reranker(
            place / "alone", "Gemma", template=FIXED, tokens=(40, None), ends=(), num_key_value_heads=3
        ),
        "plain": write_reranker(place / "plain", "Qwen2", template=None, tie_word_embeddings=False),
    }


@pytest.fixture(scope="module", params=["on", "off"])
def service(rerankers: dict[str, Reranker], request: pytest.FixtureRequest) -> Iterator[Service]:
    """All of them, with the native kernels and without."""
    models = ",".join(f"{name}={one.folder}" for name, one in rerankers.items())
    with serve(model=models, native=request.param, threads=1) as started:
        yield started


def scores(service: Service, texts: list[str], path: str = "/rerank", **body: object) -> list[float]:
    """The scores in the order of the texts."""
    answer: Json = answered(post(service, {"query": QUERY, "texts": texts, **body}, path))
    items = answer["data"] if isinstance(answer, dict) else answer
    return [item["score"] for item in sorted(items, key=lambda item: int(item["index"]))]


@pytest.mark.parametrize("name", ["tied", "alone", "plain"])
def test_scores_are_the_library_s(service: Service, rerankers: dict[str, Reranker], name: str) -> None:
    """Of long, empty and odd texts, together and alone; the end of the template is never cut."""
    expected = rerankers[name].predict(QUERY, TEXTS)
    assert np.ptp(expected) > 0.01
    together = scores(service, TEXTS, model=name)
    np.testing.assert_allclose(together, expected, rtol=0, atol=1e-5)
    alone = [scores(service, [text], model=name)[0] for text in TEXTS]
    np.testing.assert_allclose(alone, expected, rtol=0, atol=1e-5)


def test_an_instruction_takes_the_place_of_the_model_s(
    service: Service, rerankers: dict[str, Reranker]
) -> None:
    """A model without a place for one refuses it."""
    expected = rerankers["tied"].predict(QUERY, TEXTS, INSTRUCTION)
    assert np.abs(expected - rerankers["tied"].predict(QUERY, TEXTS)).max() > 1e-3
    found = scores(service, TEXTS, model="tied", prompt=INSTRUCTION)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    body = {"query": QUERY, "texts": TEXTS, "model": "alone", "prompt": INSTRUCTION}
    problem = assert_problem(post(service, body, "/rerank"), 422, "unsupported")
    assert "prompt has no place in the chat template" in problem["detail"]


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/tei/rerank"])
def test_other_protocols_rank_by_the_same_scores(
    service: Service, rerankers: dict[str, Reranker], path: str
) -> None:
    """Those of Cohere, Jina and Voyage, and of text-embeddings-inference."""
    field, score = ("texts", "score") if path.startswith("/tei") else ("documents", "relevance_score")
    answer: Any = answered(post(service, {"query": QUERY, field: TEXTS, "model": "tied"}, path))
    items = answer if isinstance(answer, list) else answer["results"]
    found = {item["index"]: item[score] for item in items}
    expected = rerankers["tied"].predict(QUERY, TEXTS)
    np.testing.assert_allclose([found[i] for i in range(len(TEXTS))], expected, rtol=0, atol=1e-5)


def test_predictions_of_pairs_are_the_scores(service: Service, rerankers: dict[str, Reranker]) -> None:
    """They have one label."""
    pairs = [[QUERY, text] for text in TEXTS]
    items = answered(post(service, {"inputs": pairs, "model": "tied"}, "/predict"))["data"]
    found = [item["labels"][0]["score"] for item in items]
    np.testing.assert_allclose(found, rerankers["tied"].predict(QUERY, TEXTS), rtol=0, atol=1e-5)


def test_heads_can_be_taken_away(service: Service, rerankers: dict[str, Reranker]) -> None:
    """As a hook on the input of the output projection does it."""
    reranker = rerankers["tied"]
    layer = reranker.model.model.layers[1].self_attn
    size = layer.head_dim

    def without(_: object, given: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        (x,) = given
        return (torch.cat([torch.zeros_like(x[..., :size]), x[..., size:]], -1),)

    handle = layer.o_proj.register_forward_pre_hook(without)
    expected = reranker.predict(QUERY, TEXTS)
    handle.remove()
    assert np.abs(expected - reranker.predict(QUERY, TEXTS)).max() > 1e-3
    change = {"kind": "heads", "layer": 1, "heads": [0], "scale": 0}
    found = scores(service, TEXTS, model="tied", interventions=[change])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_tokens_of_the_template_belong_to_no_text(service: Service, rerankers: dict[str, Reranker]) -> None:
    """The offsets of the others are those of the query and of the text."""
    text = "the \u00e9 boy"
    body = {"inputs": [[QUERY, text]], "model": "tied"}
    (item,) = answered(post(service, body, "/tokenize"))["data"]
    assert item["token_ids"] == rerankers["tied"].ids(QUERY, text)
    columns = zip(item["offsets"], item["segment_ids"], item["special"], strict=True)
    covered: list[set[int]] = [set(), set()]
    for (start, end), segment, special in columns:
        if not special:
            covered[segment] |= set(range(start, end))
    assert covered == [set(range(len(QUERY))), set(range(len(text)))]


@pytest.mark.parametrize("method", ["occlusion", "heads", "gradient"])
def test_the_score_is_explained(service: Service, rerankers: dict[str, Reranker], method: str) -> None:
    """What is explained is the difference of the logits; words of the template are no units."""
    body = {"inputs": [[QUERY, "the boy"]], "model": "tied", "method": method}
    (item,) = answered(post(service, body, "/explain"))["data"]
    expected = rerankers["tied"].logit(QUERY, "the boy")
    assert item["score"] == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["tied", "alone"])
def test_a_graph_scores_alike(name: str, rerankers: dict[str, Reranker], tmp_path: Path) -> None:
    """The folder that is exported has the template and the rows of the tokens."""
    folder = export_folder(rerankers[name].folder, tmp_path / "graph")
    with serve(model=str(folder), threads=1) as service:
        expected = rerankers[name].predict(QUERY, TEXTS)
        np.testing.assert_allclose(scores(service, TEXTS), expected, rtol=0, atol=1e-4)
