"""Every route that orders texts does so by logits: scores of large ones are all 1 in float32."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.references.cross_encoder import SIGMOID, CrossEncoder, write_cross_encoder
from tests.support.families import SIZES
from tests.support.serving import Json, Service, answered, post, serve

QUERY = "the man beats"
TEXTS = [
    f"{subject} {verb} {subject}"
    for subject in ("the boy", "man", "a b c", "hello", "日本", "world hello", ".")
    for verb in ("beats", "helloing", "beating world", "🙂", "a")
]
LARGEST = 80.0
PLACED = {"around 0": (-LARGEST, LARGEST), "all large": (20.0, LARGEST), "all small": (-LARGEST, -20.0)}
"""The least and the largest logit of the texts; the sigmoid of those above 17 is 1 in float32."""


def place_logits(ranker: CrossEncoder, least: float, largest: float) -> None:
    """Change the classifier so that the logits of TEXTS are spread between two numbers."""
    logits = np.array([ranker.run(QUERY, text)[0] for text in TEXTS])
    classifier, scale = ranker.model.classifier, (largest - least) / np.ptp(logits)
    with torch.no_grad():
        classifier.weight.mul_(scale)
        classifier.bias.copy_((classifier.bias - logits.min()) * scale + least)
    ranker.model.save_pretrained(ranker.folder)


@pytest.fixture(scope="module")
def rankers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A cross-encoder of each range of logits, and a classifier of many labels with large logits."""
    place = tmp_path_factory.mktemp("models")
    models = []
    for number, (least, largest) in enumerate(PLACED.values()):
        ranker = write_cross_encoder(place / str(number), "Bert", "since 4.0", SIGMOID, **SIZES)
        place_logits(ranker, least, largest)
        models.append(f"{number}={ranker.folder}")
    models.append(f"labels={write_labels(place / 'labels')}")
    with serve(model=",".join(models)) as started:
        yield started


def write_labels(folder: Path) -> Path:
    """A classifier of independent labels whose logits are 20, 21, 22, …"""
    problem = "multi_label_classification"
    written = write_cross_encoder(folder, "Bert", num_labels=6, problem_type=problem, **SIZES)
    with torch.no_grad():
        written.model.classifier.weight.zero_()
        written.model.classifier.bias.copy_(torch.arange(20.0, 26.0))
    written.model.save_pretrained(folder)
    return folder


def native(service: Service, model: str, **options: object) -> list[tuple[int, float]]:
    answer = answered(post(service, {"query": QUERY, "texts": TEXTS, "model": model, **options}, "/rerank"))
    return [(item["index"], item["score"]) for item in answer["data"]]


def tei(service: Service, model: str) -> list[tuple[int, float]]:
    answer: Any = answered(post(service, {"query": QUERY, "texts": TEXTS, "model": model}, "/tei/rerank"))
    return [(item["index"], item["score"]) for item in answer]


def cohere(service: Service, model: str, version: int, **options: object) -> list[tuple[int, float]]:
    body: Json = {"query": QUERY, "documents": TEXTS, "model": model, **options}
    answer = answered(post(service, body, f"/v{version}/rerank"))
    return [(item["index"], item["relevance_score"]) for item in answer.get("results") or answer["data"]]


@pytest.mark.parametrize("model", range(len(PLACED)), ids=list(PLACED))
def test_the_order_by_score_is_the_order_by_logit(model: int, rankers: Service) -> None:
    """On every route, of all texts and of the best; only texts of equal logits are ordered by index."""
    name = str(model)
    raw = native(rankers, name, raw_scores=True)
    assert raw == sorted(raw, key=lambda one: (-one[1], one[0]))
    least, largest = list(PLACED.values())[model]
    assert raw[0][1] == pytest.approx(largest, abs=0.1)
    assert raw[-1][1] == pytest.approx(least, abs=0.1)
    order = [index for index, _ in raw]
    seen = {"layers": [0], "heads": [0], "top_k": 1}
    whole = {
        "native": native(rankers, name),
        "with maps": native(rankers, name, attention=seen),
        "tei": tei(rankers, name),
        "cohere 1": cohere(rankers, name, 1),
        "cohere 2": cohere(rankers, name, 2),
        "voyage": cohere(rankers, name, 1, truncation=True),
    }
    for route, found in whole.items():
        assert [index for index, _ in found] == order, route
        scores = [score for _, score in found]
        assert scores == sorted(scores, reverse=True), route
    best = {
        "native": native(rankers, name, top_n=3),
        "with maps": native(rankers, name, top_n=3, attention=seen),
        "cohere": cohere(rankers, name, 2, top_n=3),
        "voyage": cohere(rankers, name, 1, top_k=3),
    }
    for route, found in best.items():
        assert [index for index, _ in found] == order[:3], route


def test_labels_are_ordered_by_their_logits(rankers: Service) -> None:
    """Although all their scores are 1."""
    answer = answered(post(rankers, {"inputs": ["hello"], "model": "labels"}, "/predict"))
    found = [(one["label"], one["score"]) for one in answer["data"][0]["labels"]]
    assert found == [(f"LABEL_{i}", 1.0) for i in reversed(range(6))]
