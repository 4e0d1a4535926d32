"""The logit lens of `POST /encode`: the words that each layer predicts, over HTTP in every format."""

import json
import shutil
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.checkpoints.exported_prediction import read_exported, write_predictor
from tests.references.checkpoints import MINILM
from tests.references.comparing import distance
from tests.references.families import Written
from tests.references.logit_lens import largest_words, lens_logits, softmax
from tests.support.backends import Kept, both_backends, native
from tests.support.families import write_small
from tests.support.serving import (
    JSON,
    NDJSON,
    NPZ,
    SAFETENSORS,
    Json,
    Service,
    assert_problem,
    post,
    read_npz,
    read_safetensors,
    serve,
)

pytestmark = both_backends

TEXTS = ["the man beats the boy", "hello, world: [the boy].", "a", ""]
LAYERS = 3
ARRAYS = {"lens_ids": "token_ids", "lens_logits": "logits", "lens_probabilities": "probabilities"}


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """A model whose norms follow its sub-layers, and one that applies a norm after its last block."""
    place = tmp_path_factory.mktemp("models")
    return {
        family: write_small(place / family, family, "ForMaskedLM", tie_word_embeddings=True)
        for family in ("bert", "modernbert")
    }


@pytest.fixture(scope="session")
def served(kept: Kept, backend: str, written: dict[str, Written]) -> Service:
    """Both of them, and with PyTorch the embedded model, which predicts nothing."""

    def start() -> AbstractContextManager[Service]:
        models = [f"{name}={kept.folder(one.folder, backend)}" for name, one in written.items()]
        return serve(
            model=",".join(models + [f"minilm={MINILM}"] * (backend != "onnx")), threads=1, **native(backend)
        )

    return kept.service(("logit lens", backend), start)


def ask(service: Service, inputs: Any, **body: Any) -> list[Json]:
    items: list[Json] = service.encode(inputs, outputs=["logit_lens"], **body)["data"]
    return items


def check(item: Json, written: Written, layers: list[int], positions: list[int], top_k: int) -> None:
    """The words of an item are those with the largest logits of the reference, and have their names."""
    lens = item["logit_lens"]
    assert (lens["layers"], lens["positions"]) == (layers, positions)
    logits = lens_logits(written, item["token_ids"], item["segment_ids"])[layers][:, positions]
    scale = np.abs(logits).max()
    ids = np.array(lens["token_ids"])
    best = np.take_along_axis(logits, largest_words(logits, top_k), -1)
    assert ids.shape == (len(layers), len(positions), top_k)
    assert np.abs(np.array(lens["logits"]) - best).max() <= 1e-5 * scale
    assert np.abs(np.take_along_axis(logits, ids, -1) - best).max() <= 1e-5 * scale
    shares = np.take_along_axis(softmax(logits), ids, -1)
    assert distance(np.array(lens["probabilities"]), shares) <= 1e-5 * scale
    tokenizer = json.loads((written.folder / "tokenizer.json").read_text(encoding="utf-8"))
    names = {index: token for token, index in tokenizer["model"]["vocab"].items()}
    assert lens["tokens"] == [[[names.get(i, "") for i in row] for row in layer] for layer in ids.tolist()]


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_each_layer_predicts_what_the_head_makes_of_it(
    family: str, served: Service, written: dict[str, Written]
) -> None:
    """All layers and tokens, some of them with repeats, and by default ten words of the last layer."""
    for item in ask(served, TEXTS, model=family, layers="all", top_k=4):
        count = len(item["token_ids"])
        check(item, written[family], [*range(LAYERS + 1)], [*range(count)], 4)
    (item,) = ask(served, TEXTS[0], model=family, layers=[-1, 0, 3], positions=[-2, 1, 1], top_k=2)
    count = len(item["token_ids"])
    check(item, written[family], [3, 0, 3], [count - 2, 1, 1], 2)
    (item,) = ask(served, [TEXTS[:2]], model=family)
    check(item, written[family], [LAYERS], [*range(len(item["token_ids"]))], 10)
    (item,) = ask(served, "a", model=family, top_k=100, positions=[0])
    check(item, written[family], [LAYERS], [0], min(100, written[family].model.config.vocab_size))


def test_all_outputs_come_from_one_pass(served: Service, written: dict[str, Written]) -> None:
    """Beside vectors and sparse vectors, which `top_k` also cuts."""
    outputs = ["sentence", "tokens", "sparse", "logit_lens"]
    (item,) = served.encode(TEXTS[0], outputs=outputs, layers="all", top_k=3, model="modernbert")["data"]
    check(item, written["modernbert"], [*range(LAYERS + 1)], [*range(len(item["token_ids"]))], 3)
    assert len(item["sparse"]["token_ids"]) == 3
    assert len(item["token_embeddings"]) == LAYERS + 1
    assert "embedding" in item


def test_every_format_has_the_same_words(served: Service) -> None:
    """Files have ids, logits and probabilities as arrays, and the rest in their metadata."""
    body = {"inputs": TEXTS, "outputs": ["logit_lens"], "model": "bert", "layers": [0, 2], "top_k": 3}
    plain = post(served, body, accept=JSON).json()["data"]
    for kind, read in ((NPZ, read_npz), (SAFETENSORS, read_safetensors)):
        arrays, meta = read(post(served, body, accept=kind).content)
        for i, item in enumerate(plain):
            lens = item["logit_lens"]
            assert arrays[f"{i}.lens_ids"].dtype.name == "int32"
            for name, field in ARRAYS.items():
                dtype: Any = np.int32 if name == "lens_ids" else np.float32
                assert arrays[f"{i}.{name}"].dtype == dtype
                assert np.array_equal(arrays[f"{i}.{name}"], np.array(lens[field], dtype))
            rest = {name: lens[name] for name in ("layers", "positions", "tokens")}
            assert meta["data"][i]["logit_lens"] == rest
        few = served.http.post("/encode", json=body, params={"dtype": "float16"}, headers={"Accept": kind})
        arrays, meta = read(few.content)
        assert arrays["0.lens_logits"].dtype.name == "float16"
        assert distance(arrays["0.lens_logits"], plain[0]["logit_lens"]["logits"]) <= meta["max_error"] + 1e-6
    lines = post(served, body, accept=NDJSON).text.splitlines()
    found = sorted((json.loads(line) for line in lines[:-1]), key=lambda item: int(item["index"]))
    assert [item["logit_lens"] for item in found] == [item["logit_lens"] for item in plain]


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_words_are_those_of_the_changed_run(family: str, served: Service, backend: str) -> None:
    """Interventions count: a replaced hidden state predicts other words, there and in layers after it."""
    if backend == "onnx":
        pytest.skip("graphs do not change hidden states")
    vector = [0.5, -1.0, 2.0] * 16
    change = {"kind": "states", "layer": 1, "tokens": [2], "vector": vector}
    plain, changed = (
        ask(served, TEXTS[0], model=family, layers=[0, 1, 2], **some)[0]["logit_lens"]
        for some in ({}, {"interventions": [change]})
    )
    logits: NDArray[Any] = np.array(changed["logits"])
    same = np.abs(logits - plain["logits"]).max((1, 2)) < 1e-5
    assert same.tolist() == [True, False, False]
    assert not np.array_equal(changed["token_ids"][1][2], plain["token_ids"][1][2])
    assert np.array_equal(changed["token_ids"][1][1], plain["token_ids"][1][1])


@pytest.mark.parametrize(
    ("body", "field", "detail"),
    [
        ({"positions": [0]}, "positions", 'has no effect without "logit_lens" in outputs'),
        ({"top_k": 3}, "top_k", 'has no effect without "sparse" or "logit_lens" in outputs'),
        ({"layers": [0]}, "layers", 'has no effect without "tokens" or "logit_lens" in outputs'),
        ({"outputs": ["logit_lens"], "positions": [3]}, "inputs.0", "positions.0 is 3 and inputs.0 has 3"),
        ({"outputs": ["logit_lens"], "positions": []}, "positions", "must be a list of at least one"),
        ({"outputs": ["logit_lens"], "layers": [4]}, "layers.0", "there are 4 hidden states"),
        ({"outputs": ["logit_lens"], "chunks": "sentences"}, "outputs", "cannot be combined with chunks"),
        ({"outputs": ["logit_lens"], "role": "query"}, "role", 'needs "outputs": ["tokens"] or'),
        (
            {"outputs": ["logit_lens"], "top_k": 101},
            "top_k",
            "is 101, but a logit lens has at most 100 words",
        ),
    ],
)
def test_options_without_effect_are_refused(
    served: Service, body: dict[str, Any], field: str, detail: str
) -> None:
    """And layers and tokens that there are not."""
    document = assert_problem(
        post(served, {"inputs": "a", "model": "bert", **body}), 422, "invalid-request", field=field
    )
    assert detail in document["detail"]


def test_a_model_that_predicts_no_words_is_refused(served: Service, backend: str) -> None:
    """With those that do."""
    if backend == "onnx":
        pytest.skip("the embedded model is served with PyTorch")
    body = {"inputs": "a", "outputs": ["logit_lens"], "model": "minilm"}
    document = assert_problem(post(served, body), 422, "unsupported", field="model")
    assert document["detail"] == (
        'The model "minilm" has no masked_words head, needed by "logit_lens" in outputs: '
        "choose from bert, modernbert."
    )


def test_a_graph_without_the_final_norm_predicts_of_the_last_layer_alone(
    written: dict[str, Written], tmp_path: Path, kept: Kept, backend: str
) -> None:
    """As older releases exported it: the answer would be wrong without a word."""
    if backend != "onnx":
        pytest.skip("only graphs are exported")
    model, old = written["modernbert"], tmp_path / "old"
    shutil.copytree(kept.folder(model.folder, "onnx"), old)
    predictor = read_exported(old)
    assert predictor is not None
    write_predictor(old, replace(predictor, final_norm=None))
    with serve(model=f"old={old}", threads=1) as service:
        (item,) = ask(service, TEXTS[0], model="old", top_k=3)
        check(item, model, [LAYERS], [*range(len(item["token_ids"]))], 3)
        body = {"inputs": "a", "outputs": ["logit_lens"], "layers": "all"}
        document = assert_problem(post(service, body), 422, "unsupported", field="layers")
        assert 'set "layers" to [-1], or export the model again' in document["detail"]


def test_answers_are_bounded_before_they_are_computed(written: dict[str, Written]) -> None:
    """With what makes them small enough: fewer layers, tokens or words."""
    folder = written["bert"].folder
    with serve(model=f"bert={folder}", max_response_bytes=50_000, threads=1) as small:
        body = {
            "inputs": "a boy " * 8,
            "outputs": ["logit_lens"],
            "model": "bert",
            "layers": "all",
            "top_k": 50,
        }
        document = assert_problem(post(small, body), 413, "response-too-large", limit=50_000)
        ways = document["detail"]
        for field, said in (("top_k", "set `top_k` to "), ("positions", "choose at most ")):
            most = int(ways.split(said)[1].split()[0].rstrip(",."))
            for count, status in ((most, 200), (most + 1, 413)):
                less = count if field == "top_k" else [*range(count)]
                assert post(small, {**body, field: less}).status_code == status
        document = assert_problem(post(small, {**body, "top_k": 20}), 413, "response-too-large")
        assert "choose at most 2 of the `layers`" in document["detail"]
        assert post(small, {**body, "top_k": 20, "layers": [0, 3]}).status_code == 200
