"""GTE, against `transformers`, and in the form of Alibaba's own code, which calls itself "new"."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from model.checkpoints.checkpoint import load_checkpoint
from model.encoder.config import EncoderConfig
from model.errors import CheckpointError
from model.families.gte import read_config, read_config_new
from tests.references.families import VOCABULARY, Written, change_config, write_model
from tests.references.originals import Original, random_tensors, write_original
from tests.support.families import SIZES, check_onnx, check_torch

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one head": {"hidden_size": 30, "num_attention_heads": 1, "intermediate_size": 7},
    "one layer": {"num_hidden_layers": 1},
    "two segments": {"type_vocab_size": 2},
    "no segments": {"type_vocab_size": 0},
    "silu": {"hidden_act": "silu"},
    "gelu_new": {"hidden_act": "gelu_new"},
    "coarse norms": {"layer_norm_eps": 0.1},
    "another base": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "linear scaling": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
}

NEW: dict[str, Any] = {"model_type": "new", "architectures": ["NewModel"], "rope_parameters": None}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_gte_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "Gte", **{**SIZES, **options}))


@pytest.mark.repeated
def test_gte_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    written = write_model(tmp_path / "checkpoint", "Gte", **{**SIZES, "num_hidden_layers": 2})
    check_onnx(written, tmp_path / "graph")


def test_the_names_of_transformers_are_read_too(tmp_path: Path) -> None:
    """Instead of the fused products of Alibaba's code, each product under a name of its own."""
    written = write_model(tmp_path, "Gte", **SIZES)
    assert "encoder.layer.0.attention.qkv_proj.weight" in load_file(tmp_path / "model.safetensors")
    written.model.save_pretrained(tmp_path, save_original_format=False)
    assert "layers.0.self_attn.q_proj.weight" in load_file(tmp_path / "model.safetensors")
    check_torch(written)


def test_queries_keys_and_values_need_not_be_fused(tmp_path: Path) -> None:
    """Alibaba's code has `pack_qkv`: without it, each has a tensor."""
    written = write_new(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for name in [name for name in tensors if ".qkv_proj." in name]:
        for part, rows in zip("qkv", np.split(tensors.pop(name), 3), strict=True):
            tensors[name.replace("qkv_proj", f"{part}_proj")] = rows.copy()
    save_file(tensors, tmp_path / "model.safetensors")
    check_torch(written)


@pytest.mark.parametrize("head", ["ForMaskedLM", "ForSequenceClassification"])
def test_the_encoder_below_a_head_is_served(head: str, tmp_path: Path) -> None:
    """Its tensors have a prefix; the head is left out."""
    written = write_model(tmp_path, "Gte", architecture=f"Gte{head}", **SIZES)
    check_torch(written)


# ------------------------------------------------------------------------------------------------ "new"


def write_new(folder: Path, *, base: float = 10_000.0, divisor: float = 1.0, **changes: Any) -> Written:
    """A checkpoint of Alibaba's code; the reference has a base and frequencies divided by a number."""
    rotary = {"rope_type": "linear", "rope_theta": base, "factor": divisor}
    written = write_model(folder, "Gte", **SIZES, rope_parameters=rotary)
    change_config(folder, **{**NEW, **changes})
    return written


def test_new_is_gte_by_another_name(tmp_path: Path) -> None:
    """Its base is 10 000 unless the config says otherwise."""
    check_torch(write_new(tmp_path))
    check_torch(write_new(tmp_path, base=500.0, rope_theta=500.0))


@pytest.mark.parametrize("factor", [1.0, 2.0, 8.0])
def test_the_scaling_called_ntk_is_that_of_its_definition(factor: float, tmp_path: Path) -> None:
    """The base times the factor, all frequencies divided by factor^(2/D): the slowest by the factor."""
    written = write_new(
        tmp_path,
        base=20_000.0 * factor,
        divisor=factor ** (2 / 16),
        rope_theta=20_000.0,
        rope_scaling={"type": "ntk", "factor": factor},
    )
    check_torch(written)
    rotary = load_checkpoint(tmp_path).folder.config.layers[0].rotary
    assert rotary is not None
    expected = (20_000.0 * factor) ** (-np.arange(8) / 8) / factor ** (1 / 8)
    np.testing.assert_allclose(rotary.frequencies, expected, rtol=1e-6)
    assert rotary.frequencies[-1] == pytest.approx(20_000.0 ** (-7 / 8) / factor, rel=1e-6)


@pytest.mark.repeated
def test_the_scaling_called_ntk_runs_as_a_graph(tmp_path: Path) -> None:
    """The frequencies of the graph are scaled, too."""
    folder = tmp_path / "checkpoint"
    written = write_new(
        folder,
        base=80_000.0,
        divisor=4.0**0.125,
        rope_theta=20_000.0,
        rope_scaling={"type": "ntk", "factor": 4},
    )
    check_onnx(written, tmp_path / "graph")


SMALL: dict[str, Any] = {**SIZES, "vocab_size": VOCABULARY, "architectures": ["NewModel"]}


def test_learned_positions_have_no_rotary_ones(tmp_path: Path) -> None:
    """Alibaba's code adds a row of a table for each position, if `position_embedding_type` says so."""
    encoder = read_config_new({**SMALL, "position_embedding_type": "absolute"})
    assert (encoder.positions, encoder.max_positions, encoder.layers[0].rotary) == ("learned", 64, None)
    assert read_config_new(SMALL).positions == "none"
    assert read_config_new(SMALL).position_limit == 64
    check_torch(write_absolute(tmp_path))


def write_absolute(folder: Path) -> Original:
    """A checkpoint of Alibaba's code with learned positions, and its encoder in numpy."""
    config: dict[str, Any] = {**SMALL, "model_type": "new", "position_embedding_type": "absolute"}
    size, inner = config["hidden_size"], config["intermediate_size"]
    encoder = EncoderConfig(
        vocab_size=VOCABULARY,
        hidden_size=size,
        num_layers=3,
        num_heads=3,
        intermediate_size=inner,
        max_positions=64,
        segments=1,
        gated=True,
        inner_bias=False,
    )
    tables = {"token": ("word", VOCABULARY), "position": ("position", 64), "segment": ("token_type", 1)}
    shapes: dict[str, tuple[int, ...]] = {}
    names: dict[str, list[str]] = {}
    for ours, (theirs, rows) in tables.items():
        names[f"embeddings.{ours}"] = [f"embeddings.{theirs}_embeddings.weight"]
        shapes[f"embeddings.{theirs}_embeddings.weight"] = (rows, size)
    products = {
        "embeddings.norm": ("embeddings.LayerNorm", (size,)),
        **{
            f"blocks.{number}.{ours}": (f"encoder.layer.{number}.{theirs}", shape)
            for number in range(3)
            for ours, theirs, shape in (
                ("attention.qkv", "attention.qkv_proj", (3 * size, size)),
                ("attention.output", "attention.o_proj", (size, size)),
                ("attention_norm", "attn_ln", (size,)),
                ("feed_forward.outer", "mlp.down_proj", (size, inner)),
                ("feed_forward_norm", "mlp_ln", (size,)),
            )
        },
    }
    for ours, (theirs, shape) in products.items():
        for kind, own in (("weight", shape), ("bias", shape[:1])):
            names[f"{ours}.{kind}"], shapes[f"{theirs}.{kind}"] = [f"{theirs}.{kind}"], own
    for number in range(3):
        fused = f"encoder.layer.{number}.mlp.up_gate_proj.weight"
        names[f"blocks.{number}.feed_forward.inner.weight"] = [f"{fused}:1", f"{fused}:0"]
        shapes[f"{fused}:0"] = shapes[f"{fused}:1"] = (inner, size)
    return write_original(folder, config, random_tensors(shapes), encoder, names)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"architectures": None}, "architectures is None"),
        ({"architectures": []}, "architectures is"),
        ({"architectures": ["NewestModel"]}, 'with the model_type "new", only NewModel of Alibaba-NLP'),
        ({"logn_attention_scale": True}, "logn_attention_scale is not supported"),
        ({"layer_norm_type": "rms_norm"}, 'layer_norm_type "rms_norm" is not supported, only "layer_norm"'),
        ({"position_embedding_type": "alibi"}, 'position_embedding_type "alibi" is not supported'),
        ({"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.5}}, "with mixed_b is not supported"),
        ({"rope_scaling": {"type": "ntk", "factor": 0.5}}, "factor is 0.5; with rope_scaling"),
        ({"rope_scaling": {"type": "ntk"}}, "factor is"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 'rope_type "dynamic" is not supported'),
        ({"rope_theta": "large"}, "rope_theta is"),
        ({"is_decoder": True}, "is_decoder is set"),
        ({"num_attention_heads": 5}, "hidden_size 48 is not a multiple of num_attention_heads 5"),
    ],
)
def test_an_option_that_is_not_supported_is_named(change: dict[str, Any], sentence: str) -> None:
    """Nothing is computed in another way than the checkpoint's own code does."""
    with pytest.raises(CheckpointError) as refusal:
        read_config_new({**SMALL, **change})
    assert sentence in str(refusal.value)


def test_gte_may_have_any_architecture() -> None:
    """Its model_type is its own; what Snowflake trained has code of its own, with the same options."""
    config = {name: value for name, value in SMALL.items() if name != "architectures"}
    assert read_config({**config, "pack_qkv": True, "rope_theta": 160000, "rope_scaling": None}).gated
