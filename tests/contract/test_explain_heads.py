"""`POST /explain` with `heads`: each effect is that of one run of `transformers` with a hook on the head."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.references.comparing import distance
from tests.references.cross_encoder import CrossEncoder, write_cross_encoder
from tests.references.families import Written, write_model
from tests.references.interventions import run_changed
from tests.support.families import SIZES
from tests.support.serving import NPZ, Json, Service, answered, assert_problem, batches, post, read_npz, serve

PAIRS = [["the man beats the boy", "hello"], ["a world", "the man"]]
LAYERS, HEADS = 3, 3


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_model(tmp_path_factory.mktemp("models") / "encoder", "Bert", **SIZES)


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    return write_cross_encoder(tmp_path_factory.mktemp("models") / "ranker", "Bert", **SIZES)


@pytest.fixture(scope="module")
def moods(tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    """A classifier of three labels."""
    return write_cross_encoder(tmp_path_factory.mktemp("models") / "moods", "Bert", num_labels=3, **SIZES)


@pytest.fixture(scope="module")
def served(encoder: Written, ranker: CrossEncoder, moods: CrossEncoder) -> Iterator[Service]:
    with serve(model=f"{encoder.folder},{ranker.folder},{moods.folder}", threads=1) as started:
        yield started


def sweep(measure: Callable[[list[Json]], float]) -> tuple[float, Any]:
    """The score, and what it loses without each head, by hand."""
    whole = measure([])
    effects = [
        [whole - measure([{"kind": "heads", "layer": layer, "heads": [head]}]) for head in range(HEADS)]
        for layer in range(LAYERS)
    ]
    return whole, np.array(effects)


def assert_sweep(item: Json, measure: Callable[[list[Json]], float]) -> None:
    whole, effects = sweep(measure)
    assert abs(item["score"] - whole) <= 1e-5
    assert np.shape(item["heads"]) == (LAYERS, HEADS)
    assert distance(item["heads"], effects) <= 2e-5
    assert np.abs(effects).min() > 1e-5, "each head counts, so that none can stand for another"


def test_the_similarity_of_two_texts(served: Service, encoder: Written) -> None:
    """The head is left out of both."""
    answer = answered(post(served, {"inputs": PAIRS, "method": "heads"}, "/explain"))
    assert answer["method"] == "heads"
    tokens = sum(len(item["tokens"]) for item in answer["data"])
    assert answer["usage"]["input_tokens"] == tokens * (1 + LAYERS * HEADS)
    for item in answer["data"]:
        columns = list(zip(item["token_ids"], item["segment_ids"], strict=True))
        sides = [[token for token, segment in columns if segment == side] for side in (0, 1)]

        def cosine(changes: list[Json], sides: list[list[int]] = sides) -> float:
            vectors = [
                run_changed(encoder, ids, [0] * len(ids), changes)[0][-1].astype(np.float64).mean(0)
                for ids in sides
            ]
            return float(vectors[0] @ vectors[1] / np.prod([np.linalg.norm(v) for v in vectors]))

        assert_sweep(item, cosine)
        assert "units" not in item


@pytest.mark.parametrize("label", [None, 0, 2])
def test_logits(served: Service, ranker: CrossEncoder, moods: CrossEncoder, label: int | None) -> None:
    """Of a cross-encoder, and of a label by its name."""
    model = ranker if label is None else moods
    target = {} if label is None else {"target": {"label": f"LABEL_{label}"}}
    name = "ranker" if label is None else "moods"
    answer = answered(post(served, {"inputs": PAIRS, "model": name, "method": "heads", **target}, "/explain"))
    for item in answer["data"]:
        body = Written(model.folder, model.model.bert, model.takes_segments)

        def logit(changes: list[Json], item: Json = item, body: Written = body) -> float:
            states, _ = run_changed(body, item["token_ids"], item["segment_ids"], changes)
            with torch.inference_mode():
                last = torch.tensor(states[-1:], dtype=torch.float32)
                return float(model.model.classifier(model.model.bert.pooler(last))[0, label or 0])

        assert_sweep(item, logit)


def test_a_file_has_them_as_an_array(served: Service) -> None:
    body = {"inputs": PAIRS, "method": "heads"}
    plain = answered(post(served, body, "/explain"))["data"]
    arrays, rest = read_npz(post(served, body, "/explain", accept=NPZ).content)
    for i, item in enumerate(plain):
        assert np.array_equal(arrays[f"{i}.heads"], np.array(item.pop("heads"), np.float32))
        assert rest["data"][i] == item


@pytest.mark.parametrize("more", [{"unit": "token"}, {"replacement": "mask"}])
def test_what_has_no_effect_is_refused(served: Service, more: Json) -> None:
    """No unit is left out."""
    before = batches(served, "encoder")
    (field,) = more
    response = post(served, {"inputs": PAIRS, "method": "heads", **more}, "/explain")
    document = assert_problem(response, 422, "invalid-request", field=field)
    assert 'has no effect on the method "heads"' in document["detail"]
    assert batches(served, "encoder") == before


def test_too_large_a_sweep_is_refused_before_any_work(several: Service) -> None:
    """The 413 names the heads, the tokens and the limit."""
    before = batches(several, "mini")
    body = {"inputs": [["hello", "world"]], "method": "heads", "model": "mini"}
    document = assert_problem(
        post(several, body, "/explain"), 413, "explanation-too-large", limit=256, actual=6 * 73
    )
    assert "run 144 times more, each time without one head, with 438 tokens in all" in document["detail"]
    assert batches(several, "mini") == before


def test_of_too_many_heads_no_unit_is_advised(several: Service) -> None:
    """A larger unit makes no fewer of them."""
    body = {"inputs": [["Hello. " * 16, "hello"]] * 2, "method": "heads", "model": "mini"}
    document = assert_problem(post(several, body, "/explain"), 413, "explanation-too-large")
    assert document["detail"].endswith("send fewer or shorter inputs.")
