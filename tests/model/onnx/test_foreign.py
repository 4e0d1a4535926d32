"""A graph of another exporter serves its last hidden state, and says of all else how it is to be had."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import Tensor
from torch.export import Dim

from model.contract import Batch, SentenceWant, Want
from model.errors import CheckpointError
from model.loading import load_model
from model.onnx import names as graph
from model.onnx.backend import OnnxBackend
from model.onnx.session import Graph, choose_processor
from tests.references.checkpoints import write_bert
from tests.references.comparing import relative_distance
from tests.support.product import run
from tests.support.serving import Service, answered, assert_problem, post, serve

pytestmark = pytest.mark.thorough

INPUTS = (graph.INPUT_IDS, graph.ATTENTION_MASK, graph.TOKEN_TYPE_IDS)
TEXTS = ["a", "the man beats the boy", "", "hello world. " * 12, "boy"]


class LastState(torch.nn.Module):
    """What of a model other exporters trace."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> Any:
        return self.model(input_ids=ids, attention_mask=mask, token_type_ids=segments).last_hidden_state


class OwnVector(LastState):
    """What is traced of an encoder of sentences: the first token's state, at unit length, and all."""

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> Any:
        states = super().forward(ids, mask, segments)
        return states, torch.nn.functional.normalize(states[:, 0])


class OddVector(LastState):
    """A vector that no pooling makes."""

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> Any:
        states = super().forward(ids, mask, segments)
        return states, states[:, 0] + states[:, -1]


def write_foreign(
    folder: Path,
    inputs: int,
    *outputs: str,
    kind: type[LastState] = LastState,
    dtype: torch.dtype = torch.int64,
) -> None:
    """Save a small BERT, and beside it onnx/model.onnx with the first so many inputs."""
    model = kind(write_bert(folder)).eval()
    (folder / "onnx").mkdir()
    axes = {0: Dim("batch"), 1: Dim("length")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer's own
        torch.onnx.export(
            model,
            tuple(torch.full((2, 7), fill, dtype=dtype) for fill in (5, 1, 0))[:inputs],
            folder / "onnx/model.onnx",
            dynamo=True,
            input_names=INPUTS[:inputs],
            output_names=outputs,
            dynamic_shapes=(axes,) * inputs,
            verbose=False,
        )


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as sentence-transformers publishes it: safetensors, and onnx/model.onnx beside them."""
    folder = tmp_path_factory.mktemp("foreign") / "published"
    write_foreign(folder, 3, "last_hidden_state")
    return folder


@pytest.fixture(scope="module")
def terse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph that takes no segments, gives another name to its output, and tells no shape of it."""
    folder = tmp_path_factory.mktemp("foreign") / "terse"
    write_foreign(folder, 2, "token_embeddings")
    path = folder / "onnx/model.onnx"
    model = onnx.load(path, load_external_data=False)
    made, (output,) = model.graph, model.graph.output
    for node in made.node:
        node.output[:] = ["states" if name == output.name else name for name in node.output]
    # Reshaped to its own shape, in a way that nobody can tell before it is run.
    made.initializer.append(numpy_helper.from_array(np.ones(3, bool), "all"))
    made.node.append(helper.make_node("Shape", ["states"], ["shape"]))
    made.node.append(helper.make_node("Compress", ["shape", "all"], ["same"]))
    made.node.append(helper.make_node("Reshape", ["states", "same"], [output.name]))
    output.type.tensor_type.ClearField("shape")
    path.write_bytes(model.SerializeToString())
    assert Graph(path, choose_processor("cpu"), 1).outputs[output.name].shape == []
    return folder


@pytest.fixture(scope="module")
def services(published: Path, terse: Path) -> Iterator[Service]:
    """Both, the first also by the path of its graph."""
    models = f"published={published},named={published}/onnx/model.onnx,terse={terse}"
    with serve(model=models, backend="onnx", threads=1) as service:
        yield service


def expected(folder: Path, texts: list[str]) -> list[tuple[Any, Any]]:
    """What PyTorch makes of texts: sentence vectors, and the last hidden states."""
    tokenizer, backend = load_model(str(folder), kind="torch", device="cpu", dtype="float32")
    want = Want(SentenceWant(layers=(2,)), token_layers=(2,))
    outputs = run(backend, tokenizer.encode(texts), [want] * len(texts))
    return [(output.sentence, output.tokens) for output in outputs]


@pytest.mark.parametrize("name", ["published", "named", "terse"])
def test_the_last_hidden_state_is_served(services: Service, published: Path, terse: Path, name: str) -> None:
    """Vectors and states of short and long texts together, as PyTorch computes them: padding is masked."""
    answer = services.encode(TEXTS, model=name, outputs=["sentence", "tokens"])
    folder = terse if name == "terse" else published
    for got, (sentence, tokens) in zip(answer["data"], expected(folder, TEXTS), strict=True):
        assert relative_distance(got["embedding"], sentence) <= 1e-4
        assert relative_distance(got["token_embeddings"], tokens) <= 1e-4


def test_the_last_layer_may_be_asked_for_by_its_number(services: Service) -> None:
    """It is the same as -1, repeats included."""
    plain, numbered = (
        services.encode("the boy", model="published", outputs=["tokens"], layers=layers)["data"][0]
        for layers in ([-1, -1], [2, -1])
    )
    assert plain == numbered


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/encode", {"outputs": ["tokens"], "layers": [0]}, "layers"),
        ("/encode", {"outputs": ["tokens"], "layers": [-1, 1]}, "layers"),
        ("/encode", {"pooling_layers": [1]}, "pooling_layers"),
        ("/attention", {}, "model"),
        ("/attention", {"layers": [0], "summary": True, "maps": False}, "model"),
    ],
)
def test_what_it_does_not_give_is_refused(
    services: Service, path: str, body: dict[str, Any], field: str
) -> None:
    """A 422 that says how to have it."""
    response = post(services, {"inputs": "a text", "model": "published", **body}, path)
    problem = assert_problem(response, 422, "unsupported", field=field)
    assert (
        "export the model's weights with `headlight export MODEL FOLDER`, and serve FOLDER."
        in problem["detail"]
    )


def test_the_service_says_what_such_a_model_can(services: Service) -> None:
    """/info has no attention for it, and what runs it."""
    for model in answered(services.http.get("/info"))["models"]:
        assert model["attention"] is False
        assert model["backend"] == "onnx"


def test_a_text_alone_is_the_same_in_any_batch(published: Path) -> None:
    """Whatever it is padded to; pairs keep their segments."""
    tokenizer, backend = load_model(str(published), kind="onnx", device="cpu")
    assert isinstance(backend, OnnxBackend)
    assert not backend.info.exposes_attention
    encodings = tokenizer.encode([*TEXTS, ("the man", "a boy"), ("", "hello")])
    wants = [Want(SentenceWant(("mean", "max"), layers=(2,)), token_layers=(2,))] * len(encodings)
    for encoding, want, output in zip(encodings, wants, run(backend, encodings, wants), strict=True):
        (alone,) = backend.run(Batch.pack([encoding], [want]))
        assert relative_distance(output.sentence, alone.sentence) <= 2e-6
        assert relative_distance(output.tokens, alone.tokens) <= 2e-6
    _, torch_backend = load_model(str(published), kind="torch", device="cpu", dtype="float32")
    theirs = run(torch_backend, encodings, wants)
    for one, other in zip(run(backend, encodings, wants), theirs, strict=True):
        assert relative_distance(one.tokens, other.tokens) <= 1e-4


def test_without_segments_all_tokens_are_of_the_first(terse: Path) -> None:
    """The second text of a pair is then read like the first, as the graph was traced."""
    tokenizer, backend = load_model(str(terse), kind="onnx", device="cpu")
    (pair,) = tokenizer.encode([("the man", "a boy")])
    batch = Batch.pack([pair], [Want(token_layers=(2,))])
    (ours,) = backend.run(batch)
    first = Batch(batch.input_ids, np.zeros_like(batch.segment_ids), batch.cu_seqlens, batch.wants)
    _, torch_backend = load_model(str(terse), kind="torch", device="cpu", dtype="float32")
    (theirs,) = torch_backend.run(first)
    assert relative_distance(ours.tokens, theirs.tokens) <= 1e-4


def test_a_graph_that_pools_by_itself_is_followed(tmp_path: Path) -> None:
    """It runs where there are no weights, and takes int32; the pooling is that of its vectors."""
    folder = tmp_path / "pooling"
    write_foreign(folder, 3, "token_embeddings", graph.SENTENCE, kind=OwnVector, dtype=torch.int32)
    tokenizer, whole = load_model(str(folder), kind="torch", device="cpu", dtype="float32")
    (folder / "model.safetensors").unlink()
    (folder / "onnx/model.onnx").rename(folder / "onnx/model_quantized.onnx")
    _, backend = load_model(str(folder), device="cpu")
    assert (backend.info.backend, backend.info.dtype) == ("onnx", "float32")
    assert (backend.info.pooling, backend.info.normalize) == (("cls",), True)
    encodings = tokenizer.encode(TEXTS)
    want = Want(SentenceWant(("cls",), (2,), normalize=True))
    wants = [want] * len(TEXTS)
    for one, other in zip(run(backend, encodings, wants), run(whole, encodings, wants), strict=True):
        assert relative_distance(one.sentence, other.sentence) <= 1e-4


def test_a_vector_that_no_pooling_makes_ends_the_start(tmp_path: Path) -> None:
    """Other vectors than the graph's would be wrong."""
    write_foreign(tmp_path / "odd", 2, "token_embeddings", graph.SENTENCE, kind=OddVector)
    with pytest.raises(
        CheckpointError, match=r"returns sentence_embedding, which matches no pooling of its hidden"
    ):
        load_model(str(tmp_path / "odd"), kind="onnx", device="cpu")


def test_memory_is_given_back_in_between(published: Path) -> None:
    """Such a graph runs a token for it, too, and answers as before."""
    tokenizer, backend = load_model(str(published), kind="onnx", device="cpu")
    encodings, wants = tokenizer.encode(TEXTS), [Want(token_layers=(2,))] * len(TEXTS)
    before = run(backend, encodings, wants)
    backend.trim_memory()
    for one, other in zip(run(backend, encodings, wants), before, strict=True):
        assert relative_distance(one.tokens, other.tokens) <= 2e-6
