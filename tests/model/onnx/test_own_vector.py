"""A graph that returns the vector of a text alone is served as it pools, and says what it does not have."""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model.contract import Batch, SentenceWant, Want
from model.errors import CheckpointError
from model.loading import load_model
from model.onnx import names as graph
from tests.model.checkpoints.test_layout import write
from tests.model.checkpoints.test_modules import Module, write_modules
from tests.model.onnx.test_foreign import TEXTS, LastState, write_foreign
from tests.references.autoencoder import write_csr
from tests.references.comparing import relative_distance
from tests.support.product import run
from tests.support.serving import Service, answered, assert_problem, post, serve

pytestmark = pytest.mark.thorough

PIPELINES: dict[str, tuple[torch.dtype, tuple[str, ...], dict[str, Any]]] = {
    "int64": (torch.int64, ("Normalize",), {}),
    "int32": (torch.int32, ("Dense", "Normalize"), {}),
    "plain": (torch.int64, (), {}),
    "cut": (torch.int32, ("Normalize",), {"truncate_dim": 8}),
}
"""Types of tokens, modules after the pooling, and keys of config_sentence_transformers.json."""


class Whole(LastState):
    """All modules of sentence-transformers in one graph, as `optimum` traces them: a mean, then `after`."""

    def __init__(self, model: Any, after: Module) -> None:
        super().__init__(model)
        self.after = after

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> Any:
        states = super().forward(ids, mask, segments)
        weights = mask.to(states.dtype)[..., None]
        return self.after((states * weights).sum(1) / weights.sum(1))


def write_whole(
    folder: Path,
    dtype: torch.dtype,
    *kinds: str,
    traced: Callable[[Module], Module] = lambda x: x,
    **general: Any,
) -> None:
    """Save a folder of sentence-transformers and a graph of all that its modules do.

    `traced` is what the graph does in their place.
    """
    folder.mkdir()
    after = write_modules(folder, "Transformer", "Pooling", *kinds)
    kind: Any = partial(Whole, after=traced(after))
    write_foreign(folder, 3, graph.SENTENCE, kind=kind, dtype=dtype)
    write(folder, "config_sentence_transformers.json", general)


def expected(folder: Path, texts: list[Any]) -> list[Any]:
    """What PyTorch makes of texts with the modules of a folder."""
    tokenizer, backend = load_model(str(folder), kind="torch", device="cpu", dtype="float32")
    want = Want(SentenceWant(backend.info.pooling, (2,), backend.info.normalize))
    return [output.sentence for output in run(backend, tokenizer.encode(texts), [want] * len(texts))]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each of PIPELINES."""
    place = tmp_path_factory.mktemp("alone")
    for name, (dtype, kinds, general) in PIPELINES.items():
        write_whole(place / name, dtype, *kinds, **general)
    return {name: place / name for name in PIPELINES}


@pytest.fixture(scope="module")
def service(folders: dict[str, Path]) -> Iterator[Service]:
    """All of them."""
    models = ",".join(f"{name}={folder}" for name, folder in folders.items())
    with serve(model=models, backend="onnx", threads=1) as service:
        yield service


@pytest.mark.parametrize("name", PIPELINES)
def test_its_vectors_are_those_of_the_modules(service: Service, folders: dict[str, Path], name: str) -> None:
    """Short and long texts together, and pairs, as PyTorch and the modules make them."""
    data = service.encode(TEXTS, model=name)["data"]
    for got, vector in zip(data, expected(folders[name], TEXTS), strict=True):
        assert relative_distance(got["embedding"], vector) <= 1e-4
    (scaled,) = service.encode(TEXTS[1], model=name, dimensions=4, normalize=True)["data"]
    first = torch.tensor(expected(folders[name], TEXTS)[1][:4])
    assert relative_distance(scaled["embedding"], first / first.norm()) <= 1e-4


@pytest.mark.parametrize("name", PIPELINES)
def test_info_says_what_it_has(service: Service, name: str) -> None:
    """No attention and no vectors of tokens; the pooling and the size are those of the modules."""
    models = {model["name"]: model for model in answered(service.http.get("/info"))["models"]}
    model, (_, kinds, general) = models[name], PIPELINES[name]
    assert (model["attention"], model["token_embeddings"], model["pooling"]) == (False, False, ["mean"])
    size = 24 if "Dense" in kinds else 32
    assert model["sentence_size"] == general.get("truncate_dim", size)
    assert model["normalize"] is ("Normalize" in kinds and not general)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/encode", {"outputs": ["tokens"]}, "outputs"),
        ("/encode", {"outputs": ["sentence", "tokens"], "layers": [0]}, "outputs"),
        ("/encode", {"outputs": [], "chunks": "sentences"}, "chunks"),
        ("/encode", {"pooling": "cls"}, "pooling"),
        ("/encode", {"pooling_layers": [1]}, "pooling_layers"),
        ("/encode", {"pooling_layers": [-1, -1]}, "pooling_layers"),
        ("/encode", {"normalize": False}, "normalize"),
        ("/attention", {}, "model"),
        ("/attention", {"layers": [0], "summary": True, "maps": False}, "model"),
    ],
)
def test_what_needs_vectors_of_tokens_is_refused(
    service: Service, path: str, body: dict[str, Any], field: str
) -> None:
    """A 422 that names the field and says how to have it."""
    response = post(service, {"inputs": "a text", "model": "int64", **body}, path)
    problem = assert_problem(response, 422, "unsupported", field=field)
    assert "This model runs as an ONNX graph that returns" in problem["detail"]
    assert "`headlight export MODEL FOLDER`" in problem["detail"]


def test_other_routes_serve_its_vectors(service: Service, folders: dict[str, Path]) -> None:
    """OpenAI's and text-embeddings-inference's."""
    vector = expected(folders["int64"], TEXTS)[1]
    text = TEXTS[1]
    openai = answered(post(service, {"input": text, "model": "int64"}, "/v1/embeddings"))
    (tei,) = answered(post(service, {"inputs": text}, "/embed"))
    for found in (openai["data"][0]["embedding"], tei):
        assert relative_distance(found, vector) <= 1e-4
    assert service.encode(text, model="int64", pooling="mean")["data"][0]["embedding"] == pytest.approx(
        vector.tolist(), abs=1e-5
    )


def test_vectors_of_tokens_are_refused_to_other_clients(service: Service) -> None:
    """In their form of errors."""
    response = post(service, {"inputs": "a text"}, "/embed_all")
    assert response.status_code == 424
    assert "token vectors are requested" in response.json()["error"]


def test_a_text_alone_is_the_same_in_any_batch(folders: dict[str, Path]) -> None:
    """Whatever it is padded to; pairs keep their segments."""
    tokenizer, backend = load_model(str(folders["int32"]), kind="onnx", device="cpu")
    encodings = tokenizer.encode([*TEXTS, ("the man", "a boy")])
    want = Want(SentenceWant(("mean",), (2,), normalize=True))
    for encoding, output in zip(encodings, run(backend, encodings, [want] * len(encodings)), strict=True):
        (alone,) = backend.run(Batch.pack([encoding], [want]))
        assert relative_distance(output.sentence, alone.sentence) <= 2e-6


def test_without_modules_its_pooling_is_not_told(tmp_path: Path) -> None:
    """Of a folder without weights, too: it is the graph's own, whose unit length is found."""
    folder = tmp_path / "bare"
    write_whole(folder, torch.int32, "Normalize")
    vectors = expected(folder, TEXTS)
    for name in ("modules.json", "config_sentence_transformers.json", "model.safetensors"):
        (folder / name).unlink()
    with serve(model=folder, threads=1) as service:
        info = answered(service.http.get("/info"))
        assert info["model_type"] == {"embedding": {"pooling": "sentence_embedding"}}
        (model,) = info["models"]
        assert (model["pooling"], model["normalize"], model["sentence_size"]) == ([], True, 32)
        for got, vector in zip(service.encode(TEXTS)["data"], vectors, strict=True):
            assert relative_distance(got["embedding"], vector) <= 1e-4
        response = post(service, {"inputs": "a", "pooling": "mean"})
        assert 'pooling is "mean"' in assert_problem(response, 422, "unsupported", field="pooling")["detail"]


def test_a_normalize_that_the_graph_leaves_out_is_applied(tmp_path: Path) -> None:
    """The one module that may be applied again."""
    write_whole(tmp_path / "left", torch.int64, "Normalize", traced=lambda _: lambda x: 3 * x)
    tokenizer, backend = load_model(str(tmp_path / "left"), kind="onnx", device="cpu")
    want = Want(SentenceWant(backend.info.pooling, (2,), backend.info.normalize))
    outputs = run(backend, tokenizer.encode(TEXTS), [want] * len(TEXTS))
    for output, vector in zip(outputs, expected(tmp_path / "left", TEXTS), strict=True):
        assert relative_distance(output.sentence, vector) <= 1e-4


@pytest.mark.parametrize(
    ("kinds", "traced", "config", "said"),
    [
        (("Dense",), lambda _: lambda x: x, {}, r"with the shape \(32,\), but .* makes vectors of 24 comp"),
        (("LayerNorm", "Normalize"), lambda _: lambda x: 3 * x, {}, "without the Normalize of "),
        ((), lambda x: x, {"include_prompt": False}, "has include_prompt false"),
    ],
)
def test_a_graph_without_some_of_the_modules_ends_the_start(
    tmp_path: Path, kinds: tuple[str, ...], traced: Any, config: dict[str, Any], said: str
) -> None:
    """Its vectors would be others than the model's."""
    folder = tmp_path / "part"
    write_whole(folder, torch.int64, *kinds, traced=traced)
    file = folder / "1_Pooling/config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    with pytest.raises(CheckpointError, match=said) as error:
        load_model(str(folder), kind="onnx", device="cpu")
    assert "`headlight export MODEL FOLDER`" in str(error.value)


def test_a_graph_of_vectors_alone_makes_no_features(tmp_path: Path) -> None:
    """A SparseAutoEncoder takes what its model pools, which such a graph may have changed."""
    folder = tmp_path / "graph"
    write_whole(folder, torch.int64, "Normalize")
    shutil.copytree(write_csr(tmp_path / "csr").folder, folder, dirs_exist_ok=True)
    with pytest.raises(CheckpointError, match="has a SparseAutoEncoder, which takes") as error:
        load_model(str(folder), kind="onnx", device="cpu")
    assert "`headlight export MODEL FOLDER`" in str(error.value)
