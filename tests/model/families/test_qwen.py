"""Qwen3 and Qwen2, against `transformers`."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from export.contents import copy_contents
from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.folder import read_folder
from model.contract import SentenceWant, Want
from model.errors import CheckpointError
from model.families.decoders.qwen import read_qwen3
from model.pytorch.backend import TorchBackend
from tests.references.comparing import relative_distance
from tests.references.decoders import Embedder, write_decoder, write_embedder
from tests.references.families import change_config, write_model
from tests.support.backends import load_checkpoint_as
from tests.support.families import EXACT, SIZES, check_onnx, check_torch, every_option
from tests.support.product import run

QWEN3_SIZES: dict[str, Any] = {**SIZES, "num_key_value_heads": 3, "head_dim": 16}
WINDOWS = {"use_sliding_window": True, "sliding_window": 5}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "wide heads, shared keys": {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24},
    "one key for all": {"num_key_value_heads": 1},
    "bidirectional": {"is_causal": False},
    "windows": {**WINDOWS, "max_window_layers": 1},
    "windows, kinds listed": {
        **WINDOWS,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "bidirectional, with windows": {**WINDOWS, "max_window_layers": 1, "is_causal": False},
    "another base": {"rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}},
}


@every_option(OPTIONS, 6)
def test_every_option_of_qwen3_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "Qwen3", **{**QWEN3_SIZES, **options}))


def write_rounding(folder: Path) -> Embedder:
    """A small pplx-embed: no order, the mean, and a module of its own that rounds it."""
    written = write_decoder(folder, "Qwen3", head_dim=24, is_causal=False)
    embedder = write_embedder(written, "mean")
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))[:2]
    own = {"path": "", "type": "st_quantize.FlexibleQuantizer", "kwargs": ["quantization"]}
    (folder / "modules.json").write_text(json.dumps([*modules, {"idx": 2, "name": "2", **own}]))
    change_config(
        folder,
        model_type="bidirectional_pplx_qwen3",
        architectures=["PPLXQwen3Model"],
        auto_map={"AutoConfig": "configuration.PPLXQwen3Config", "AutoModel": "modeling.PPLXQwen3Model"},
        is_causal=None,
        use_bidirectional_attention=True,
    )
    return replace(embedder, finish=lambda vector: np.tanh(vector) * 127)


def test_vectors_are_rounded_where_the_folder_says(tmp_path: Path) -> None:
    """To tanh · 127, without unit length, and only then."""
    embedder = write_rounding(tmp_path)
    checkpoint = load_checkpoint(tmp_path, strict=True)
    backend = TorchBackend(checkpoint, device="cpu", dtype="float32")
    info = backend.info
    assert (info.family, info.pooling, info.normalize) == ("bidirectional_pplx_qwen3", ("mean",), False)
    want = Want(SentenceWant(info.pooling, (info.layers,), info.normalize))
    texts = ["the man beats the boy", "a", "hello world " * 9]
    outputs = run(backend, checkpoint.tokenizer.encode(texts), [want] * len(texts))
    for text, output in zip(texts, outputs, strict=True):
        expected, vector = embedder.encode(text), output.sentence
        assert vector is not None
        assert (vector == np.round(vector)).all()
        certain = np.abs(expected % 1 - 0.5) > 1e-3
        assert certain.mean() > 0.9
        assert (vector == np.round(expected))[certain].all()


def write_projected(folder: Path) -> Embedder:
    """A small voyage-4-nano: no order, and a matrix among the weights that projects every token."""
    written = write_decoder(folder, "Qwen3", architecture="ForCausalLM", head_dim=24, is_causal=False)
    embedder = write_embedder(written, "mean", truncate=50)
    file = folder / "model.safetensors"
    matrix = torch.randn(96, 48, generator=torch.Generator().manual_seed(2))
    save_file({**load_file(file), "linear.weight": matrix}, file)
    change_config(folder, is_causal=None, use_bidirectional_attention=True, num_labels=96)
    return replace(embedder, model=written.model.model, dense=(matrix.double().numpy(),))


@pytest.mark.parametrize("graph", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_projection_among_the_weights_comes_before_the_other_modules(graph: bool, tmp_path: Path) -> None:
    """Vectors have its size; hidden states of tokens keep that of the encoder."""
    embedder = write_projected(tmp_path / "model")
    tokenizer, backend = load_checkpoint_as("onnx" if graph else "torch", tmp_path / "model")
    info = backend.info
    assert (info.sentence_size, info.hidden_size) == (50, 48)
    want = Want(SentenceWant(info.pooling, (info.layers,), info.normalize), token_layers=(info.layers,))
    texts = ["the man beats the boy", "a", "hello world " * 9]
    for text, output in zip(texts, run(backend, tokenizer.encode(texts), [want] * 3), strict=True):
        assert relative_distance(output.sentence, embedder.encode(text)) <= EXACT
        assert output.tokens is not None
        assert output.tokens.shape[-1] == 48


def test_a_projection_after_another_pooling_is_refused(tmp_path: Path) -> None:
    """The largest of projected tokens are not the projection of the largest."""
    write_projected(tmp_path)
    pooling = {"embedding_dimension": 96, "pooling_mode": "max"}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    with pytest.raises(
        CheckpointError,
        match=r"linear\.weight projects every token, .* other than max, here max, and without",
    ):
        load_checkpoint(tmp_path)


def test_a_module_without_a_folder_leaves_an_export_whole(tmp_path: Path) -> None:
    """Its path is that of the transformer, whose weights are not copied and whose other files are."""
    write_rounding(tmp_path / "model")
    folder = read_folder(tmp_path / "model")
    copy_contents(folder.path, folder.layout, tmp_path / "graph")
    copied = {file.name for file in (tmp_path / "graph").iterdir()}
    assert {"modules.json", "config_sentence_transformers.json", "config.json", "1_Pooling"} <= copied
    assert "model.safetensors" not in copied


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layer_types": ["linear_attention"] * 3}, 'layer_types has "linear_attention"; a kind is "full_'),
        ({"layer_types": ["sliding_attention"] * 3}, 'layer_types has "sliding_attention", but use_sliding_'),
        (
            {**WINDOWS, "max_window_layers": 0, "use_bidirectional_attention": True},
            "set sliding_window to nu",
        ),
        ({**WINDOWS, "max_window_layers": 0, "sliding_window": 1}, "sliding_window is 1; it must be at leas"),
        ({"rope_scaling": {"type": "dynamic"}}, 'rope_type "dynamic" is not supported; the supported ones'),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5; in this family"),
        ({"num_key_value_heads": 2}, "num_heads 3 is not a multiple of num_kv_heads 2"),
    ],
)
def test_what_is_not_supported_is_refused(change: dict[str, Any], said: str) -> None:
    """With the field, its value and what is."""
    with pytest.raises(CheckpointError) as refused:
        read_qwen3({**QWEN3_SIZES, "vocab_size": 100, **change})
    assert said in str(refused.value)


QWEN2: dict[str, dict[str, Any]] = {
    "plain": {},
    "bidirectional": {"is_causal": False},
    "windows": {**WINDOWS, "max_window_layers": 2},
}


@every_option(QWEN2)
def test_every_option_of_qwen2_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Likewise: queries, keys and values have biases, and no norms."""
    sizes: dict[str, Any] = {**SIZES, "num_key_value_heads": 1}
    check_torch(write_model(tmp_path, "Qwen2", **{**sizes, **options}))


@pytest.mark.repeated
def test_qwen3_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    options: dict[str, Any] = {**QWEN3_SIZES, **WINDOWS, "max_window_layers": 2, "num_key_value_heads": 1}
    check_onnx(write_model(tmp_path / "checkpoint", "Qwen3", **options), tmp_path / "graph")
