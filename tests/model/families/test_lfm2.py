"""LFM2, against `transformers`."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from export.precision import Dtype
from model.checkpoints.checkpoint import load_checkpoint
from model.errors import CheckpointError
from model.families.decoders.lfm2 import read_lfm2
from tests.model.test_late_interaction import check as check_vectors
from tests.references.families import change_config, write_model
from tests.references.late_interaction import Settings, make_pylate
from tests.references.lfm2 import WithConvolutions, look_both_ways
from tests.support.backends import load_checkpoint_as
from tests.support.exporting import export_silently
from tests.support.families import (
    AS_A_GRAPH,
    EXACT,
    SIZES,
    check,
    check_onnx,
    check_torch,
    every_option,
    sample,
)

LFM2: dict[str, Any] = {
    **SIZES,
    "num_key_value_heads": 1,
    "block_multiple_of": 8,
    "layer_types": ["conv", "full_attention", "conv"],
}
CLASSES: dict[str, Any] = {
    "architectures": ["Lfm2BidirectionalModel"],
    "auto_map": {"AutoModel": "modeling_lfm2_bidirectional.Lfm2BidirectionalModel"},
}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "biases": {"conv_bias": True},
    "a longer convolution": {"conv_L_cache": 6},
    "a convolution of one token": {"conv_L_cache": 1},
    "attention first": {"layer_types": ["full_attention", "conv", "conv"]},
    "attention last": {"layer_types": ["conv", "conv", "full_attention"]},
    "attention alone": {"layer_types": None},
    "attention by number": {"layer_types": None, "full_attn_idxs": [1]},
    "attention both ways": {"is_causal": False},
    "a feed-forward size as it is": {"block_auto_adjust_ff_dim": False},
    "a feed-forward size by a factor": {"block_ffn_dim_multiplier": 1.3},
    "a head for each key": {"num_key_value_heads": 3},
    "coarse norms": {"norm_eps": 0.1},
    "another base": {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
}


@every_option(OPTIONS, 5)
def test_every_option_of_lfm2_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "Lfm2", **{**LFM2, **options}))


BOTH_WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "an even number of tokens, and biases": {"conv_L_cache": 4, "conv_bias": True},
    "a convolution longer than texts": {"conv_L_cache": 9},
}


@every_option(BOTH_WAYS, 3)
def test_classes_that_look_both_ways(options: dict[str, Any], tmp_path: Path) -> None:
    """Of convolutions and attention: config.json tells them by the names of their classes alone."""
    written = write_model(tmp_path, "Lfm2", **{**LFM2, **options, "is_causal": False})
    look_both_ways(written.model)
    change_config(tmp_path, **CLASSES, is_causal=None)
    check_torch(written)


def test_fields_of_older_files_are_read(tmp_path: Path) -> None:
    """The size of the feed-forward network, the layers that attend, and the base had other names."""
    options = {**LFM2, "intermediate_size": 56, "rope_parameters": {"rope_theta": 100.0}}
    written = write_model(tmp_path, "Lfm2", **options)
    change_config(
        tmp_path,
        block_ff_dim=56,
        intermediate_size=40,
        rope_theta=100.0,
        full_attn_idxs=[1],
        layer_types=None,
        rope_parameters=None,
    )
    check_torch(written)


@pytest.mark.parametrize("prefix", ["model.", "lfm2."])
def test_the_head_that_predicts_words_is_left_out(prefix: str, tmp_path: Path) -> None:
    """Its classes put a prefix before the names of the encoder."""
    written = write_model(tmp_path, "Lfm2", **LFM2)
    file = tmp_path / "model.safetensors"
    tensors = {prefix + name: tensor for name, tensor in load_file(file).items()}
    save_file({**tensors, "lm_head.weight": tensors[f"{prefix}embed_tokens.weight"].clone()}, file)
    change_config(tmp_path, architectures=["Lfm2ForCausalLM"])
    check_torch(written)


@pytest.mark.parametrize(
    ("backend", "attends", "both_ways"),
    [
        *(("torch", *options) for options in product([False, True], [False, True])),
        pytest.param("onnx", False, True, marks=pytest.mark.thorough),
        *(
            pytest.param("onnx", *options, marks=pytest.mark.repeated)
            for options in ((False, False), (True, False), (True, True))
        ),
    ],
)
def test_tokens_that_fill_up_queries_take_part_in_convolutions(
    backend: str, attends: bool, both_ways: bool, tmp_path: Path
) -> None:
    """As they did when these models were trained; attention hides them or not, as the folder says."""
    folder = tmp_path / "model"
    model = write_model(folder, "Lfm2", **{**LFM2, "is_causal": not both_ways, "conv_bias": True}).model
    written = make_pylate(folder, model, Settings(attends=attends))
    if both_ways:
        look_both_ways(model)
        change_config(folder, **CLASSES, is_causal=None)
    reference = WithConvolutions(written.folder, written.reference, written.matrix, written.settings)
    bound = EXACT if backend == "torch" else AS_A_GRAPH
    check_vectors(reference, *load_checkpoint_as(backend, folder), bound)


GRAPHS: dict[str, dict[str, Any]] = {
    "both ways, biases and an even number of tokens": {"conv_L_cache": 4, "conv_bias": True, **CLASSES},
    "causal": {},
    "attention first": {"layer_types": ["full_attention", "conv", "conv"]},
    "attention last": {"layer_types": ["conv", "conv", "full_attention"], **CLASSES},
    "a convolution of one token": {"conv_L_cache": 1},
    "a convolution longer than texts": {"conv_L_cache": 9, **CLASSES},
}


@every_option(GRAPHS, quick=0)
def test_it_runs_as_a_graph(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states of all layers and maps of those that attend, alone and beside others."""
    folder, both_ways = tmp_path / "model", "auto_map" in options
    given = {name: value for name, value in options.items() if name not in CLASSES}
    written = write_model(folder, "Lfm2", **{**LFM2, **given, "is_causal": not both_ways})
    if both_ways:
        look_both_ways(written.model)
        change_config(folder, **CLASSES, is_causal=None)
    _, backend = load_checkpoint_as("onnx", folder)
    assert backend.info.attention_layers == load_checkpoint(folder).encoder.config.attending
    check(backend, written, sample(), AS_A_GRAPH)


@pytest.mark.repeated
def test_its_export_compares_layers_that_attend(tmp_path: Path) -> None:
    """In every quantity: of maps, scores, value norms, statistics and interventions."""
    check_onnx(write_model(tmp_path / "model", "Lfm2", **LFM2), tmp_path / "graph")


@pytest.mark.repeated
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_it_is_exported_in_lower_precisions(dtype: Dtype, tmp_path: Path) -> None:
    """Within the bounds of the export, which deletes what misses them."""
    export_silently(write_model(tmp_path / "model", "Lfm2", **LFM2).folder, tmp_path / "graph", dtype)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layer_types": ["conv", "short_conv", "conv"]}, 'layer_types has "short_conv"; a kind is "full_'),
        ({"layer_types": ["conv"]}, "layer_types is ['conv']; it must list a kind for each of the 3"),
        ({"layer_types": ["conv"] * 3}, 'layer_types has no "full_attention"; at least one layer must'),
        ({"layer_types": None, "full_attn_idxs": [3]}, "full_attn_idxs is [3]; it must list layer numbers"),
        ({"conv_L_cache": 0}, "conv_L_cache is 0; it must be at least 1"),
        ({"conv_bias": 1}, "conv_bias is 1; it must be true or false"),
        ({"block_ffn_dim_multiplier": 0}, "block_ffn_dim_multiplier is 0; it must be a number above 0"),
        ({"block_ffn_dim_multiplier": 1e300}, "intermediate_size is 2097152; it must be at most 1048576"),
        ({"block_multiple_of": -1}, "block_multiple_of is -1; it must be at least 1"),
        ({"rope_parameters": {"rope_type": "yarn"}}, 'rope_type "yarn" is not supported; the suppo'),
        ({"hidden_size": 50}, "hidden_size 50 is not a multiple of num_attention_heads 3"),
    ],
)
def test_what_is_not_supported_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    """With the field, its value and what is."""
    written = write_model(tmp_path, "Lfm2", **LFM2)
    config = json.loads((written.folder / "config.json").read_text(encoding="utf-8"))
    with pytest.raises(CheckpointError) as refused:
        read_lfm2({**config, **change})
    assert said in str(refused.value)
