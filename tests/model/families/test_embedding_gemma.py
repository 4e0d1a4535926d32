"""EmbeddingGemma 2, against `transformers`."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from export.contents import add_projection, copy_contents
from export.errors import ExportError
from export.precision import PRECISIONS, Dtype
from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.folder import read_folder
from model.contract import AttentionWant, Backend, Encoding, SentenceWant, Want
from model.errors import CheckpointError
from model.families.decoders.embedding_gemma import read_text, read_whole
from model.onnx.backend import OnnxBackend
from model.onnx.file import GRAPH, OnnxFile
from model.pytorch.backend import TorchBackend
from model.tokenization.tokenizer import TextTokenizer
from tests.model.onnx.test_changes import written as with_interventions
from tests.model.test_interventions import check as check_changed
from tests.references.comparing import distance, relative_distance
from tests.references.embedding_gemma import TextModel, write_text
from tests.references.interventions import run_changed
from tests.support.backends import load_checkpoint_as, torch_or_graph
from tests.support.families import (
    AS_A_GRAPH,
    EXACT,
    SIZES,
    check,
    check_onnx,
    check_torch,
    cosine,
    every_option,
    sample,
)
from tests.support.product import run

GEMMA2: dict[str, Any] = {
    **SIZES,
    "num_key_value_heads": 3,
    "head_dim": 16,
    "global_head_dim": 24,
    "num_global_key_value_heads": 1,
    "hidden_size_per_layer_input": 8,
    "embedding_dim": 30,
    "sliding_window": 3,
    "layer_types": ["sliding_attention", "full_attention", "full_attention"],
}
KEYS = {"num_key_value_heads": 1}
SCALED = {
    "full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "biases": {"attention_bias": True},
    "kinds by a pattern": {"layer_types": None, "sliding_window_pattern": 3},
    "other angles": {"rope_parameters": SCALED},
    "sizes by layer": {"per_layer_config": {0: {"head_dim": 8}, 1: KEYS, 2: KEYS}},
    "silu": {"hidden_activation": "silu"},
    "coarse norms": {"rms_norm_eps": 0.1},
}


@every_option(OPTIONS, 3)
def test_every_option_of_embedding_gemma_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, alone and beside others."""
    check_torch(write_text(tmp_path, **{**GEMMA2, **options}))


TEXTS = ["the man beats the boy", "a", "hello world " * 9]


def vector_of(written: TextModel, text: Encoding) -> Any:
    """The mean of what the model makes of each token."""
    with torch.inference_mode():
        found = written.model(torch.tensor([text.token_ids])).last_hidden_state[0]
    return found.double().mean(0).numpy()


def check_vectors(backend: Backend, written: TextModel, tokenizer: TextTokenizer, bound: float) -> None:
    """Those of texts in one batch."""
    want, texts = Want(SentenceWant(("mean",), (backend.info.layers,))), tokenizer.encode(TEXTS)
    for text, output in zip(texts, run(backend, texts, [want] * len(texts)), strict=True):
        assert relative_distance(output.sentence, vector_of(written, text)) <= bound


@pytest.mark.parametrize("whole", [False, True])
def test_vectors_are_those_of_the_projection(whole: bool, tmp_path: Path) -> None:
    """Of every token, pooled; also of a model for images and sounds, of which a part is served."""
    written = write_text(tmp_path, **GEMMA2)
    if whole:
        config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
        towers = {"vision_config": {}, "audio_config": {}, "image_token_id": 99}
        nested = {"model_type": "embedding_gemma2", "architectures": ["EmbeddingGemma2Model"], **towers}
        (tmp_path / "config.json").write_text(json.dumps({**nested, "text_config": config}), encoding="utf-8")
        tensors = load_file(tmp_path / "model.safetensors")
        others = {
            "embed_vision.embedding_projection.weight": torch.ones(48, 7),
            "audio_tower.a": torch.ones(2),
        }
        renamed = {f"model.language_model.{name}": tensor for name, tensor in tensors.items()}
        save_file({**renamed, **others}, tmp_path / "model.safetensors")
    checkpoint = load_checkpoint(tmp_path, strict=True)
    backend = TorchBackend(checkpoint, device="cpu", dtype="float32")
    info = backend.info
    assert (info.sentence_size, info.hidden_size, info.pooling) == (30, 48, ("mean",))
    check_vectors(backend, written, checkpoint.tokenizer, EXACT)


@torch_or_graph
def test_interventions_are_those_of_hooks(backend: str, tmp_path: Path) -> None:
    """What layers get of the embeddings is that before hidden state 0 is changed."""
    folder = tmp_path / "model"
    written = write_text(folder, **GEMMA2)
    written.model.embedding_projection = torch.nn.Identity()
    if backend == "onnx":
        graph = with_interventions(folder, tmp_path / "graph")
        assert graph.info.interventions == ("heads", "edges")
        check_changed(graph, partial(run_changed, written), AS_A_GRAPH)
    else:
        loaded = TorchBackend(load_checkpoint(folder), device="cpu", dtype="float32")
        check_changed(loaded, partial(run_changed, written))


def test_gradients_are_refused(tmp_path: Path) -> None:
    """By the service, which the model tells."""
    written = write_text(tmp_path / "model", **GEMMA2)
    assert not TorchBackend(load_checkpoint(written.folder), device="cpu").info.differentiable


GRAPHS: dict[str, dict[str, Any]] = {
    "plain": {},
    **{name: OPTIONS[name] for name in ("biases", "other angles", "sizes by layer")},
}


@every_option(GRAPHS, quick=0)
def test_it_runs_as_a_graph(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, whose heads differ in size, alone and beside others."""
    written = write_text(tmp_path / "model", **{**GEMMA2, **options})
    _, backend = load_checkpoint_as("onnx", written.folder)
    check(backend, written, sample(), AS_A_GRAPH)
    check_vectors(backend, written, load_checkpoint(written.folder).tokenizer, AS_A_GRAPH)


@pytest.mark.repeated
def test_its_export_compares_every_quantity(tmp_path: Path) -> None:
    """Of maps, scores, value norms, statistics and interventions."""
    check_onnx(write_text(tmp_path / "model", **GEMMA2), tmp_path / "graph")


@pytest.mark.repeated
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_lower_precisions_keep_its_vectors(dtype: Dtype, tmp_path: Path) -> None:
    """In the direction that the bounds of the export name; and maps."""
    written = write_text(tmp_path / "model", **GEMMA2)
    place, checkpoint = tmp_path / "graph", load_checkpoint(written.folder)
    place.mkdir()
    PRECISIONS[dtype].write(checkpoint.encoder, place, {}, "any")
    copy_contents(written.folder, checkpoint.folder.layout, place)
    add_projection(checkpoint.folder, place)
    backend = OnnxBackend(read_folder(place, graph=True), OnnxFile(place / GRAPH, place), device="cpu")
    bounds, texts = PRECISIONS[dtype].bounds["texts"], checkpoint.tokenizer.encode(TEXTS)
    vectors = run(backend, texts, [Want(SentenceWant(("mean",), (backend.info.layers,)))] * len(texts))
    maps = run(backend, texts, [Want(attention=AttentionWant((0, 1, 2), (0, 1, 2)))] * len(texts))
    for text, vector, map_ in zip(texts, vectors, maps, strict=True):
        _, expected = written.run(text.token_ids, text.segment_ids)
        assert distance(map_.attention, expected) <= bounds["attention"]
        assert vector.sentence is not None
        assert (
            cosine(vector.sentence.astype(np.float64), vector_of(written, text))
            >= 1 - bounds["1 - sentence cosine"]
        )


MODULES = [{"path": "", "type": "sentence_transformers.models.Transformer"}]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("modules.json", MODULES, "has a projection, but no Pooling in modules.json: add a Pooling"),
        (
            "sentence_bert_config.json",
            {},
            "no modules.json, without which sentence_bert_config.json cannot be read",
        ),
    ],
)
def test_modules_that_have_no_place_for_the_projection(
    file: str, content: Any, said: str, tmp_path: Path
) -> None:
    """Are refused, with the way out."""
    folder = write_text(tmp_path / "model", **GEMMA2).folder
    (folder / file).write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "graph").mkdir()
    checkpoint = load_checkpoint(folder)
    copy_contents(folder, checkpoint.folder.layout, tmp_path / "graph")
    with pytest.raises(ExportError, match=said):
        add_projection(checkpoint.folder, tmp_path / "graph")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"layer_types": ["sliding_attention"] * 3},
            'layer_types ends in "sliding_attention"; the l',
        ),
        ({"layer_types": ["chunked_attention"] * 3}, 'layer_types has "chunked_attention"; a kind is "full'),
        ({"per_layer_config": {"7": {}}}, "it must map layer numbers, from 0 to 2, to objects"),
        ({"per_layer_config": {"1": {"sliding_window": 9}}}, "per_layer_config of layer 1 is {'sliding_wind"),
        ({"per_layer_config": {"1": {"head_dim": 0}}}, "head_dim is 0; it must be at least 1"),
        ({"per_layer_config": {"1": {"num_key_value_heads": 2}}}, "num_heads 3 is not a multiple of num_kv_"),
        ({"hidden_size_per_layer_input": 0}, "hidden_size_per_layer_input is 0; it must be at least 1"),
        ({"sliding_window": 0}, "sliding_window is 0; it must be at least 1"),
        ({"hidden_activation": "xielu"}, 'hidden_activation "xielu" is not one of gelu'),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, 'rope_type "yarn" is not supported'),
    ],
)
def test_what_is_not_supported_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    """With the field, its value and what is."""
    config = json.loads((write_text(tmp_path, **GEMMA2).folder / "config.json").read_text(encoding="utf-8"))
    with pytest.raises(CheckpointError) as refused:
        read_text({**config, **change})
    assert said in str(refused.value)
    with pytest.raises(CheckpointError, match="text_config is None; it must be an object"):
        read_whole({"text_config": None})
