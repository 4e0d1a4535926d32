"""`faithfulness` of `/explain`, by hand with `transformers`: DeYoung et al. 2020."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.references.checkpoints import SUITED, Reference, write_bert
from tests.references.classifiers import Classifier, write_classifier
from tests.references.comparing import distance
from tests.support.serving import NDJSON, Json, Service, answered, assert_problem, post, serve

TEXTS = ["the man beats the boy, hello world", "hello"]
PAIRS = [["the man beats the boy", "hello world, the man"], ["a", "b"]]
MASK = 4
SHARES = (0.1, 0.2, 0.5)


@pytest.fixture(scope="module")
def moods(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    return write_classifier(tmp_path_factory.mktemp("models") / "moods", ("sad", "glad", "none"), **SUITED)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("models") / "encoder"
    write_bert(folder, **SUITED)
    return Reference.load(folder)


@pytest.fixture(scope="module")
def served(moods: Classifier, encoder: Reference) -> Iterator[Service]:
    with serve(model=f"moods={moods.folder},encoder={encoder.model.name_or_path}", threads=1) as started:
        yield started


def masked(item: Json, units: Any) -> list[int]:
    ids = list(item["token_ids"])
    for unit in units:
        first, after = item["units"]["token_spans"][unit]
        ids[first:after] = [MASK] * (after - first)
    return ids


def losses(
    item: Json, units: list[int], measure: Callable[[list[int]], float]
) -> tuple[list[float], list[float]]:
    """What the score loses without the first units, and with these alone."""
    whole = measure(item["token_ids"])
    counts = [math.ceil(share * len(units)) for share in SHARES]
    without = [whole - measure(masked(item, units[:count])) for count in counts]
    alone = [whole - measure(masked(item, units[count:])) for count in counts]
    return without, alone


def assert_faithful(item: Json, order: list[int], measure: Callable[[list[int]], float]) -> None:
    found = item["faithfulness"]
    assert found["shares"] == list(SHARES)
    without, alone = losses(item, order, measure)
    assert distance(found["comprehensiveness"], without) <= 2e-5
    assert distance(found["sufficiency"], alone) <= 2e-5
    random = np.random.default_rng(0)
    draws = [losses(item, random_order(random, order), measure) for _ in range(3)]
    for name, which in (("random_comprehensiveness", 0), ("random_sufficiency", 1)):
        assert distance(found[name], np.mean([draw[which] for draw in draws], axis=0)) <= 2e-5


def random_order(random: np.random.Generator, order: list[int]) -> list[int]:
    """All units in the next order of the generator, whose seed is fixed: answers can be repeated."""
    units = sorted(order)
    return [units[i] for i in random.permutation(len(units)).tolist()]


def test_of_a_label(served: Service, moods: Classifier) -> None:
    """The units of the largest attributions come first."""
    body = {"inputs": TEXTS, "model": "moods", "target": {"label": "glad"}, "faithfulness": True}
    answer = answered(post(served, body, "/explain"))
    tokens = 0
    for item in answer["data"]:

        def logit(ids: list[int]) -> float:
            with torch.inference_mode():
                return float(moods.pipeline.model(torch.tensor([ids])).logits[0, 1])

        assert_faithful(item, np.argsort(-np.array(item["attributions"]), kind="stable").tolist(), logit)
        tokens += len(item["tokens"]) * (1 + len(item["attributions"]) + 4 * 2 * 3)
    assert answer["usage"]["input_tokens"] == tokens


@pytest.mark.parametrize("method", ["parts", "occlusion"])
def test_of_a_similarity(served: Service, encoder: Reference, method: str) -> None:
    """Units of both texts are in one order; special tokens and their parts stay."""
    body = {"inputs": PAIRS, "model": "encoder", "method": method, "faithfulness": True}
    body["replacement"] = "mask"
    for item in answered(post(served, body, "/explain"))["data"]:
        sides = item["segment_ids"]

        def cosine(ids: list[int], sides: list[int] = sides) -> float:
            vectors = []
            for side in (0, 1):
                own = [token for token, where in zip(ids, sides, strict=True) if where == side]
                states, _ = encoder.run(own, [0] * len(own))
                vectors.append(states[-1].astype(np.float64).mean(0))
            return float(vectors[0] @ vectors[1] / np.prod([np.linalg.norm(v) for v in vectors]))

        if method == "occlusion":
            effects, units = np.array(item["attributions"]), range(len(item["attributions"]))
        else:
            parts = np.array(item["parts"], np.float32)
            every = np.concatenate([parts.sum(1), parts.sum(0)])
            spans = item["units"]["token_spans"]
            units = [i for i, (first, _) in enumerate(spans) if item["word_ids"][first] is not None]  # type: ignore[assignment]
            effects = every[list(units)]
        order = [list(units)[i] for i in np.argsort(-effects, kind="stable").tolist()]
        assert_faithful(item, order, cosine)


def test_each_line_of_ndjson_has_it(served: Service) -> None:
    body = {"inputs": TEXTS, "model": "moods", "faithfulness": True}
    plain = answered(post(served, body, "/explain"))
    lines = post(served, body, "/explain", accept=NDJSON).text.splitlines()
    assert len(lines) == 3
    assert '"faithfulness":{"shares":[0.1,0.2,0.5],"comprehensiveness":[' in lines[0]
    assert plain["data"][0]["faithfulness"]["shares"] == list(SHARES)


def test_heads_are_no_units(served: Service) -> None:
    body = {"inputs": TEXTS, "model": "moods", "method": "heads", "faithfulness": True}
    document = assert_problem(post(served, body, "/explain"), 422, "invalid-request", field="faithfulness")
    assert 'method is "heads": leave one of them out' in document["detail"]
