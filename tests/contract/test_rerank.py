"""`POST /rerank`, over a real socket, against cross-encoders and sentence vectors of `transformers`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import PROMPTS
from tests.references.checkpoints import SUITED, Reference
from tests.references.comparing import distance
from tests.references.cross_encoder import IDENTITY, SIGMOID, CrossEncoder, write_cross_encoder
from tests.references.late_interaction import LateInteraction, write_pylate
from tests.support.exporting import export_silently
from tests.support.families import SIZES
from tests.support.serving import NDJSON, NPZ, Json, Service, answered, assert_problem, post, serve

QUERY = "the man beats"
TEXTS = ["boy beats man", "hello world", "", "the boy, the man. " * 20, "a b c d", "日本 🙂", "hello world"]
RANKERS: dict[str, tuple[Any, ...]] = {
    "bert": ("Bert", "with modules", SIGMOID, "the boy: "),
    "roberta": ("Roberta", "before 4.0", IDENTITY),
    "distilbert": ("DistilBert", "since 4.0", SIGMOID),
    "modernbert": ("ModernBert", None, None),
    "deberta": ("DebertaV2", "with modules", IDENTITY),
}
"""A family, the form of the folder, what it says of scores, and its prompt."""
CONFIGS: dict[str, dict[str, Any]] = {
    "roberta": {"pad_token_id": 0, "type_vocab_size": 1, "max_position_embeddings": 66},
    "distilbert": {
        **dict.fromkeys(SIZES),
        "dim": 48,
        "n_layers": 2,
        "n_heads": 3,
        "hidden_dim": 40,
        "max_position_embeddings": 64,
    },
    "modernbert": {"classifier_pooling": "mean"},
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CrossEncoder]:
    """A small cross-encoder of each family, and a classifier of three labels."""
    place = tmp_path_factory.mktemp("models")
    made = {}
    for name, described in {**RANKERS, "classifier": ("Bert",)}.items():
        config = {**SIZES, **CONFIGS.get(name, {})}
        given = {field: value for field, value in config.items() if value is not None}
        labels = 3 if name == "classifier" else 1
        made[name] = write_cross_encoder(place / name, *described, num_labels=labels, **given)
    return made


@pytest.fixture(scope="module")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> LateInteraction:
    """A small model for late interaction."""
    return write_pylate(tmp_path_factory.mktemp("late") / "colbert", **SUITED)


@pytest.fixture(scope="module")
def rankers(
    folders: dict[str, CrossEncoder], colbert: LateInteraction, prompted_folder: Path
) -> Iterator[Service]:
    """Them, a model for late interaction, and an encoder of sentences with prompts."""
    models = [f"{name}={one.folder}" for name, one in folders.items()]
    models += [f"colbert={colbert.folder}", f"prompted={prompted_folder}"]
    with serve(model=",".join(models), max_response_bytes=10**6) as started:
        yield started


def rerank(service: Service, **body: object) -> Json:
    return answered(post(service, {"query": QUERY, "texts": TEXTS, **body}, "/rerank"))


def by_index(answer: Json) -> list[float]:
    """The scores in the order of the texts."""
    return [item["score"] for item in sorted(answer["data"], key=lambda item: item["index"])]


def order_of(scores: Any) -> list[int]:
    """The indices of scores, the largest first, ties by index: Python's sort is stable."""
    return sorted(range(len(scores)), key=lambda i: -scores[i])


# ------------------------------------------------------------------------------------ cross-encoders


@pytest.mark.parametrize("name", RANKERS)
def test_scores_are_those_of_the_cross_encoder(
    name: str, rankers: Service, folders: dict[str, CrossEncoder]
) -> None:
    """With the function and the prompt of its folder, and as logits; long pairs are truncated as there."""
    for raw in (False, True):
        answer = rerank(rankers, model=name, raw_scores=raw)
        expected = folders[name].predict(QUERY, TEXTS, raw=raw)
        assert (answer["model"], answer["method"]) == (name, "cross-encoder")
        assert distance(by_index(answer), expected) <= 1e-5
        assert [item["index"] for item in answer["data"]] == order_of(by_index(answer))


@pytest.mark.thorough
def test_a_graph_ranks_as_its_checkpoint(folders: dict[str, CrossEncoder], tmp_path: Path) -> None:
    """An exported folder keeps the function, the prompt and the classifier, without PyTorch."""
    source = folders["bert"]
    export_silently(source.folder, tmp_path / "graph")
    with serve(model=tmp_path / "graph") as graph:
        for raw in (False, True):
            expected = source.predict(QUERY, TEXTS, raw=raw)
            assert distance(by_index(rerank(graph, raw_scores=raw)), expected) <= 1e-5


def test_an_item_says_which_text_it_is(rankers: Service) -> None:
    """Largest score first, equal ones by index; truncation is that of the pair, and tokens are counted."""
    answer = rerank(rankers, model="distilbert", return_texts=True)
    assert list(answer) == ["model", "method", "data", "usage"]
    pairs = [[QUERY, text] for text in TEXTS]
    encoded = rankers.encode(pairs, model="distilbert")
    assert answer["usage"] == encoded["usage"]
    for item in answer["data"]:
        covered = ["covered"] if item["truncated"] else []
        assert list(item) == ["index", "score", "text", "truncated", "original_length", *covered]
        assert item["text"] == TEXTS[item["index"]]
        pair = encoded["data"][item["index"]]
        for name in ("truncated", "original_length", *covered):
            assert item[name] == pair[name]
    order = [item["index"] for item in answer["data"]]
    assert order.index(1) + 1 == order.index(6)
    assert [item["truncated"] for item in answer["data"]].count(True) == 1


@pytest.mark.parametrize("most", [1, 3, 7, 1000])
def test_the_best_texts_are_the_first_of_all(most: int, rankers: Service) -> None:
    """With and without maps, which takes another way; more than there are is all of them."""
    whole = rerank(rankers, model="bert")["data"]
    best = rerank(rankers, model="bert", top_n=most)["data"]
    seen = rerank(rankers, model="bert", top_n=most, attention={"layers": [0], "heads": [0], "top_k": 1})[
        "data"
    ]
    assert best == whole[:most]
    assert [item["index"] for item in seen] == [item["index"] for item in best]
    assert distance([i["score"] for i in seen], [i["score"] for i in best]) <= 2e-6


def test_maps_are_those_of_the_pairs(rankers: Service, folders: dict[str, CrossEncoder]) -> None:
    """Of the returned pairs alone, with their tokens, from the pass that scored them."""
    answer = rerank(rankers, model="bert", top_n=2, attention={"layers": [-1], "decimals": 9})
    assert answer["axes"] == ["layer", "head", "query", "key"]
    assert len(answer["data"]) == 2
    for item in answer["data"]:
        _, maps = folders["bert"].run(QUERY, TEXTS[item["index"]])
        assert distance(item["attention"], maps[2:]) <= 1e-5
        assert item["layers"] == [2]
        assert set(item["segment_ids"]) == {0, 1}
        assert len(item["tokens"]) == maps.shape[-1]
        assert "logits" not in item


# ------------------------------------------------------------------------------------ encoders of sentences


def cosines(vectors: Any) -> Any:
    """Of the first with the others, in float64."""
    unit = np.asarray(vectors, np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return unit[1:] @ unit[0]


def test_other_models_rank_by_cosine(service: Service, reference: Reference) -> None:
    """Of the query's vector and the texts', means of the reference's hidden states."""
    texts = ["A man is eating.", "Someone eats.", "", "日本語", "word " * 400]
    tokens = [reference.tokenize(text, 256) for text in ("Who eats?", *texts)]
    states = [reference.run(t["input_ids"], t["token_type_ids"])[0][-1] for t in tokens]
    answer = rerank(service, query="Who eats?", texts=texts)
    assert answer["method"] == "bi-encoder"
    assert distance(by_index(answer), cosines([state.mean(0) for state in states])) <= 1e-5
    assert [item["index"] for item in answer["data"]] == order_of(by_index(answer))
    assert answer["usage"] == {"input_tokens": sum(len(t["input_ids"]) for t in tokens)}
    long = next(item for item in answer["data"] if item["index"] == 4)
    assert (long["truncated"], long["original_length"]) == (True, 402)


def test_queries_and_texts_have_prompts_of_their_own(rankers: Service, prompted_reference: Reference) -> None:
    """Those that the model names `query` and `passage`; this model leaves them out of its pooling."""
    texts = TEXTS[:3]
    vectors = []
    for prompt, text in [(PROMPTS["query"], QUERY), *((PROMPTS["passage"], text) for text in texts)]:
        tokens = prompted_reference.tokenize(prompt + text, 64)
        skip = len(prompted_reference.tokenize(prompt, 64)["input_ids"]) - 1
        states, _ = prompted_reference.run(tokens["input_ids"], tokens["token_type_ids"])
        vectors.append(states[-1][skip:].mean(0))
    answer = rerank(rankers, model="prompted", texts=texts)
    assert distance(by_index(answer), cosines(vectors)) <= 1e-5


def test_late_interaction_sums_the_best_matches(rankers: Service, colbert: LateInteraction) -> None:
    """MaxSim of the reference's vectors of tokens, of every text that has some."""
    ids, _, query = colbert.vectors(QUERY, is_query=True)
    texts = [colbert.vectors(text, is_query=False) for text in TEXTS]
    answer = rerank(rankers, model="colbert")
    assert answer["method"] == "late-interaction"
    expected = [(query @ vectors.T).max(1).sum() for _, _, vectors in texts]
    assert distance(by_index(answer), expected) <= 1e-5 * len(query)
    assert answer["usage"] == {"input_tokens": len(ids) + sum(len(tokens) for tokens, _, _ in texts)}


# ------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("body", "kind", "field", "sentence"),
    [
        ({"query": ""}, "invalid-request", "query", "query is empty: send a text of at least one character."),
        ({"query": ["a"]}, "invalid-request", "query", "query must be a string."),
        ({"texts": []}, "invalid-request", "texts", "texts must be a non-empty list of strings."),
        ({"texts": "a"}, "invalid-request", "texts", "texts must be a non-empty list of strings."),
        ({"texts": ["a", ["b", "c"]]}, "invalid-request", "texts.1", "texts.1 must be a string."),
        ({"top_n": 0}, "invalid-request", "top_n", "top_n must be at least 1."),
        ({"inputs": ["a"]}, "invalid-request", "inputs", "inputs is not a known field (did you mean texts?)"),
        ({"attention": {"layer": [0]}}, "invalid-request", "attention.layer", "(did you mean layers?)"),
        ({"attention": {"layers": [3]}}, "invalid-request", "attention.layers.0", "attention.layers.0 is 3"),
        ({"attention": {"queries": [99]}}, "invalid-request", "texts.0", "is 99 and texts.0 has 12 tokens"),
        (
            {"model": "classifier"},
            "unsupported",
            "model",
            "send the texts to /predict, or choose from bert, roberta,",
        ),
        (
            {"model": "prompted", "raw_scores": True},
            "unsupported",
            "raw_scores",
            "the method of this model is bi-encoder",
        ),
        (
            {"model": "colbert", "raw_scores": True},
            "unsupported",
            "raw_scores",
            "the method of this model is late-interaction",
        ),
        (
            {"model": "prompted", "attention": {}},
            "unsupported",
            "attention",
            "the method of this model is bi-encoder",
        ),
        ({"truncate": False}, "input-too-long", "texts.3", "texts.3"),
        ({"model": "prompted", "truncate": False}, "input-too-long", "texts.3", "texts.3"),
        (
            {"model": "prompted", "query": "a " * 99, "truncate": False},
            "input-too-long",
            "query",
            "query is 104 tokens long",
        ),
    ],
)
def test_a_refusal_says_what_to_change(
    body: Json, kind: str, field: str, sentence: str, rankers: Service
) -> None:
    """It names the field, also one of the options of maps, and the models that could do it."""
    response = post(rankers, {"query": QUERY, "texts": TEXTS, **body}, "/rerank")
    assert sentence in assert_problem(response, 422, kind, field=field)["detail"]


def test_limits_hold_before_anything_runs(rankers: Service) -> None:
    """The number of texts, the query times the texts, and the response, of which top_n texts count."""
    assert_problem(
        post(rankers, {"query": "a", "texts": ["b"] * 257}, "/rerank"), 413, "too-many-inputs", field="texts"
    )
    repeated = post(rankers, {"query": "a" * 10_000, "texts": ["b"] * 256}, "/rerank")
    detail = assert_problem(repeated, 413, "body-too-large", field="query")["detail"]
    assert "shorten the query, or send fewer texts" in detail
    body = {"query": QUERY, "texts": ["the man " * 30] * 40, "attention": {}}
    large = assert_problem(post(rankers, body, "/rerank"), 413, "response-too-large")
    assert "lower `top_n` to 2" in large["detail"]
    assert "choose at most 3 of the `attention.queries`" in large["detail"]
    assert "npz" not in large["detail"]
    assert len(rerank(rankers, **{**body, "top_n": 2})["data"]) == 2
    assert rerank(rankers, **{**body, "attention": {"queries": [0, 1, 2]}})["data"]


@pytest.mark.parametrize("accept", [NDJSON, NPZ])
def test_the_response_is_json(accept: str, rankers: Service) -> None:
    """It is ordered, so that no part of it can be sent before the rest."""
    response = post(rankers, {"query": QUERY, "texts": TEXTS}, "/rerank", Accept=accept)
    assert_problem(response, 406, "not-acceptable", allowed=["application/json"])


def test_inputs_count_texts(rankers: Service) -> None:
    """In metrics, with all stages in the timing."""
    name = 'headlight_inputs_total{model="%s",route="/rerank"}'
    for model in ("bert", "prompted"):
        before = rankers.metrics()[name % model]
        response = post(rankers, {"query": QUERY, "texts": TEXTS, "model": model}, "/rerank")
        assert rankers.metrics()[name % model] - before == len(TEXTS)
        stages = [part.partition(";")[0] for part in response.headers["server-timing"].split(", ")]
        assert stages == ["tokenize", "queue", "compute", "serialize"]
