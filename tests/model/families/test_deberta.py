"""DeBERTa-v2 and v3, against `transformers`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from export.precision import Dtype
from model.errors import CheckpointError
from model.families.bert.deberta import read_config
from tests.references.families import change_config, write_model
from tests.support import families
from tests.support.exporting import export_silently
from tests.support.families import check_onnx, check_torch, sample

V3: dict[str, Any] = {
    "relative_attention": True,
    "position_buckets": 8,
    "pos_att_type": "p2c|c2p",
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "max_relative_positions": -1,
    "layer_norm_eps": 1e-7,
}
"""The choices of deberta-v3; deberta-v2-xlarge has a convolution besides."""
SIZES = {**families.SIZES, **V3}

OPTIONS: dict[str, dict[str, Any]] = {
    "v3": {},
    "v2 xlarge": {"conv_kernel_size": 3, "conv_act": "gelu"},
    "own projections": {"share_att_key": False},
    "contents to positions": {"pos_att_type": ["c2p"]},
    "contents to positions, own projections": {"pos_att_type": ["c2p"], "share_att_key": False},
    "positions to contents": {"pos_att_type": "p2c"},
    "positions to contents, own projections": {"pos_att_type": "p2c", "share_att_key": False},
    "neither": {"pos_att_type": None},
    "no relative attention": {"relative_attention": False},
    "learned positions": {"position_biased_input": True},
    "learned positions alone": {"position_biased_input": True, "relative_attention": False},
    "embeddings of distances as they are": {"norm_rel_ebd": "none"},
    "no buckets": {"position_buckets": -1},
    "near distances": {"position_buckets": -1, "max_relative_positions": 6},
    "far buckets": {"position_buckets": 100},
    "two buckets": {"position_buckets": 2},
    "buckets of near distances": {"position_buckets": 10, "max_relative_positions": 12},
    "segments": {"type_vocab_size": 2},
    "one segment": {"type_vocab_size": 1},
    "narrow embeddings": {"embedding_size": 20, "position_biased_input": True, "type_vocab_size": 2},
    "wide embeddings": {"embedding_size": 60},
    "convolution by tanh": {"conv_kernel_size": 5},
    "convolution in groups": {"conv_kernel_size": 1, "conv_groups": 4, "conv_act": "relu"},
    "a wide convolution": {"conv_kernel_size": 9, "conv_groups": 48, "conv_act": "silu"},
    "one head of an odd size": {"hidden_size": 31, "num_attention_heads": 1},
    "one layer": {"num_hidden_layers": 1, "conv_kernel_size": 3},
    "relu": {"hidden_act": "relu"},
    "gelu_new": {"hidden_act": "gelu_new"},
    "coarse norms": {"layer_norm_eps": 0.1},
}


@pytest.mark.in_turns
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_deberta_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, alone and beside others."""
    check_torch(write_model(tmp_path, "DebertaV2", **{**SIZES, **options}))


@pytest.mark.repeated
@pytest.mark.parametrize("kind", ["v2 xlarge", "positions to contents, own projections", "narrow embeddings"])
def test_deberta_runs_as_a_graph(kind: str, tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    options = {**SIZES, **OPTIONS[kind], "num_hidden_layers": 2}
    check_onnx(write_model(tmp_path / "checkpoint", "DebertaV2", **options), tmp_path / "graph")


@pytest.mark.repeated
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_deberta_runs_as_a_smaller_graph(dtype: Dtype, tmp_path: Path) -> None:
    """It can be opened, and passes the comparison of the export within the bounds of its precision."""
    write_model(
        tmp_path / "checkpoint", "DebertaV2", **{**SIZES, "num_hidden_layers": 2, "conv_kernel_size": 3}
    )
    export_silently(tmp_path / "checkpoint", tmp_path / "graph", dtype)


def test_a_text_longer_than_the_largest_distance_is_the_reference_s(tmp_path: Path) -> None:
    """Distances beyond the table have its last rows, of which one side has one more."""
    options = {**SIZES, "max_position_embeddings": 300, "position_buckets": 16, "max_relative_positions": 40}
    check_torch(write_model(tmp_path, "DebertaV2", **options), sample([5, 290]))


@pytest.mark.parametrize(
    "architecture",
    ["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMaskedLM"],
)
def test_an_encoder_under_a_head_is_found(architecture: str, tmp_path: Path) -> None:
    """Rerankers and models of entailment have a pooler and classes, which are left out."""
    written = write_model(tmp_path, "DebertaV2", architecture=f"DebertaV2{architecture}", **SIZES)
    check_torch(replace(written, model=written.model.base_model), sample([7]))


def test_the_files_of_the_first_training_are_read(tmp_path: Path) -> None:
    """deberta-v3 was saved with both of its heads and with a table of positions that it does not use."""
    written = write_model(tmp_path, "DebertaV2", **SIZES)
    file = tmp_path / "model.safetensors"
    tensors = {f"deberta.{name}": x for name, x in load_file(file).items()}
    for name in ("lm_predictions.lm_head.dense.weight", "mask_predictions.classifier.weight"):
        tensors[name] = torch.ones(2, 2)
    tensors["deberta.embeddings.position_embeddings.weight"] = torch.ones(64, 48)
    save_file(tensors, file)
    change_config(tmp_path, relative_attention=True, pos_att_type=["p2c", "c2p"])
    check_torch(written, sample([7]))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"pos_att_type": "c2p|p2p"}, "pos_att_type is .* it may have only c2p and p2c"),
        ({"pos_att_type": 1}, "pos_att_type is 1; it may have only c2p and p2c"),
        ({"norm_rel_ebd": "batch"}, 'norm_rel_ebd "batch" is not supported, only "none" or "layer_norm"'),
        ({"position_buckets": 7}, "position_buckets is 7; it must be even, and less than"),
        ({"position_buckets": 126}, "position_buckets is 126; .* less than .*, 126"),
        ({"position_buckets": "many"}, "position_buckets is .*; it must be a whole number"),
        (
            {"attention_head_size": 8},
            "attention_head_size is 8; it must be hidden_size / num_attention_heads, 16",
        ),
        ({"conv_kernel_size": 4}, "conv_kernel_size is 4; it must be odd"),
        ({"conv_kernel_size": 3, "conv_groups": 5}, "hidden_size is not a multiple of conv_groups, 5"),
        ({"conv_kernel_size": 3, "conv_act": "sine"}, 'conv_act "sine" is not one of'),
        ({"hidden_act": "tanh"}, 'hidden_act "tanh" is not one of'),
        ({"share_att_key": "yes"}, "share_att_key is .*; it must be true or false"),
    ],
)
def test_an_option_that_is_not_supported_is_refused(change: dict[str, Any], sentence: str) -> None:
    """In one sentence that names the field."""
    with pytest.raises(CheckpointError, match=sentence):
        read_config({"vocab_size": 100, **SIZES, **change})
