"""`POST /explain` with `occlusion`: each effect is that of one run of `transformers` without the unit."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.references.checkpoints import SUITED, Reference
from tests.references.classifiers import write_classifier
from tests.references.comparing import distance
from tests.references.cross_encoder import write_cross_encoder
from tests.references.labelled_tokens import LABELS, write_tagger
from tests.references.late_interaction import LateInteraction, write_pylate
from tests.support.backends import Kept, both_backends, native
from tests.support.families import SIZES
from tests.support.serving import (
    NDJSON,
    NPZ,
    Json,
    Service,
    answered,
    assert_problem,
    batches,
    post,
    read_npz,
    serve,
)

pytestmark = both_backends

PAIRS = [["the man beats the boy. Hello", "hello world"], ["a", "the boy: [the man]"], ["", "world"]]
TEXTS = ["the man beats the boy. Hello world", "beating", ""]
MASK = 4
PROMPT = "the man: "
MOODS = ("sad", "glad", "none")


@dataclass(frozen=True)
class Models:
    """The folders that are served, and what `transformers` makes of them."""

    folders: dict[str, Path]
    prompted: Reference
    colbert: LateInteraction
    logits: dict[str, Callable[[list[int], list[int]], Any]]


def runs(model: Any) -> Callable[[list[int], list[int]], Any]:
    """The logits of a model for tokens and their types, alone."""

    def run(ids: list[int], types: list[int]) -> Any:
        with torch.inference_mode():
            given = {"input_ids": torch.tensor([ids]), "token_type_ids": torch.tensor([types])}
            return model(**given).logits[0].double().numpy()

    return run


@pytest.fixture(scope="session")
def models(
    tmp_path_factory: pytest.TempPathFactory, prompted_folder: Path, prompted_reference: Reference
) -> Models:
    place = tmp_path_factory.mktemp("occluded")
    ranker = write_cross_encoder(place / "ranker", "Bert", "with modules", prompt=PROMPT, **SIZES)
    moods = write_classifier(place / "moods", MOODS, **SUITED)
    names = write_tagger(place / "names", **SUITED)
    colbert = write_pylate(place / "colbert", **SUITED)
    folders = {name: place / name for name in ("ranker", "moods", "names", "colbert")}
    found = {"ranker": ranker.model, "moods": moods.pipeline.model, "names": names.pipeline.model}
    logits = {name: runs(model.eval()) for name, model in found.items()}
    return Models({**folders, "prompted": prompted_folder}, prompted_reference, colbert, logits)


@pytest.fixture(scope="session")
def served(kept: Kept, backend: str, models: Models) -> Service:
    def start() -> AbstractContextManager[Service]:
        sources = [f"{name}={kept.folder(folder, backend)}" for name, folder in models.folders.items()]
        return serve(model=",".join(sources), threads=1, **native(backend))

    return kept.service(("occluded", backend), start)


def explain(service: Service, model: str, inputs: object, **body: object) -> list[Json]:
    answer = answered(post(service, {"inputs": inputs, "model": model, **body}, "/explain"))
    assert answer["method"] == "occlusion"
    data: list[Json] = answer["data"]
    return data


def without(item: Json, unit: int, *, remove: bool) -> tuple[list[int], list[int]]:
    """The tokens of an item, and their segments, without one of its units."""
    first, after = item["units"]["token_spans"][unit]
    ids, segments = item["token_ids"], item["segment_ids"]
    if remove:
        return ids[:first] + ids[after:], segments[:first] + segments[after:]
    return ids[:first] + [MASK] * (after - first) + ids[after:], segments


def assert_effects(
    item: Json, measure: Callable[[list[int], list[int]], float], *, remove: bool = False
) -> None:
    """One run for each unit, by hand."""
    whole = measure(item["token_ids"], item["segment_ids"])
    units = range(len(item["units"]["text"]))
    effects = [whole - measure(*without(item, unit, remove=remove)) for unit in units]
    assert abs(item["score"] - whole) <= 1e-5 * max(1, abs(whole))
    assert len(item["attributions"]) == len(effects)
    if effects:
        assert distance(item["attributions"], effects) <= 2e-5 * max(1, np.abs(effects).max())
    assert item["replacement"] == ("remove" if remove else "mask")


@pytest.mark.parametrize("remove", [False, True])
@pytest.mark.parametrize("unit", ["token", "word", "sentence"])
def test_the_logit_of_a_pair(served: Service, models: Models, unit: str, remove: bool) -> None:
    """A cross-encoder's own target is its score, the logit of /rerank, after the default prompt."""
    pairs = [pair for pair in PAIRS if pair[0]]
    more = {"replacement": "remove"} if remove else {}
    for (query, text), item in zip(pairs, explain(served, "ranker", pairs, unit=unit, **more), strict=True):
        assert_effects(item, lambda *given: float(models.logits["ranker"](*given)[0]), remove=remove)
        body = {"query": query, "texts": [text], "raw_scores": True, "model": "ranker"}
        ranked = answered(post(served, body, "/rerank"))["data"][0]
        assert abs(ranked["score"] - item["score"]) <= 2e-6
        assert abs(1 / (1 + np.exp(-item["score"])) - item["sigmoid"]) <= 1e-6


@pytest.mark.parametrize("label", [None, *MOODS])
def test_the_logit_of_a_label(served: Service, models: Models, label: str | None) -> None:
    """The one that is named, or the one that /predict finds; of texts and of pairs."""
    target = {} if label is None else {"target": {"label": label}}
    for inputs in (TEXTS, PAIRS):
        predicted = answered(post(served, {"inputs": inputs, "model": "moods"}, "/predict"))["data"]
        for item, labels in zip(explain(served, "moods", inputs, **target), predicted, strict=True):
            assert item["label"] == (label or labels["labels"][0]["label"])
            chance = next(one["score"] for one in labels["labels"] if one["label"] == item["label"])
            assert abs(item["probability"] - chance) <= 1e-6
            number = MOODS.index(item["label"])
            assert_effects(item, lambda *given, n=number: float(models.logits["moods"](*given)[n]))


@pytest.mark.parametrize("token", [1, -2])
@pytest.mark.parametrize("label", [None, "B-LOC"])
def test_the_logit_of_a_token(served: Service, models: Models, token: int, label: str | None) -> None:
    """Its position stays, whatever is masked before it."""
    target = {"token": token} if label is None else {"token": token, "label": label}
    for item in explain(served, "names", TEXTS[:2], target=target):
        where = token % len(item["tokens"])
        assert item["token"] == where
        own = models.logits["names"](item["token_ids"], item["segment_ids"])[where]
        number = int(own.argmax()) if label is None else LABELS.index(label)
        assert item["label"] == LABELS[number]
        assert_effects(item, lambda *given, n=number, w=where: float(models.logits["names"](*given)[w, n]))


def pooled(reference: Reference, ids: list[int], skip: int, pooling: str) -> Any:
    states, _ = reference.run(ids, [0] * len(ids))
    hidden = states[-1].astype(np.float64)
    return hidden[skip] if pooling == "cls" else hidden[skip:].mean(0)


@pytest.mark.parametrize("remove", [False, True])
@pytest.mark.parametrize(
    ("pooling", "function", "prompt"),
    [("mean", "cosine", "a man "), ("mean", "euclidean", ""), ("cls", "dot", "")],
)
def test_the_similarity_of_two_vectors(
    served: Service, models: Models, pooling: str, function: str, prompt: str, remove: bool
) -> None:  # fmt: skip
    """Also where it has no parts: by their first token, or by a distance; a prompt is not left out.

    By default units are removed, since masks in both texts would make vectors alike.
    """
    skip = 3 if prompt else 0
    more = {} if remove else {"replacement": "mask"}

    def measure(ids: list[int], segments: list[int]) -> float:
        sides = [[t for t, s in zip(ids, segments, strict=True) if s == side] for side in (0, 1)]
        u, v = (pooled(models.prompted, side, skip, pooling) for side in sides)
        if function == "euclidean":
            return float(-np.linalg.norm(u - v))
        return float(u @ v if function == "dot" else u @ v / np.linalg.norm(u) / np.linalg.norm(v))

    body = {"pooling": pooling, "function": function, "prompt": prompt, "method": "occlusion", **more}
    for item in explain(served, "prompted", PAIRS[:2], **body):
        assert item["function"] == function
        assert "[CLS]" not in item["units"]["text"]
        assert_effects(item, measure, remove=remove)


@pytest.mark.parametrize("remove", [False, True])
def test_max_sim(served: Service, models: Models, remove: bool) -> None:
    """Each side has its markers and its length, which stay; removed tokens have no vector."""
    colbert = models.colbert
    more = {"replacement": "remove"} if remove else {}
    (item,) = explain(served, "colbert", [PAIRS[0]], method="occlusion", **more)
    sides = [
        colbert.vectors(text, is_query=first) for first, text in zip((True, False), PAIRS[0], strict=True)
    ]
    starts = [0, len(sides[0][0])]

    attended = len([token for token in sides[0][0] if token != MASK])  # the rest of a query is not

    def score(ids: list[list[int]], kept: list[list[int]]) -> float:
        vectors = []
        for (whole, rows, _), tokens, places in zip(sides, ids, kept, strict=True):
            expanded = whole is sides[0][0]
            real = [not (expanded and place >= attended) for place in places]
            hidden = colbert.hidden(tokens, [int(one) for one in real])
            found = hidden[[places.index(row) for row in rows if row in places]]
            found = found @ colbert.matrix.double().numpy().T
            vectors.append(found / np.linalg.norm(found, axis=1, keepdims=True))
        return float((vectors[0] @ vectors[1].T).max(1).sum())

    whole = [list(side[0]) for side in sides]
    every = [list(range(len(tokens))) for tokens in whole]
    complete = score(whole, every)
    assert abs(item["score"] - complete) <= 1e-5
    for unit, (first, after) in enumerate(item["units"]["token_spans"]):
        side = item["units"]["segment"][unit]
        span = range(first - starts[side], after - starts[side])
        ids, kept = [list(t) for t in whole], [list(k) for k in every]
        if remove:
            kept[side] = [k for k in kept[side] if k not in span]
            ids[side] = [whole[side][k] for k in kept[side]]
        else:
            ids[side] = [MASK if k in span else t for k, t in enumerate(whole[side])]
        assert abs(item["attributions"][unit] - (complete - score(ids, kept))) <= 2e-5


def test_every_format_has_the_same_effects(served: Service) -> None:
    """And the tokens that were run count: those of the input once more for each unit."""
    body = {"inputs": TEXTS, "model": "moods"}
    plain = answered(post(served, body, "/explain"))
    runs_of = [len(item["tokens"]) * (1 + len(item["attributions"])) for item in plain["data"]]
    assert plain["usage"]["input_tokens"] == sum(runs_of)
    arrays, rest = read_npz(post(served, body, "/explain", accept=NPZ).content)
    for i, item in enumerate(plain["data"]):
        assert np.array_equal(arrays[f"{i}.attributions"], np.array(item["attributions"], np.float32))
        assert rest["data"][i] == {name: value for name, value in item.items() if name != "attributions"}
    *lines, last = map(json.loads, post(served, body, "/explain", accept=NDJSON).text.splitlines())
    assert sorted(lines, key=lambda line: int(line["index"])) == plain["data"]
    assert last == {name: plain[name] for name in ("model", "method", "usage")}


REFUSED: list[tuple[str, Json, str, str, str]] = [
    ("moods", {"target": "score"}, "unsupported", "target", "choose from ranker."),
    ("moods", {"target": "similarity"}, "invalid-request", "inputs", "must be pairs"),
    ("prompted", {"target": "label", "inputs": ["a"]}, "unsupported", "model", "has no class"),
    ("moods", {"target": {"label": "angry"}}, "invalid-request", "target.label", "choose from sad, glad"),
    ("moods", {"target": {"label": 3}}, "invalid-request", "target.label", "must be a string"),
    ("moods", {"target": {"token": True}}, "invalid-request", "target.token", "must be an integer"),
    ("moods", {"target": {"token": 1}}, "invalid-request", "target.token", "labels whole texts"),
    ("moods", {"target": {"tokens": 1}}, "invalid-request", "target", 'the unknown field "tokens"'),
    ("moods", {"target": {}}, "invalid-request", "target", "or an object such as"),
    ("names", {}, "invalid-request", "target", 'set target to {"token": i}'),
    ("names", {"target": {"token": 3}}, "invalid-request", "target.token", "has 3 tokens: choose from -3"),
    ("names", {"target": {"token": 1}, "replacement": "remove"}, "unsupported", "replacement", "set"),
    ("moods", {"method": "parts"}, "unsupported", "method", 'set it to "occlusion"'),
    ("moods", {"pooling": "mean"}, "invalid-request", "pooling", "has no effect on the target"),
    ("moods", {"prompt": "a"}, "invalid-request", "prompt", "has no effect on the target"),
    ("ranker", {"inputs": ["a"]}, "invalid-request", "inputs", "must be pairs to explain their score"),
    ("prompted", {"inputs": [["a", "b"]], "replacement": "mask"}, "invalid-request", "replacement", "parts"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "body", "kind", "field", "detail"), REFUSED)
def test_a_refusal_says_what_to_change(
    served: Service, model: str, body: Json, kind: str, field: str, detail: str
) -> None:
    """Before anything runs."""
    body = {"inputs": ["a", "b"], "model": model, **body}
    before = batches(served, model)
    document = assert_problem(post(served, body, "/explain"), 422, kind, field=field)
    assert detail in document["detail"]
    assert batches(served, model) == before


def test_too_many_tokens_are_refused_before_any_work(several: Service) -> None:
    """More than one client may have in the queue: the 413 names the units, the tokens and the limit."""
    before = batches(several, "mini")
    inputs = [["the man beats the boy " * 4, "hello"]]
    body = {"inputs": inputs, "method": "occlusion", "model": "mini"}
    document = assert_problem(
        post(several, body, "/explain"), 413, "explanation-too-large", limit=256, actual=22 + 3 + 20 * 21 + 2
    )
    assert "run 21 more times, each time without some units, with 447 tokens in all" in document["detail"]
    advice = 'and the limit is 256: send fewer or shorter inputs, or choose a larger `unit`: "sentence".'
    assert advice in document["detail"]
    assert batches(several, "mini") == before


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        ({"unit": "token"}, 'shorter inputs, or choose a larger `unit`: "word" or "sentence".'),
        ({"unit": "sentence"}, "send fewer or shorter inputs."),
        ({"unit": "sentence", "faithfulness": True}, "shorter inputs, or leave out `faithfulness`."),
        ({"method": "parts", "faithfulness": True}, "shorter inputs, or leave out `faithfulness`."),
    ],
)
def test_what_is_advised_against_too_many_tokens_makes_them_fewer(
    several: Service, body: Json, advice: str
) -> None:
    """No unit is larger than a sentence, and faithfulness runs as often for any unit."""
    body = {"inputs": [["Hello. " * 16, "hello"]] * 2, "method": "occlusion", "model": "mini", **body}
    document = assert_problem(post(several, body, "/explain"), 413, "explanation-too-large")
    assert document["detail"].endswith(advice)
