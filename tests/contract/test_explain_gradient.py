"""`POST /explain` with `gradient`: integrated gradients of `transformers` in float64."""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.references.checkpoints import SUITED, write_bert
from tests.references.classifiers import write_classifier
from tests.references.comparing import distance
from tests.references.cross_encoder import write_cross_encoder
from tests.references.explained import write_with_layers
from tests.references.gradients import Differentiable, Score, Text, compared, max_sim, pooled
from tests.references.labelled_tokens import LABELS, write_tagger
from tests.references.late_interaction import LateInteraction, write_pylate
from tests.support.backends import export_folder
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

PAIRS = [["the man beats the boy. Hello", "hello world"], ["a", "the boy: [the man]"], ["", "world"]]
TEXTS = ["the man beats the boy. Hello world", "beating", ""]
MASK = 4
STEPS, FEW = 32, 5
"""The default, and what is enough to see that each point counts."""
MOODS = ("sad", "glad", "none")


@dataclass(frozen=True)
class Models:
    """The folders that are served, and what `transformers` makes of them in float64."""

    folders: dict[str, Path]
    references: dict[str, Differentiable]
    colbert: LateInteraction
    layer: Any


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    place = tmp_path_factory.mktemp("differentiated")
    ranker = write_cross_encoder(place / "ranker", "Bert", "with modules", prompt="the man: ", **SIZES)
    moods = write_classifier(place / "moods", MOODS, **SUITED)
    names = write_tagger(place / "names", **SUITED)
    colbert = write_pylate(place / "colbert", **SUITED)
    plain = write_bert(place / "plain", **SUITED)
    layered, (layer,) = write_with_layers(place / "layered", ["torch.nn.modules.activation.Tanh"], **SUITED)
    found = {
        "ranker": ranker.model,
        "moods": moods.pipeline.model,
        "names": names.pipeline.model,
        "colbert": colbert.reference.model,
        "plain": plain,
        "layered": layered,
    }
    references = {name: Differentiable(model, takes_segments=True) for name, model in found.items()}
    return Models({name: place / name for name in found}, references, colbert, layer)


@pytest.fixture(scope="module")
def served(models: Models) -> Iterator[Service]:
    sources = [f"{name}={folder}" for name, folder in models.folders.items()]
    with serve(model=",".join(sources), threads=1) as started:
        yield started


def explain(service: Service, model: str, inputs: object, **body: object) -> list[Json]:
    given = {"inputs": inputs, "model": model, "method": "gradient", **body}
    answer = answered(post(service, given, "/explain"))
    assert answer["method"] == "gradient"
    data: list[Json] = answer["data"]
    return data


def sides_of(item: Json, *, apart: bool) -> list[Text]:
    """The texts that run for an item; `apart` are two of a pair."""
    ids, segments, words = item["token_ids"], item["segment_ids"], item["word_ids"]
    rows = range(len(ids))
    sides = [[i for i in rows if segments[i] == side] for side in (0, 1)] if apart else [list(rows)]
    return [
        Text(
            [ids[i] for i in side],
            [0 if apart else segments[i] for i in side],
            [place for place, i in enumerate(side) if words[i] is not None],
        )
        for side in sides
    ]


def integrated(
    reference: Differentiable, texts: Sequence[Text], baseline: int, steps: int, score: Score
) -> tuple[Any, list[float], float]:
    """What each token adds, the score of each text's baseline, and that of the texts: each moves alone."""
    lines = [
        reference.integrated(
            [one if i == moving else replace(one, moved=[]) for i, one in enumerate(texts)],
            baseline,
            steps,
            score,
        )
        for moving in range(len(texts))
    ]
    added, baselines, (last, *_) = zip(*lines, strict=True)
    return sum(added), [*baselines], last


def assert_integrated(
    item: Json, reference: Differentiable, texts: Sequence[Text], score: Score, steps: int = STEPS
) -> None:
    """What each unit adds is the sum of what its tokens add, and what that misses is said."""
    added, baselines, last = integrated(reference, texts, MASK, steps, score)
    expected = [added[start:stop].sum() for start, stop in item["units"]["token_spans"]]
    scale = max(1.0, np.abs(expected).max(initial=0.0))
    assert len(item["attributions"]) == len(expected)
    assert distance(item["attributions"], expected) <= 5e-5 * scale if expected else True
    assert distance(item["baseline_scores"], baselines) <= 2e-5 * scale
    assert abs(item["score"] - last) <= 2e-5 * scale
    assert item["baseline"] == "mask"
    missed = sum(item["score"] - one for one in item["baseline_scores"]) - sum(item["attributions"])
    assert abs(item["residual"] - missed) <= 2e-6 * scale
    assert abs(item["residual"] - (sum(last - one for one in baselines) - added.sum())) <= 5e-5 * scale


@pytest.mark.parametrize(
    "unit", ["word", *(pytest.param(unit, marks=pytest.mark.thorough) for unit in ("token", "sentence"))]
)
@pytest.mark.parametrize(
    ("pooling", "function"),
    [("mean", "cosine"), ("cls", "dot"), ("mean_max", "euclidean"), ("last", "manhattan")],
)
def test_the_similarity_of_two_vectors(
    served: Service, models: Models, pooling: str, function: str, unit: str
) -> None:
    """Each text moves beside the whole other one; several pairs share the batches."""

    def score(first: Any, second: Any) -> Any:
        return compared(function, pooled(first, pooling), pooled(second, pooling))

    steps = STEPS if pooling == "mean" else FEW
    body = {"pooling": pooling, "function": function, "unit": unit, "steps": steps}
    for item in explain(served, "plain", PAIRS[:2], **body):
        assert item["function"] == function
        assert "[CLS]" not in item["units"]["text"]
        assert_integrated(item, models.references["plain"], sides_of(item, apart=True), score, steps)


@pytest.mark.parametrize("steps", [1, 5])
def test_layers_after_the_pooling(served: Service, models: Models, steps: int) -> None:
    """Also those with an activation, of which a similarity has no parts."""
    import torch

    weight = torch.from_numpy(models.layer)

    def score(first: Any, second: Any) -> Any:
        vectors = [
            torch.tanh(weight[:, :-1] @ pooled(one, "mean") + weight[:, -1]) for one in (first, second)
        ]
        return compared("cosine", *vectors)

    for item in explain(served, "layered", PAIRS[:1], steps=steps):
        texts = sides_of(item, apart=True)
        assert_integrated(item, models.references["layered"], texts, score, steps)


def test_max_sim(served: Service, models: Models) -> None:
    """The tokens that a query is filled up with stay; those without a vector count, too."""
    colbert = models.colbert
    (item,) = explain(served, "colbert", [PAIRS[0]])
    texts = sides_of(item, apart=True)
    rows = [colbert.vectors(text, is_query=not side)[1] for side, text in enumerate(PAIRS[0])]
    texts[0] = Text(texts[0].ids, texts[0].segments, texts[0].moved, texts[0].ids.count(MASK))

    def score(first: Any, second: Any) -> Any:
        return max_sim(first[rows[0]], second[rows[1]], colbert.matrix)

    assert item["function"] == "max_sim"
    assert_integrated(item, models.references["colbert"], texts, score)


def test_the_logit_of_a_pair(served: Service, models: Models) -> None:
    """A cross-encoder's, with its sigmoid; the prompt stays. No pass is spent on which label is meant."""
    for item in explain(served, "ranker", PAIRS[:2]):
        texts = sides_of(item, apart=False)
        assert_integrated(item, models.references["ranker"], texts, lambda logits: logits[0])
        assert abs(1 / (1 + np.exp(-item["score"])) - item["sigmoid"]) <= 1e-6
    body = {"inputs": PAIRS[:1], "model": "ranker", "method": "gradient", "steps": 1}
    answer = answered(post(served, body, "/explain"))
    assert answer["usage"]["input_tokens"] == len(answer["data"][0]["tokens"]) * (1 + 2 + 1)


@pytest.mark.parametrize("label", [None, "sad"])
def test_the_logit_of_a_label(served: Service, models: Models, label: str | None) -> None:
    """The one that is named, or of each input the one that the model predicts."""
    target = {} if label is None else {"target": {"label": label}}
    predicted = answered(post(served, {"inputs": TEXTS, "model": "moods"}, "/predict"))["data"]
    found = explain(served, "moods", TEXTS, **target, steps=FEW)
    for item, labels in zip(found, predicted, strict=True):
        assert item["label"] == (label or labels["labels"][0]["label"])
        number = MOODS.index(item["label"])
        texts = sides_of(item, apart=False)
        assert_integrated(item, models.references["moods"], texts, lambda logits, n=number: logits[n], FEW)


@pytest.mark.parametrize("label", [None, "B-LOC"])
def test_the_logit_of_a_token(served: Service, models: Models, label: str | None) -> None:
    """By the embeddings of all tokens."""
    target: Json = {"token": -2} if label is None else {"token": -2, "label": label}
    for item in explain(served, "names", TEXTS[:2], target=target):
        where, number = item["token"], LABELS.index(item["label"])
        assert where == len(item["tokens"]) - 2
        assert item["label"] == (label or item["label"])
        texts = sides_of(item, apart=False)
        reference = models.references["names"]
        assert_integrated(item, reference, texts, lambda logits, n=number, w=where: logits[w, n])


def test_every_format_has_the_same_attributions(served: Service) -> None:
    """And the tokens that were run count: once for the label, and each input once more than its points."""
    body = {"inputs": TEXTS, "model": "moods", "method": "gradient", "steps": 3}
    plain = answered(post(served, body, "/explain"))
    tokens = sum(len(item["tokens"]) for item in plain["data"])
    assert plain["usage"]["input_tokens"] == tokens * (1 + 1 + 3 + 2)
    arrays, rest = read_npz(post(served, body, "/explain", accept=NPZ).content)
    for i, item in enumerate(plain["data"]):
        assert np.array_equal(arrays[f"{i}.attributions"], np.array(item["attributions"], np.float32))
        assert rest["data"][i] == {name: value for name, value in item.items() if name != "attributions"}
    *lines, last = map(json.loads, post(served, body, "/explain", accept=NDJSON).text.splitlines())
    assert sorted(lines, key=lambda line: int(line["index"])) == plain["data"]
    assert last == {name: plain[name] for name in ("model", "method", "usage")}


def test_its_faithfulness(served: Service) -> None:
    """The units that add most are left out, as of occlusion."""
    (item,) = explain(served, "moods", TEXTS[:1], faithfulness=True, replacement="remove", steps=2)
    assert item["faithfulness"]["shares"] == [0.1, 0.2, 0.5]
    assert len(item["faithfulness"]["comprehensiveness"]) == 3


REFUSED: list[tuple[Json, str, str, str]] = [
    ({"steps": 0}, "invalid-request", "steps", "must be at least 1"),
    ({"steps": 257}, "invalid-request", "steps", "must be at most 256"),
    ({"method": "occlusion", "steps": 3}, "invalid-request", "steps", 'on the method "occlusion", which'),
    ({"method": "heads", "steps": 3}, "invalid-request", "steps", 'on the method "heads", which'),
    ({"method": None, "steps": 3}, "invalid-request", "steps", 'on the method "occlusion", which'),
    ({"replacement": "mask"}, "invalid-request", "replacement", 'on the method "gradient", which'),
    ({"target": {"token": 1}}, "invalid-request", "target.token", "labels whole texts"),
]


@pytest.mark.parametrize(("body", "kind", "field", "detail"), REFUSED)
def test_a_refusal_says_what_to_change(
    served: Service, body: Json, kind: str, field: str, detail: str
) -> None:
    """Before anything runs."""
    body = {"inputs": ["a", "b"], "model": "moods", "method": "gradient", **body}
    before = batches(served, "moods")
    document = assert_problem(post(served, body, "/explain"), 422, kind, field=field)
    assert detail in document["detail"]
    assert batches(served, "moods") == before


def test_too_many_tokens_are_refused_before_any_work(several: Service) -> None:
    """Those of each point count three times; fewer steps are a way out."""
    inputs = [["the man beats the boy", "hello"]]
    body = {"inputs": inputs, "method": "gradient", "model": "mini"}
    document = assert_problem(post(several, body, "/explain"), 413, "explanation-too-large", limit=256)
    assert (
        "run 67 more times, each time forwards and backwards (which counts as three runs), with"
        in document["detail"]
    )
    assert document["detail"].endswith("send fewer or shorter inputs, or choose fewer `steps`.")


def without(source: Path, target: Path, *tokens: str) -> Path:
    """A folder whose tokenizer has other names for some special tokens, so that they have no role."""
    shutil.copytree(source, target)
    for file in target.glob("*token*.json"):
        text = file.read_text(encoding="utf-8")
        for token in tokens:
            text = text.replace(f"[{token}]", f"[NO {token}]")
            text = text.replace(f"{token.lower()}_token", f"other_{token.lower()}")
        file.write_text(text, encoding="utf-8")
    return target


def test_a_tokenizer_without_a_mask(models: Models, tmp_path: Path) -> None:
    """Begins with padding, or says what to do instead."""
    folder = models.folders["plain"]
    sources = [
        without(folder, tmp_path / "padding", "MASK"),
        without(folder, tmp_path / "neither", "MASK", "PAD"),
    ]
    with serve(model=",".join(map(str, sources)), threads=1) as service:
        (item,) = explain(service, "padding", PAIRS[:1], steps=2, pooling="mean")
        assert item["baseline"] == "padding"
        reference = models.references["plain"]
        added, *_ = integrated(
            reference,
            sides_of(item, apart=True),
            0,
            2,
            lambda first, second: compared("cosine", pooled(first, "mean"), pooled(second, "mean")),
        )
        spans = item["units"]["token_spans"]
        assert distance(item["attributions"], [added[a:b].sum() for a, b in spans]) <= 5e-5
        body = {"inputs": PAIRS, "model": "neither", "method": "gradient"}
        document = assert_problem(post(service, body, "/explain"), 422, "unsupported", field="method")
        detail = (
            'starts from mask or padding tokens, but the tokenizer of the model "neither" has neither: set '
        )
        assert f'{detail}method to "occ' in document["detail"]


@pytest.mark.thorough
def test_a_graph_has_no_way_back(models: Models, tmp_path: Path) -> None:
    """The 422 says what runs it, and what else there is."""
    folder = export_folder(models.folders["moods"], tmp_path / "graph")
    with serve(model=folder, threads=1) as service:
        body = {"inputs": TEXTS, "method": "gradient"}
        document = assert_problem(post(service, body, "/explain"), 422, "unsupported", field="method")
        assert 'PyTorch (HEADLIGHT_BACKEND="torch"), or set method to "occlusion".' in document["detail"]
