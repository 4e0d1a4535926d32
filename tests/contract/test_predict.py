"""`POST /predict`, over a real socket, against the pipelines of `transformers`."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.protocols.native.examples import EXAMPLES
from tests.contract.test_openapi import answer_schema, body_schema
from tests.references.checkpoints import SUITED, write_bert
from tests.references.classifiers import Classifier, write_classifier
from tests.references.comparing import distance, relative_distance
from tests.references.labelled_tokens import GROUPINGS, Tagger, write_tagger
from tests.support.exporting import export_silently
from tests.support.serving import NDJSON, NPZ, Json, Service, answered, assert_problem, post, serve

TEXTS = ["the man beats the boy", "", "Hello, World! unbelievably", "日本 🙂 €5", "the boy, the man. " * 20]
PAIRS = [("the man beats", "boy"), ("hello", "the"), ("hello world the man", "beating the worldly boys")]
CLASSIFIERS: dict[str, tuple[list[str], str | None]] = {
    "mood": (["bad", "so-so", 'good "\\\n🙂'], None),
    "topics": (["sport", "art", "law", "tax"], "multi_label_classification"),
    "grade": (["grade"], "regression"),
    "spam": (["spam"], None),
    "many": ([f"a label with a rather long name, number {i}" for i in range(300)], None),
}
MAPS = {"layers": [-1], "heads": [0, 2], "top_k": 2, "summary": True, "statistics": ["entropy"]}


@dataclass(frozen=True)
class Models:
    """Classifiers and token classifiers as references."""

    classifiers: dict[str, Classifier]
    taggers: dict[str, Tagger]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """A classifier of each kind, and a token classifier with each kind of tokenizer."""
    place = tmp_path_factory.mktemp("models")
    return Models(
        {name: write_classifier(place / name, *what, **SUITED) for name, what in CLASSIFIERS.items()},
        {
            "tagger": write_tagger(place / "tagger", seed=5, **SUITED),
            "bytes": write_tagger(place / "bytes", bytes_alone=True, seed=5, **SUITED),
        },
    )


@pytest.fixture(scope="module")
def predictor(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """They and an encoder that predicts nothing."""
    encoder = tmp_path_factory.mktemp("models") / "encoder"
    write_bert(encoder, **SUITED)
    folders = {name: each.folder for name, each in models.classifiers.items()}
    folders |= {name: each.folder for name, each in models.taggers.items()}
    served = ",".join(f"{name}={folder}" for name, folder in {**folders, "encoder": encoder}.items())
    with serve(model=served, max_response_bytes=300_000) as started:
        yield started


def predict(service: Service, inputs: object, **body: object) -> Json:
    return answered(post(service, {"inputs": inputs, **body}, "/predict"))


def assert_labels(found: Any, expected: Any) -> None:
    """The same labels in the same order, with the same scores up to rounding."""
    assert [each["label"] for each in found] == [each["label"] for each in expected]
    scores = [each["score"] for each in expected]
    assert distance([each["score"] for each in found], scores) <= 1e-5 * max(1.0, *map(abs, scores))


def assert_entities(found: Any, text: str, expected: Any, segment: int = 0) -> None:
    """The same entities with the same scores up to rounding, in code points."""
    keys = ("entity_group", "start", "end")
    assert [(e["label"], e["start"], e["end"]) for e in found] == [
        tuple(e[k] for k in keys) for e in expected
    ]
    assert distance([e["score"] for e in found], [e["score"] for e in expected]) <= 1e-5
    for entity, theirs in zip(found, expected, strict=True):
        assert list(entity) == ["label", "score", "start", "end", "text", "segment"]
        assert (entity["text"], entity["segment"]) == (text[entity["start"] : entity["end"]], segment)
        if text.isascii():  # the pipeline has the text as its tokenizer normalizes it
            assert squeezed(entity["text"]) == squeezed(theirs["word"])


def squeezed(text: str) -> str:
    """A text without case, spaces and WordPiece's marks."""
    return re.sub(r"##|\s", "", text.lower())


# ------------------------------------------------------------------------------------ labels of texts


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_scores_are_those_of_the_pipeline(name: str, predictor: Service, models: Models) -> None:
    """Of every kind of problem, of texts and pairs, truncated as there; and as logits."""
    cases: list[Sequence[str | tuple[str, str]]] = [TEXTS, PAIRS]
    for inputs in cases:
        for raw in (False, True):
            answer = predict(predictor, inputs, model=name, raw_scores=raw)
            for item, text in zip(answer["data"], inputs, strict=True):
                expected = models.classifiers[name].scores(text, "none" if raw else None)
                assert_labels(item["labels"], expected)


def test_an_item_has_the_tokens_that_ran(predictor: Service) -> None:
    """The columns, usage and order of `/encode`, whose vectors are left out."""
    answer, encoded = predict(predictor, TEXTS, model="mood"), predictor.encode(TEXTS, model="mood")
    assert list(answer) == ["model", "data", "usage"]
    assert (answer["model"], answer["usage"]) == ("mood", encoded["usage"])
    for item, beside in zip(answer["data"], encoded["data"], strict=True):
        beside.pop("embedding")
        assert item.pop("labels")
        assert item == beside


def test_the_best_labels_are_the_first_of_all(predictor: Service) -> None:
    """More than there are is all of them."""
    ((whole,), (best,), (more,)) = (
        predict(predictor, TEXTS[0], model="topics", **options)["data"]
        for options in ({}, {"top_k": 2}, {"top_k": 99.0})
    )
    assert best["labels"] == whole["labels"][:2]
    assert more["labels"] == whole["labels"]


# ----------------------------------------------------------------------------------- labels of tokens


@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("name", ["tagger", "bytes"])
def test_entities_are_those_of_the_pipeline(
    name: str, grouping: str, predictor: Service, models: Models
) -> None:
    """Their labels, scores, offsets and texts, whatever the tokenizer and the strategy."""
    answer = predict(predictor, TEXTS, model=name, aggregation=grouping)
    for item, text in zip(answer["data"], TEXTS, strict=True):
        assert "token_labels" not in item
        assert_entities(item["entities"], text, models.taggers[name].entities(text, grouping))
    assert sum(len(item["entities"]) for item in answer["data"]) > 5


@pytest.mark.parametrize("grouping", ["simple", "average"])
def test_entities_of_a_pair_are_those_of_each_text(grouping: str, predictor: Service, models: Models) -> None:
    """None reaches from one text into the other, and offsets count in their own text."""
    answer = predict(predictor, PAIRS, model="tagger", aggregation=grouping)
    for item, pair in zip(answer["data"], PAIRS, strict=True):
        for number, expected in enumerate(models.taggers["tagger"].entities_of_pair(pair, grouping)):
            found = [entity for entity in item["entities"] if entity["segment"] == number]
            assert_entities(found, pair[number], expected, number)


def test_every_token_has_a_label(predictor: Service, models: Models) -> None:
    """In columns beside the tokens; with logits, they are the same labels."""
    tagger = models.taggers["tagger"]
    plain, raw = (predict(predictor, TEXTS, model="tagger", raw_scores=raw) for raw in (False, True))
    for text, item, unscaled in zip(TEXTS, plain["data"], raw["data"], strict=True):
        logits = tagger.logits(item["token_ids"], item["segment_ids"])
        names = [tagger.pipeline.model.config.id2label[i] for i in logits.argmax(-1).tolist()]
        assert item["token_labels"] == unscaled["token_labels"] == names
        assert distance(item["token_scores"], logits.softmax(-1).amax(-1)) <= 1e-5
        assert relative_distance(unscaled["token_scores"], logits.amax(-1)) <= 1e-5
        listed = [i for i, name in enumerate(names) if name != "O" and not item["special"][i]]
        assert listed == [entity["index"] for entity in tagger.entities(text, "none")]


# ---------------------------------------------------------------------------------------- with attention


@pytest.mark.parametrize(("name", "made"), [("mood", "labels"), ("tagger", "entities")])
def test_maps_come_from_the_same_pass(name: str, made: str, predictor: Service) -> None:
    """They are those of `/attention` with the same options, and the labels are those without maps."""
    options = {"aggregation": "first"} if made == "entities" else {}
    for maps in (MAPS, {"level": "word", "special_tokens": "drop", "decimals": 3}):
        answer = predict(predictor, TEXTS, model=name, attention=maps, **options)
        plain = predict(predictor, TEXTS, model=name, **options)
        observed = predictor.attention(TEXTS, model=name, **maps)
        assert answer["axes"] == observed["axes"]
        for item, without, seen in zip(answer["data"], plain["data"], observed["data"], strict=True):
            found, expected = item.pop(made), without[made]
            assert [each["label"] for each in found] == [each["label"] for each in expected]
            assert distance([e["score"] for e in found], [e["score"] for e in expected]) <= 1e-5
            assert item.keys() == seen.keys()
            for field in ("attention", "top_weights", "residual"):
                if field in seen:
                    assert distance(item.pop(field), seen.pop(field)) <= 1.1e-3
            summary, other = item.pop("summary", None), seen.pop("summary", None)
            assert (summary is None) == (other is None)
            assert summary is None or distance(summary["entropy"], other["entropy"]) <= 1e-5
            assert item == seen


@pytest.mark.thorough
def test_a_graph_predicts_as_its_checkpoint(models: Models, tmp_path: Path) -> None:
    """An exported folder keeps its labels and its problem, without PyTorch, also beside maps."""
    sources = {"topics": models.classifiers["topics"].folder, "tagger": models.taggers["tagger"].folder}
    for name, source in sources.items():
        export_silently(source, tmp_path / name)
    with serve(model=",".join(f"{name}={tmp_path / name}" for name in sources)) as graphs:
        for text in TEXTS:
            for options in ({}, {"attention": {"heads": [1]}}):
                (item,) = predict(graphs, text, **options)["data"]
                assert_labels(item["labels"], models.classifiers["topics"].scores(text))
                (item,) = predict(graphs, text, model="tagger", aggregation="average", **options)["data"]
                assert_entities(item["entities"], text, models.taggers["tagger"].entities(text, "average"))


# ------------------------------------------------------------------------------- formats, limits, errors


def test_lines_are_the_items(predictor: Service) -> None:
    """As ndjson, each input has a line, with the numbers of the document."""
    body = {
        "inputs": TEXTS,
        "model": "tagger",
        "aggregation": "max",
        "attention": {"heads": [0], "decimals": 2},
    }
    lines = [json.loads(line) for line in post(predictor, body, "/predict", Accept=NDJSON).text.splitlines()]
    whole = answered(post(predictor, body, "/predict"))
    assert lines[-1] == {"model": "tagger", "axes": whole["axes"], "usage": whole["usage"]}
    for line in lines[:-1]:
        item = whole["data"][line["index"]]
        assert [e["text"] for e in line["entities"]] == [e["text"] for e in item["entities"]]
        assert line["attention"] == item["attention"]


def test_numbers_are_the_shortest_of_float32(predictor: Service) -> None:
    """No score is written with digits that a float32 does not have."""
    text = post(predictor, {"inputs": "the man", "model": "mood"}, "/predict").text
    scores = json.loads(text, parse_float=str)["data"][0]["labels"]
    assert all(len(score["score"].lstrip("0.")) <= 9 for score in scores)


def test_binary_formats_are_refused(predictor: Service) -> None:
    """With the list of those that there are."""
    response = post(predictor, {"inputs": "a"}, "/predict", Accept=NPZ)
    assert_problem(
        response, 406, "not-acceptable", field="Accept", allowed=["application/json", "application/x-ndjson"]
    )


def test_a_model_without_labels_names_those_that_have_some(predictor: Service) -> None:
    """So that the next request can be right."""
    response = post(predictor, {"inputs": "a", "model": "encoder"}, "/predict")
    document = assert_problem(response, 422, "unsupported", field="model")
    assert document["detail"] == (
        'The model "encoder" has no classification head or token_classification head, needed by this '
        "route: choose from mood, topics, grade, spam, many, tagger, bytes."
    )


def test_a_service_without_labels_says_what_to_serve(plain: Service) -> None:
    """No served model has any."""
    document = assert_problem(post(plain, {"inputs": "a"}, "/predict"), 422, "unsupported", field="model")
    assert document["detail"].endswith("ends in SequenceClassification or TokenClassification.")


REFUSED: list[tuple[str, Json, str, str]] = [
    ("mood", {"aggregation": "simple"}, "aggregation", "labels whole texts: leave it out"),
    ("tagger", {"top_k": 1}, "top_k", "gives each token one label: leave top_k out"),
    ("tagger", {"aggregation": "first", "raw_scores": True}, "raw_scores", "must be false with aggregation"),
    ("mood", {"top_k": 0}, "top_k", "must be at least 1"),
    ("mood", {"prompt": "a"}, "prompt", "is not a known field"),
    ("mood", {"attention": "all"}, "attention", "attention must be a JSON object."),
    ("mood", {"attention": {"layer": 1}}, "attention.layer", "(did you mean layers?)"),
    ("mood", {"attention": {"maps": False}}, "attention.maps", "attention.maps may be false only with"),
    ("mood", {"attention": {"heads": ["a"]}}, "attention.heads.0", "attention.heads.0 must be an integer."),
    ("mood", {"attention": {"layers": [2]}}, "attention.layers.0", "there are 2 layers: choose from -2 to 1"),
    (
        "mood",
        {"attention": {"queries": [9]}},
        "inputs.0",
        "attention.queries.0 is 9 and inputs.0 has 3 tokens",
    ),
]


@pytest.mark.parametrize(("model", "options", "field", "detail"), REFUSED)
def test_what_is_wrong_or_without_effect_is_refused(
    model: str, options: Json, field: str, detail: str, predictor: Service
) -> None:
    """The field is named by its path, with the way out."""
    response = post(predictor, {"inputs": "a", "model": model, **options}, "/predict")
    kind = (
        "unsupported"
        if field in ("aggregation", "top_k") and options.get("top_k") != 0
        else "invalid-request"
    )
    document = assert_problem(response, 422, kind, field=field)
    assert detail in document["detail"]


@pytest.mark.parametrize(
    ("body", "way_out"),
    [
        ({"model": "many"}, "send at most 9 of the inputs, lower `top_k` to 109, or raise"),
        (
            {"model": "tagger", "aggregation": "simple", "attention": {}},
            "send at most 1 of the inputs, set `attention.thumbnail` to 2, or raise",
        ),
    ],
)
def test_a_response_that_could_be_too_large_is_refused(body: Json, way_out: str, predictor: Service) -> None:
    """Before anything runs, with what makes it small enough."""
    response = post(predictor, {"inputs": ["the man " * 30] * 20, **body}, "/predict")
    document = assert_problem(response, 413, "response-too-large", limit=300_000)
    assert way_out in document["detail"]
    smaller = {"top_k": 109} if body["model"] == "many" else {"attention": {"thumbnail": 2}}
    assert predict(predictor, ["the man " * 30] * 20, **{**body, **smaller})


@pytest.mark.parametrize("name", EXAMPLES["/predict"])
def test_every_example_fits_the_schema_and_runs(name: str, predictor: Service) -> None:
    """As does its answer, with models of both kinds."""
    schema = predictor.http.get("/openapi.json").json()
    body = EXAMPLES["/predict"][name]["value"]
    body_schema(schema, "/predict").validate(body)
    for model in ("mood", "tagger"):
        _, answers = answer_schema(schema, "/predict", 200)
        answers.validate(answered(post(predictor, {**body, "model": model}, "/predict")))
    _, answers = answer_schema(schema, "/predict", 200)
    answers.validate(predict(predictor, TEXTS, model="tagger", aggregation="max"))
