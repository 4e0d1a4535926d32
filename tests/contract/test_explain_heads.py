"""`POST /explain` with `heads`: each effect is that of one run of `transformers` with a hook on the head."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.references.comparing import distance
from tests.references.cross_encoder import CrossEncoder
from tests.references.families import Written
from tests.references.interventions import run_changed
from tests.support.serving import (
    JSON,
    NDJSON,
    NPZ,
    Json,
    Service,
    answered,
    assert_problem,
    batches,
    post,
    read_npz,
)

PAIRS = [["the man beats the boy", "hello"], ["a world", "the man"]]
LAYERS, HEADS = 3, 3
MASK = 4


def sweep(measure: Callable[[Sequence[Json]], float]) -> tuple[float, Any]:
    """The score, and what it loses without each head, by hand."""
    whole = measure([])
    effects = [
        [whole - measure([{"kind": "heads", "layer": layer, "heads": [head]}]) for head in range(HEADS)]
        for layer in range(LAYERS)
    ]
    return whole, np.array(effects)


def assert_sweep(item: Json, measure: Callable[[Sequence[Json]], float]) -> None:
    whole, effects = sweep(measure)
    assert abs(item["score"] - whole) <= 1e-5
    assert np.shape(item["heads"]) == (LAYERS, HEADS)
    assert distance(item["heads"], effects) <= 2e-5
    assert np.abs(effects).min() > 1e-5, "each head counts, so that none can stand for another"


def similarity_of(
    item: Json, encoder: Written, given: Sequence[Json] = ()
) -> Callable[[Sequence[Json]], float]:
    """The cosine of the texts of an item, run with what is given and further changes."""
    columns = list(zip(item["token_ids"], item["segment_ids"], strict=True))
    sides = [[token for token, segment in columns if segment == side] for side in (0, 1)]

    def cosine(changes: Sequence[Json]) -> float:
        vectors = [
            run_changed(encoder, ids, [0] * len(ids), [*given, *changes])[0][-1].astype(np.float64).mean(0)
            for ids in sides
        ]
        return float(vectors[0] @ vectors[1] / np.prod([np.linalg.norm(v) for v in vectors]))

    return cosine


def test_the_similarity_of_two_texts(small_models: Service, small_encoder: Written) -> None:
    """The head is left out of both."""
    answer = answered(post(small_models, {"inputs": PAIRS, "method": "heads"}, "/explain"))
    assert answer["method"] == "heads"
    tokens = sum(len(item["tokens"]) for item in answer["data"])
    assert answer["usage"]["input_tokens"] == tokens * (1 + LAYERS * HEADS)
    for item in answer["data"]:
        assert_sweep(item, similarity_of(item, small_encoder))
        assert "units" not in item


ABLATED: Json = {"kind": "heads", "layer": 1, "heads": [0]}
SCALED: Json = {"kind": "heads", "layer": 0, "heads": [1], "scale": 0.5}


def test_heads_are_left_out_besides_those_of_interventions(
    small_models: Service, small_encoder: Written
) -> None:
    """Every run is changed, and a scaled head is left out whole."""
    body = {"inputs": PAIRS, "method": "heads", "interventions": [SCALED]}
    for item in answered(post(small_models, body, "/explain"))["data"]:
        assert_sweep(item, similarity_of(item, small_encoder, [SCALED]))


@pytest.mark.parametrize("method", ["parts", "occlusion"])
@pytest.mark.parametrize("accept", [JSON, NDJSON])
@pytest.mark.parametrize("faithfulness", [False, True])
def test_units_are_those_of_the_changed_run(
    small_models: Service, small_encoder: Written, method: str, accept: str, faithfulness: bool
) -> None:
    """The text without a unit runs with the interventions, as the whole text does."""
    given = [ABLATED, SCALED]
    body = {"inputs": PAIRS, "method": method, "interventions": given, "faithfulness": faithfulness}
    if method == "occlusion":
        body["replacement"] = "mask"
    response = post(small_models, body, "/explain", accept=accept)
    items = (
        answered(response)["data"] if accept == JSON else [*map(json.loads, response.text.splitlines())][:-1]
    )
    assert len(items) == len(PAIRS)
    for item in items:
        cosine = similarity_of(item, small_encoder, given)
        assert abs(item["score"] - cosine([])) <= 1e-5
        assert abs(item["score"] - similarity_of(item, small_encoder)([])) > 1e-4
        if method == "parts":
            assert abs(np.sum(item["parts"]) - item["score"]) <= 1e-6
            continue
        for (first, last), effect in zip(item["units"]["token_spans"], item["attributions"], strict=True):
            masked = {**item, "token_ids": [*item["token_ids"]]}
            masked["token_ids"][first:last] = [MASK] * (last - first)
            assert abs(item["score"] - effect - similarity_of(masked, small_encoder, given)([])) <= 2e-5


@pytest.mark.parametrize(
    ("more", "field"),
    [
        (
            {
                "interventions": [
                    ABLATED,
                    {"kind": "edges", "layers": [0], "heads": [0], "queries": [0], "keys": [1]},
                ]
            },
            "interventions.1",
        ),
        ({"method": "gradient", "interventions": [ABLATED]}, "interventions"),
        ({"interventions": [{**ABLATED, "heads": [HEADS]}]}, "interventions.0.heads.0"),
    ],
)
def test_interventions_that_mean_nothing_there_are_refused(
    small_models: Service, more: Json, field: str
) -> None:
    """Positions, of texts without some units; and a gradient goes back through the model as it is."""
    before = batches(small_models, "encoder")
    assert_problem(
        post(small_models, {"inputs": PAIRS, **more}, "/explain"), 422, "invalid-request", field=field
    )
    assert batches(small_models, "encoder") == before


@pytest.mark.parametrize("label", [None, 0, 2])
def test_logits(
    small_models: Service, small_ranker: CrossEncoder, small_classifier: CrossEncoder, label: int | None
) -> None:
    """Of a cross-encoder, and of a label by its name."""
    model = small_ranker if label is None else small_classifier
    target = {} if label is None else {"target": {"label": f"LABEL_{label}"}}
    name = "ranker" if label is None else "moods"
    answer = answered(
        post(small_models, {"inputs": PAIRS, "model": name, "method": "heads", **target}, "/explain")
    )
    for item in answer["data"]:
        body = Written(model.folder, model.model.bert, model.takes_segments)

        def logit(changes: Sequence[Json], item: Json = item, body: Written = body) -> float:
            states, _ = run_changed(body, item["token_ids"], item["segment_ids"], changes)
            with torch.inference_mode():
                last = torch.tensor(states[-1:], dtype=torch.float32)
                return float(model.model.classifier(model.model.bert.pooler(last))[0, label or 0])

        assert_sweep(item, logit)


def test_a_file_has_them_as_an_array(small_models: Service) -> None:
    body = {"inputs": PAIRS, "method": "heads"}
    plain = answered(post(small_models, body, "/explain"))["data"]
    arrays, rest = read_npz(post(small_models, body, "/explain", accept=NPZ).content)
    for i, item in enumerate(plain):
        assert np.array_equal(arrays[f"{i}.heads"], np.array(item.pop("heads"), np.float32))
        assert rest["data"][i] == item


@pytest.mark.parametrize("more", [{"unit": "token"}, {"replacement": "mask"}])
def test_what_has_no_effect_is_refused(small_models: Service, more: Json) -> None:
    """No unit is left out."""
    before = batches(small_models, "encoder")
    (field,) = more
    response = post(small_models, {"inputs": PAIRS, "method": "heads", **more}, "/explain")
    document = assert_problem(response, 422, "invalid-request", field=field)
    assert 'has no effect on the method "heads"' in document["detail"]
    assert batches(small_models, "encoder") == before


def test_too_large_a_sweep_is_refused_before_any_work(several: Service) -> None:
    """The 413 names the heads, the tokens and the limit."""
    before = batches(several, "mini")
    body = {"inputs": [["hello", "world"]], "method": "heads", "model": "mini"}
    document = assert_problem(
        post(several, body, "/explain"), 413, "explanation-too-large", limit=256, actual=6 * 73
    )
    assert "run 144 more times, each time without one head, with 438 tokens in all" in document["detail"]
    assert batches(several, "mini") == before


def test_of_too_many_heads_no_unit_is_advised(several: Service) -> None:
    """A larger unit makes no fewer of them."""
    body = {"inputs": [["Hello. " * 16, "hello"]] * 2, "method": "heads", "model": "mini"}
    document = assert_problem(post(several, body, "/explain"), 413, "explanation-too-large")
    assert document["detail"].endswith("send fewer or shorter inputs.")
