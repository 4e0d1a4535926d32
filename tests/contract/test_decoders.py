"""Decoders over a real socket: vectors, tokens, maps and every protocol, against `transformers`."""

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from export.interventions import write_interventions
from model.checkpoints.checkpoint import load_checkpoint
from model.onnx.file import GRAPH
from tests.references.comparing import distance, relative_distance
from tests.references.decoders import LENGTH, PROMPTS, Embedder, write_decoder, write_embedder
from tests.references.families import Written
from tests.references.interventions import run_changed
from tests.support.backends import export_folder
from tests.support.serving import NPZ, Service, answered, assert_problem, post, read_npz, serve

CLASSIFIERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ranks": ("Qwen3", {"head_dim": 24, "num_labels": 1}),
    "classifies": ("Llama", {"num_labels": 3, "problem_type": "single_label_classification"}),
}
"""What their classes begin with, and their config; all texts end in padding."""
QWEN3 = {"head_dim": 24}
GEMMA3: dict[str, Any] = {
    "head_dim": 24,
    "query_pre_attn_scalar": 20,
    "sliding_window": 6,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
LFM2: dict[str, Any] = {"block_multiple_of": 8, "layer_types": ["conv", "full_attention", "conv"]}
GEMMA2: dict[str, Any] = {
    "head_dim": 8,
    "global_head_dim": 16,
    "hidden_size_per_layer_input": 8,
    "embedding_dim": 48,
    "sliding_window": 3,
    "layer_types": ["sliding_attention", "full_attention", "full_attention"],
}
BOTH = {"use_bidirectional_attention": True}
DECODERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "qwen3": ("Qwen3", QWEN3, {}),
    "qwen3-mean": ("Qwen3", {**QWEN3, "is_causal": False}, {"pooling": "mean", "truncate": 20}),
    "gemma3": ("Gemma3Text", {**GEMMA3, **BOTH}, {"pooling": "mean", "dense": (96, 40)}),
    "gemma3-last": ("Gemma3Text", GEMMA3, {}),
    "embedding-gemma2": ("EmbeddingGemma2Text", GEMMA2, {"pooling": "mean"}),
    "lfm2": ("Lfm2", LFM2, {"pooling": "mean"}),
    "lfm2-cls": ("Lfm2", {**LFM2, "is_causal": False}, {"pooling": "cls"}),
}
"""What its classes begin with, its config, and how it embeds."""
TEXTS = ["the man beats the boy", "", "a", "日本 🙂 hello", "the boy " * 60, "x\n\ny<|endoftext|>"]
BOUND = 1e-5


@pytest.fixture(scope="module")
def embedders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Embedder]:
    place = tmp_path_factory.mktemp("models")
    return {
        name: write_embedder(write_decoder(place / name, family, **config), **options)
        for name, (family, config, options) in DECODERS.items()
    }


@pytest.fixture(scope="module", params=["torch", pytest.param("onnx", marks=pytest.mark.repeated)])
def service(
    embedders: dict[str, Embedder], tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Service]:
    """All of them, as checkpoints and as exported graphs."""
    folders = {name: one.folder for name, one in embedders.items()}
    if request.param == "onnx":
        place = tmp_path_factory.mktemp("graphs")
        folders = {name: export_folder(folder, place / name) for name, folder in folders.items()}
        for name, folder in folders.items():
            write_interventions(folder / GRAPH, load_checkpoint(embedders[name].folder).encoder.config)
    models = ",".join(f"{name}={folder}" for name, folder in folders.items())
    with serve(model=models, dtype="float32", threads=1) as started:
        yield started


every = pytest.mark.parametrize("name", DECODERS)


@pytest.mark.in_turns
@every
@pytest.mark.parametrize("prompt", ["", *PROMPTS])
def test_vectors_are_those_of_sentence_transformers(
    name: str, prompt: str, embedders: dict[str, Embedder], service: Service
) -> None:
    """Short, empty, long and odd texts in one batch, and alone, with each of the folder's prompts."""
    options: dict[str, Any] = {"model": name, **({"prompt_name": prompt} if prompt else {})}
    together = service.encode(TEXTS, **options)["data"]
    for text, item in zip(TEXTS, together, strict=True):
        expected = embedders[name].encode(text, prompt)
        (alone,) = service.encode([text], **options)["data"]
        for one in (item, alone):
            assert relative_distance(one["embedding"], expected) <= BOUND


@every
def test_tokens_are_those_of_the_tokenizer(
    name: str, embedders: dict[str, Embedder], service: Service
) -> None:
    """A text ends in the end token, also where it is cut before it."""
    data = answered(post(service, {"inputs": TEXTS, "model": name}, "/tokenize"))["data"]
    for text, item in zip(TEXTS, data, strict=True):
        ids = item["token_ids"]
        assert ids == embedders[name].ids(text)
        assert ids[-1] == 0
        assert item["truncated"] == (len(ids) == LENGTH)


def maps(embedder: Embedder, text: str) -> Any:
    """The attention weights (L, H, N, N) of a text."""
    ids = torch.tensor([embedder.ids(text)])
    with torch.inference_mode():
        output = embedder.model(input_ids=ids, attention_mask=torch.ones_like(ids), output_attentions=True)
    return torch.cat(output.attentions).numpy()


@every
def test_maps_hide_later_keys(name: str, embedders: dict[str, Embedder], service: Service) -> None:
    """Their weights are exactly 0, their scores null in JSON and −∞ in arrays; statistics are of the rest."""
    text = TEXTS[0]
    expected = maps(embedders[name], text)
    hidden = np.broadcast_to(np.triu(np.ones(expected.shape[-2:], bool), 1), expected.shape).copy()
    if name not in ("qwen3", "gemma3-last", "lfm2"):
        hidden[:] = False
    if name.startswith("gemma3"):
        away = np.subtract.outer(*[np.arange(expected.shape[-1])] * 2)
        hidden[[0, 2]] |= abs(away) > (5 if name == "gemma3-last" else 3)
    if name == "embedding-gemma2":
        hidden[0] |= abs(np.subtract.outer(*[np.arange(expected.shape[-1])] * 2)) > 3
    request = {"inputs": text, "model": name, "layers": "all", "heads": "all"}
    (item,) = answered(post(service, request, "/attention"))["data"]
    weights = np.array(item["attention"])
    assert distance(weights, expected) <= BOUND
    assert (weights[hidden] == 0).all()
    (item,) = answered(post(service, {**request, "weights": "score"}, "/attention"))["data"]
    scores = np.array(item["attention"], dtype=object)
    assert all(one is None for one in scores[hidden])
    assert not any(one is None for one in scores[~hidden])
    response = post(service, {**request, "weights": "score"}, "/attention", Accept=NPZ)
    arrays, _ = read_npz(response.content)
    (array,) = (found for found in arrays.values() if found.ndim == 4)
    assert np.isneginf(array[hidden]).all()
    assert np.isfinite(array[~hidden]).all()


BODIES: dict[str, Any] = {
    "/v1/embeddings": lambda name: {"model": name, "input": TEXTS[0]},
    "/tei/embed": lambda name: {"model": name, "inputs": TEXTS[0]},
    "/v2/embed": lambda name: {
        "model": name,
        "texts": [TEXTS[0]],
        "input_type": "search_document",
        "embedding_types": ["float"],
    },
    "/api/embed": lambda name: {"model": name, "input": TEXTS[0]},
}
FOUND: dict[str, Any] = {
    "/v1/embeddings": lambda answer: answer["data"][0]["embedding"],
    "/tei/embed": lambda answer: answer[0],
    "/v2/embed": lambda answer: answer["embeddings"]["float"][0],
    "/api/embed": lambda answer: answer["embeddings"][0],
}


@every
@pytest.mark.parametrize("path", BODIES)
def test_every_protocol_gives_the_vectors(
    path: str, name: str, embedders: dict[str, Embedder], service: Service
) -> None:
    """Those of the native route, whose directions are the reference's."""
    response = post(service, BODIES[path](name), path)
    assert response.status_code == 200, response.text
    expected = embedders[name].encode(TEXTS[0])
    found = np.array(FOUND[path](response.json()))
    assert relative_distance(found / np.linalg.norm(found), expected / np.linalg.norm(expected)) <= BOUND


@every
def test_they_rank_and_are_cut(name: str, embedders: dict[str, Embedder], service: Service) -> None:
    """Texts by the cosine to the query with its prompt; vectors to their first `dimensions`."""
    request = {"model": name, "query": "boy", "texts": TEXTS[:3]}
    results = answered(post(service, request, "/rerank"))["data"]
    query = embedders[name].encode("boy", "query")
    for result in results:
        text = embedders[name].encode(TEXTS[result["index"]])
        cosine = query @ text / np.linalg.norm(query) / np.linalg.norm(text)
        assert abs(result["score"] - cosine) <= BOUND
    cut = {"model": name, "input": TEXTS[0], "dimensions": 16, "encoding_format": "base64"}
    (item,) = answered(post(service, cut, "/v1/embeddings"))["data"]
    first = np.frombuffer(base64.b64decode(item["embedding"]), np.float32)
    expected = embedders[name].encode(TEXTS[0])[:16]
    assert relative_distance(first, expected / np.linalg.norm(expected)) <= BOUND


def test_layers_that_attend_are_listed(service: Service) -> None:
    """Of a model with convolutions, all layers are those; statistics name them, too."""
    (model,) = (one for one in service.http.get("/info").json()["models"] if one["name"] == "lfm2")
    assert (model["layers"], model["attention_layers"]) == (3, [1])
    request = {"inputs": TEXTS[0], "model": "lfm2", "summary": True, "layers": "all"}
    (item,) = answered(post(service, request, "/attention"))["data"]
    assert item["layers"] == [1]


SCALED = {"kind": "heads", "layer": -1, "heads": [0], "scale": 0.0}
HIDDEN = {"kind": "edges", "layers": [1, 0], "heads": "all", "queries": [0], "keys": [0]}
REFUSED: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("/attention", {"layers": [1, -1]}, "invalid-request", "layers.1", "is -1, a layer with a convolution"),
    ("/attention", {"layers": [0]}, "invalid-request", "layers.0", "choose from the attention layers, 1."),
    (
        "/attention",
        {"aggregate": "rollout"},
        "unsupported",
        "aggregate",
        "only layers 1 of this model have attention",
    ),
    ("/encode", {"interventions": [SCALED]}, "invalid-request", "interventions.0.layer", "is -1, a layer wi"),
    ("/encode", {"interventions": [HIDDEN]}, "invalid-request", "interventions.0.layers.1", "is 0, a layer "),
    ("/explain", {"method": "heads"}, "unsupported", "method", "only layers 1 of the model"),
]


@pytest.mark.parametrize(("path", "options", "kind", "field", "said"), REFUSED)
def test_layers_that_do_not_attend_have_no_maps_and_no_heads(
    path: str, options: dict[str, Any], kind: str, field: str, said: str, service: Service
) -> None:
    """The error names the layers that attend."""
    inputs = [["the boy", "a man"]] if path == "/explain" else TEXTS[0]
    response = post(service, {"inputs": inputs, "model": "lfm2", **options}, path)
    assert said in assert_problem(response, 422, kind, field=field)["detail"]


@pytest.mark.parametrize("name", ["lfm2", "embedding-gemma2"])
def test_edges_are_blocked_in_layers_that_attend(
    name: str, embedders: dict[str, Embedder], service: Service
) -> None:
    """As by hooks: a key is hidden from all queries of a head, and in causal order from its own row too."""
    blocked: dict[str, Any] = {"kind": "edges", "layers": [1], "heads": [0, 2], "queries": "all", "keys": [0]}
    request = {"inputs": TEXTS[0], "model": name, "interventions": [blocked]}
    (item,) = answered(post(service, request, "/attention"))["data"]
    ids, written = item["token_ids"], embedders[name]
    change = {**blocked, "queries": range(len(ids))}
    model = Written(written.folder, written.model, takes_segments=False)
    _, expected = run_changed(model, ids, [0] * len(ids), [change])
    assert (expected[-1 if name == "lfm2" else 1, [0, 2], :, 0] == 0).all()
    assert distance(np.array(item["attention"]), expected) <= BOUND


def test_gradients_need_one_place_that_reads_the_embeddings(service: Service) -> None:
    """In EmbeddingGemma 2 every layer reads them."""
    request = {"inputs": [["the boy", "a man"]], "model": "embedding-gemma2", "method": "gradient"}
    document = assert_problem(post(service, request, "/explain"), 422, "unsupported", field="method")
    (model,) = (one for one in service.http.get("/info").json()["models"] if one["name"] == request["model"])
    why = (
        "reads the embeddings" if model["backend"] == "torch" else "runs as an ONNX graph, which computes no"
    )
    assert why in document["detail"]


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    place = tmp_path_factory.mktemp("classifiers")
    return {
        name: write_decoder(place / name, family, architecture="ForSequenceClassification", **config)
        for name, (family, config) in CLASSIFIERS.items()
    }


@pytest.fixture(scope="module", params=["on", pytest.param("off", marks=pytest.mark.thorough)])
def classifying(classifiers: dict[str, Written], request: pytest.FixtureRequest) -> Iterator[Service]:
    models = ",".join(f"{name}={one.folder}" for name, one in classifiers.items())
    with serve(model=models, dtype="float32", native=request.param, threads=1) as started:
        yield started


def logits(written: Written, *texts: str) -> Any:
    """The logits (labels,) that `transformers` computes of a text or a pair, alone."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(written.folder)
    given = tokenizer(*texts, truncation=True, max_length=LENGTH, return_tensors="pt")
    assert given["input_ids"][0, -1] == written.model.config.pad_token_id
    with torch.inference_mode():
        return written.model(**given).logits[0].double()


def test_classifiers_have_the_labels_of_transformers(
    classifiers: dict[str, Written], classifying: Service
) -> None:
    """Of short, empty, long and odd texts in one batch: the token before the end token is pooled."""
    body = {"inputs": TEXTS, "model": "classifies", "raw_scores": True}
    for text, item in zip(TEXTS, answered(post(classifying, body, "/predict"))["data"], strict=True):
        found = {label["label"]: label["score"] for label in item["labels"]}
        expected = logits(classifiers["classifies"], text)
        assert distance(np.array([found[f"LABEL_{i}"] for i in range(3)]), expected.numpy()) <= BOUND


@pytest.mark.parametrize("path", ["/rerank", "/v2/rerank", "/tei/rerank"])
def test_one_label_ranks(path: str, classifiers: dict[str, Written], classifying: Service) -> None:
    """By the sigmoid of the logit of each pair."""
    field = "documents" if path.startswith("/v2") else "texts"
    answer: Any = answered(post(classifying, {"model": "ranks", "query": "boy", field: TEXTS}, path))
    items = answer if isinstance(answer, list) else answer.get("data", answer.get("results"))
    assert len(items) == len(TEXTS)
    for item in items:
        expected = torch.sigmoid(logits(classifiers["ranks"], "boy", TEXTS[item["index"]]))
        assert abs(item.get("score", item.get("relevance_score")) - float(expected)) <= BOUND


def test_gradients_of_a_label_are_those_of_its_token(
    classifiers: dict[str, Written], classifying: Service
) -> None:
    """The score is the logit of the token before the end token, and the gradients add up to it."""
    body = {"inputs": TEXTS[:1], "model": "classifies", "method": "gradient", "target": {"label": "LABEL_1"}}
    (item,) = answered(post(classifying, body, "/explain"))["data"]
    assert abs(item["score"] - float(logits(classifiers["classifies"], TEXTS[0])[1])) <= BOUND
    assert abs(item["residual"]) < 0.01 * np.abs(item["attributions"]).sum()
