"""The field `interventions`: each route returns what `transformers` computes with hooks."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.references.comparing import distance
from tests.references.cross_encoder import CrossEncoder
from tests.references.families import Written
from tests.references.interventions import run_changed
from tests.support.serving import NDJSON, Json, Service, answered, assert_problem, batches, post

TEXTS = ["the man beats the boy", "hello", "a world: the man"]
LAYERS, HEADS, WIDTH = 3, 3, 48
VECTOR = np.linspace(-1, 1, WIDTH, dtype=np.float32)
CHANGES: dict[str, Json] = {
    "ablated": {"kind": "heads", "layer": 1, "heads": [0, 2]},
    "scaled": {"kind": "heads", "layer": -3, "heads": [-1], "scale": -1.5},
    "averaged": {"kind": "heads", "layer": 0, "heads": "all", "mean": True},
    "blocked": {"kind": "edges", "layers": [0, -1], "heads": "all", "queries": "all", "keys": [-2]},
    "cut off": {"kind": "edges", "layers": "all", "heads": [1], "queries": [1], "keys": "all"},
    "replaced": {"kind": "states", "layer": 0, "tokens": [1, -1], "vector": VECTOR.tolist()},
    "moved": {
        "kind": "states",
        "layer": 2,
        "tokens": "all",
        "vector": base64.b64encode(VECTOR.tobytes()).decode(),
        "add": True,
    },
}


def resolved(change: Json, length: int) -> Json:
    """A change as the reference takes it: no negative index, no "all"."""
    counts = {"layers": LAYERS, "heads": HEADS, "queries": length, "keys": length, "tokens": length}
    found = dict(change)
    for name, count in counts.items():
        if name in change:
            chosen = range(count) if change[name] == "all" else change[name]
            found[name] = [index % count for index in chosen]
    if "layer" in change:
        found["layer"] = change["layer"] % (LAYERS + (change["kind"] == "states"))
    if "vector" in change:
        found["vector"] = VECTOR
    return found


def changed(written: Written, item: Json, changes: Sequence[Json]) -> tuple[Any, Any]:
    ids, segments = item["token_ids"], item["segment_ids"]
    return run_changed(written, ids, segments, [resolved(change, len(ids)) for change in changes])


COMBINED: list[list[Json]] = [[change] for change in CHANGES.values()]
COMBINED += [[*CHANGES.values()], [CHANGES["averaged"], CHANGES["ablated"], CHANGES["moved"]]]
NAMES = [*CHANGES, "all", "some"]


@pytest.mark.parametrize("changes", COMBINED, ids=NAMES)
def test_vectors_and_states(small_models: Service, small_encoder: Written, changes: list[Json]) -> None:
    """Sentence vectors and every hidden state, of several texts at once."""
    layers = list(range(LAYERS + 1))
    answer = small_models.encode(TEXTS, outputs=["sentence", "tokens"], layers=layers, interventions=changes)
    for item in answer["data"]:
        states, _ = changed(small_encoder, item, changes)
        assert distance(item["token_embeddings"], states) <= 1e-5 * max(1, np.abs(states).max())
        assert distance(item["embedding"], states[-1].mean(0)) <= 1e-5 * max(1, np.abs(states).max())


@pytest.mark.parametrize("changes", COMBINED, ids=NAMES)
def test_maps_and_statistics(small_models: Service, small_encoder: Written, changes: list[Json]) -> None:
    """The maps are those of the run with them; rows sum to 1, or to 0 where no key is left."""
    answer = small_models.attention(TEXTS, interventions=changes, decimals=9, summary=True)
    for item in answer["data"]:
        _, weights = changed(small_encoder, item, changes)
        assert distance(item["attention"], weights) <= 1e-5
        assert distance(item["summary"]["confidence"], weights.max(-1).mean(-1)) <= 1e-5


def test_a_request_without_interventions_is_as_before(small_models: Service) -> None:
    """Beside others that have some, in the same service."""
    plain = small_models.encode(TEXTS)
    other = small_models.encode(TEXTS, interventions=[CHANGES["ablated"]])
    assert plain == small_models.encode(TEXTS)
    assert distance(plain["data"][0]["embedding"], other["data"][0]["embedding"]) > 1e-3


@pytest.mark.parametrize("changes", COMBINED, ids=NAMES)
def test_similarities(small_models: Service, small_encoder: Written, changes: list[Json]) -> None:
    """The positions are those of each text."""
    body = {"texts": TEXTS, "interventions": changes}
    found = answered(post(small_models, body, "/similarity"))["similarities"]
    items = small_models.encode(TEXTS)["data"]
    vectors = np.array([changed(small_encoder, item, changes)[0][-1].mean(0) for item in items])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert distance(found, vectors @ vectors.T) <= 1e-5
    ranked = answered(
        post(small_models, {"query": TEXTS[0], "texts": TEXTS[1:], "interventions": changes}, "/rerank")
    )
    scores = {one["index"]: one["score"] for one in ranked["data"]}
    assert distance([scores[0], scores[1]], (vectors @ vectors.T)[0, 1:]) <= 1e-5


@pytest.mark.parametrize("changes", COMBINED, ids=NAMES)
def test_scores_of_pairs(small_models: Service, small_ranker: CrossEncoder, changes: list[Json]) -> None:
    """Of a cross-encoder at /rerank and /predict, with the attention of the same run."""
    query, *texts = TEXTS
    body = {"query": query, "texts": texts, "raw_scores": True, "model": "ranker", "interventions": changes}
    ranked = answered(post(small_models, {**body, "attention": {"decimals": 9}}, "/rerank"))["data"]
    plain = answered(post(small_models, body, "/rerank"))["data"]
    inputs = [[query, text] for text in texts]
    labels = {"inputs": inputs, "model": "ranker", "raw_scores": True, "interventions": changes}
    predicted = answered(post(small_models, labels, "/predict"))["data"]
    model = small_ranker.model
    body_of = Written(small_ranker.folder, model.bert, small_ranker.takes_segments)
    for item, other in zip(ranked, plain, strict=True):
        states, weights = changed(body_of, item, changes)
        with torch.inference_mode():
            last = torch.tensor(states[-1:], dtype=torch.float32)
            logit = float(model.classifier(model.bert.pooler(last))[0, 0])
        assert abs(item["score"] - logit) <= 2e-5
        assert (other["index"], other["score"]) == (item["index"], pytest.approx(item["score"], abs=2e-6))
        assert distance(item["attention"], weights) <= 1e-5
        assert abs(predicted[item["index"]]["labels"][0]["score"] - logit) <= 2e-5


ONE = {"kind": "heads", "layer": 0, "heads": [0]}
STATE: Json = {"kind": "states", "layer": 0, "tokens": [0], "vector": [0.5] * WIDTH}
REFUSED: list[tuple[object, str, str]] = [
    ([], "interventions", "a list of at least one object"),
    (ONE, "interventions", "a list of at least one object"),
    ([ONE] * 65, "interventions", "has 65 items and the limit is 64"),
    ([3], "interventions.0", "must be an object"),
    ([ONE, {"kind": "layers"}], "interventions.1.kind", '"heads", "edges" or "states"'),
    ([{**ONE, "keys": [0]}], "interventions.0.keys", "choose from layer, heads, scale, mean"),
    ([{"kind": "heads", "heads": [0]}], "interventions.0.layer", "is required"),
    ([{"kind": "heads", "layer": 0}], "interventions.0.heads", 'is required: "all", or a list'),
    ([{**ONE, "layer": 3}], "interventions.0.layer", "is 3 and there are 3 layers: choose from -3 to 2"),
    ([{**ONE, "layer": True}], "interventions.0.layer", "must be an integer"),
    ([{**ONE, "heads": [0, -4]}], "interventions.0.heads.1", "is -4 and there are 3 heads: choose from -3"),
    ([{**ONE, "heads": []}], "interventions.0.heads", 'must be "all" or a list'),
    ([{**ONE, "heads": [0.5]}], "interventions.0.heads.0", "must be an integer"),
    ([{**ONE, "scale": 1}], "interventions.0.scale", "is 1, which has no effect"),
    ([{**ONE, "scale": "2"}], "interventions.0.scale", "must be a number"),
    ([{**ONE, "scale": 1e39}], "interventions.0.scale", "that float32 can hold"),
    ([{**ONE, "scale": 0, "mean": True}], "interventions.0.scale", 'no effect with "mean": true'),
    ([{**ONE, "mean": 1}], "interventions.0.mean", "must be true or false"),
    ([{**CHANGES["blocked"], "keys": [7]}], "inputs.0", "keys.0 is 7 and inputs.0 has 7 tokens"),
    ([{**CHANGES["blocked"], "queries": [4]}], "inputs.1", "queries.0 is 4 and inputs.1 has 3 tokens"),
    ([{**STATE, "layer": 4}], "interventions.0.layer", "is 4 and there are 4 hidden states"),
    ([{**STATE, "tokens": [-8]}], "inputs.0", "choose from -7 to 6"),
    ([{**STATE, "vector": [1.0] * 3}], "interventions.0.vector", "has 3 components, but the hidden states"),
    ([{**STATE, "vector": [1e39] * WIDTH}], "interventions.0.vector", "is not a finite float32 number"),
    ([{**STATE, "vector": [-2e12] * WIDTH}], "interventions.0.vector", "has a component beyond 1e12"),
    ([{**STATE, "vector": ["1"] * WIDTH}], "interventions.0.vector", "must be a list of numbers"),
    ([{**STATE, "vector": [True] * WIDTH}], "interventions.0.vector", "must be a list of numbers"),
    ([{**STATE, "vector": "AAA"}], "interventions.0.vector", "float32 numbers in base64"),
    ([{**STATE, "vector": "AAAA"}], "interventions.0.vector", "float32 numbers in base64"),
    ([{**STATE, "vector": base64.b64encode(np.full(WIDTH, np.nan, np.float32).tobytes()).decode()}],
     "interventions.0.vector", "is not a finite float32 number"),
    ([{**STATE, "vector": [0] * WIDTH, "add": True}], "interventions.0.vector", "is zero, which has no"),
    ([{"kind": "states", "layer": 0, "tokens": [0]}], "interventions.0.vector", "is required"),
]  # fmt: skip


@pytest.mark.parametrize(("interventions", "field", "detail"), REFUSED)
def test_a_refusal_says_what_to_change(
    small_models: Service, interventions: object, field: str, detail: str
) -> None:
    """Before anything runs; a position that one of the texts does not have names the text."""
    before = batches(small_models, "encoder")
    body = {"inputs": TEXTS[:2], "interventions": interventions}
    document = assert_problem(post(small_models, body), 422, "invalid-request", field=field)
    assert detail in document["detail"]
    assert batches(small_models, "encoder") == before


TOO_LARGE = [{**ONE, "heads": "all", "scale": 1e30}] * 2


@pytest.mark.parametrize("accept", ["application/json", NDJSON])
def test_a_run_that_overflows_is_the_fault_of_its_interventions(small_models: Service, accept: str) -> None:
    """Of the request, whose field is named, and not of the service: no failure of the model is counted."""
    response = post(small_models, {"inputs": TEXTS, "interventions": TOO_LARGE}, accept=accept)
    document = assert_problem(response, 422, "invalid-request", field="interventions")
    assert "produced NaN or infinity: choose a smaller scale" in document["detail"]
    name = 'headlight_inference_failures_total{model="encoder",reason="not-finite"}'
    assert small_models.metrics()[name] == 0


def test_large_vectors_still_have_similarities(small_models: Service) -> None:
    """The largest that are allowed, one after the other, at the last state: no product overflows."""
    largest = {**STATE, "layer": -1, "tokens": "all", "vector": [1e12] * WIDTH, "add": True}
    body = {"texts": TEXTS, "interventions": [largest] * 64}
    for function, expected in (("cosine", 1.0), ("dot", WIDTH * 64e12**2), ("euclidean", 0.0)):
        found = answered(post(small_models, {**body, "function": function}, "/similarity"))["similarities"]
        assert np.allclose(np.array(found, float), expected, rtol=1e-5, atol=1e9 * (function == "euclidean"))


@pytest.mark.parametrize(
    ("path", "body", "has_effect"),
    [
        ("/encode", {"pooling_layers": [1], "interventions": [ONE]}, True),
        ("/encode", {"pooling_layers": [1], "interventions": [{**ONE, "layer": 1}]}, False),
        ("/encode", {"pooling_layers": [1], "interventions": [{**STATE, "layer": 1}]}, True),
        ("/encode", {"pooling_layers": [1], "interventions": [{**STATE, "layer": 2}]}, False),
        ("/attention", {"layers": [1], "interventions": [{**ONE, "layer": 0}]}, True),
        ("/attention", {"layers": [1], "interventions": [{**ONE, "layer": 1}]}, False),
        ("/attention", {"layers": [1], "interventions": [CHANGES["blocked"]]}, False),
        ("/attention", {"layers": [1], "interventions": [{**CHANGES["blocked"], "layers": [1]}]}, True),
        ("/attention", {"layers": [1], "interventions": [{**STATE, "layer": 1}]}, True),
        ("/attention", {"layers": [1], "interventions": [{**STATE, "layer": 2}]}, False),
    ],
)
def test_nothing_is_allowed_that_has_no_effect(
    small_models: Service, path: str, body: Json, has_effect: bool
) -> None:  # fmt: skip
    """A change after all that is returned; those that count do change the answer."""
    response = post(small_models, {"inputs": TEXTS, **body}, path)
    if has_effect:
        plain = {name: value for name, value in body.items() if name != "interventions"}
        assert (
            answered(response)["data"]
            != answered(post(small_models, {"inputs": TEXTS, **plain}, path))["data"]
        )
    else:
        document = assert_problem(response, 422, "invalid-request")
        assert document["field"].startswith("interventions.0.layer")
        what = "hidden state" if body["interventions"][0]["kind"] == "states" else "layer"
        assert document["detail"].startswith(f"Nothing that this request returns depends on {what} ")


def test_the_text_that_lacks_a_position_has_its_own_name(small_models: Service) -> None:
    """On each route."""
    far = [{"kind": "states", "layer": 0, "tokens": [4], "vector": VECTOR.tolist()}]
    for path, body, field in (
        ("/similarity", {"texts": TEXTS}, "texts.1"),
        ("/similarity", {"source": "hello", "texts": TEXTS}, "source"),
        ("/rerank", {"query": TEXTS[0], "texts": TEXTS[1:]}, "texts.0"),
        ("/rerank", {"query": "hello", "texts": TEXTS[1:]}, "query"),
        ("/predict", {"inputs": TEXTS, "model": "ranker"}, "inputs.1"),
    ):
        document = assert_problem(
            post(small_models, {**body, "interventions": far}, path), 422, "invalid-request"
        )
        assert document["field"] == field
        assert f"{field} has 3 tokens" in document["detail"]


def test_a_text_that_is_read_in_windows_has_none(small_models: Service) -> None:
    """A position would be another one in each window; shorter texts beside it are not meant."""
    body = {"inputs": ["hello", "man " * 200], "chunks": "sentences", "interventions": [ONE]}
    document = assert_problem(post(small_models, body), 422, "invalid-request", field="interventions")
    assert document["detail"].startswith("inputs.1 is longer than the model's limit and is read in windows")
    assert answered(post(small_models, {**body, "inputs": ["hello", "man"]}))["data"]
