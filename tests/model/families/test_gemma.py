"""Gemma 3 and Gemma, against `transformers`."""

import json
from pathlib import Path
from typing import Any

import pytest

from export.precision import Dtype
from model.errors import CheckpointError
from model.families.decoders.gemma import read_gemma3
from tests.references.families import change_config, write_model
from tests.support.exporting import export_silently
from tests.support.families import SIZES, check_onnx, check_torch, every_option

GEMMA3: dict[str, Any] = {
    **SIZES,
    "num_key_value_heads": 1,
    "head_dim": 24,
    "query_pre_attn_scalar": 20,
    "sliding_window": 6,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
BOTH = {"use_bidirectional_attention": True}
SCALED = {
    "full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}

OPTIONS: dict[str, dict[str, Any]] = {
    "causal": {},
    "bidirectional": BOTH,
    "not causal": {"is_causal": False},
    "not causal, and bidirectional": {**BOTH, "is_causal": False},
    "an odd window": {**BOTH, "sliding_window": 7},
    "every layer full": {"layer_types": ["full_attention"] * 3},
    "kinds by a pattern": {"layer_types": None, "sliding_window_pattern": 2},
    "a head for each key": {"num_key_value_heads": 3},
    "biases": {"attention_bias": True},
    "other angles": {"rope_parameters": SCALED},
}


@every_option(OPTIONS, 5)
def test_every_option_of_gemma3_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "Gemma3Text", **{**GEMMA3, **options}))


def test_fields_of_older_files_are_read(tmp_path: Path) -> None:
    """Before transformers 5, there were two fields for bases, a scaling for full layers, and a pattern."""
    written = write_model(tmp_path, "Gemma3Text", **{**GEMMA3, **BOTH, "rope_parameters": SCALED})
    change_config(
        tmp_path,
        rope_parameters=None,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_theta=500.0,
        rope_local_base_freq=100.0,
        rope_scaling={"rope_type": "linear", "factor": 4.0},
    )
    check_torch(written)


def test_a_window_is_what_the_folder_says(tmp_path: Path) -> None:
    """EmbeddingGemma's 512 is 256 on either side; some releases of transformers halve it with each save."""
    config = json.loads((write_model(tmp_path, "Gemma3Text", **GEMMA3).folder / "config.json").read_text())
    for width, window in ((512, 256), (257, 128), (513, 256), (2, 1)):
        assert read_gemma3({**config, **BOTH, "sliding_window": width}).layers[0].window == window
        assert read_gemma3({**config, "sliding_window": width}).layers[0].window == width - 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sliding_window": None}, "sliding_window is None; it must be a whole number"),
        ({"sliding_window": 1}, "sliding_window is 1; it must be at least 2"),
        ({"layer_types": ["chunked_attention"] * 3}, 'layer_types has "chunked_attention"; a kind is "full'),
        ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0; it must be a number above 0"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, 'rope_type "yarn" is not supported'),
        (
            {"use_bidirectional_attention": "vision"},
            "use_bidirectional_attention is 'vision'; it must be true",
        ),
    ],
)
def test_what_is_not_supported_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    """With the field, its value and what is."""
    config = json.loads((write_model(tmp_path, "Gemma3Text", **GEMMA3).folder / "config.json").read_text())
    with pytest.raises(CheckpointError) as refused:
        read_gemma3({**config, **change})
    assert said in str(refused.value)


GEMMA: dict[str, dict[str, Any]] = {
    "plain": {},
    "bidirectional": {"is_causal": False},
    "the older name of its activation": {"hidden_act": "gelu"},
    "biases": {"attention_bias": True, "num_key_value_heads": 3},
}


@every_option(GEMMA)
def test_every_option_of_gemma_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Likewise."""
    sizes: dict[str, Any] = {**SIZES, "num_key_value_heads": 1, "head_dim": 24}
    check_torch(write_model(tmp_path, "Gemma", **{**sizes, **options}))


@pytest.mark.repeated
def test_gemma3_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    options: dict[str, Any] = {**GEMMA3, **BOTH}
    check_onnx(write_model(tmp_path / "checkpoint", "Gemma3Text", **options), tmp_path / "graph")


@pytest.mark.repeated
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_gemma3_is_exported_in_lower_precisions(dtype: Dtype, tmp_path: Path) -> None:
    """Within the bounds of the export, although norms of float32 follow products of float16."""
    options: dict[str, Any] = {**GEMMA3, **BOTH}
    folder = write_model(tmp_path / "checkpoint", "Gemma3Text", **options).folder
    export_silently(folder, tmp_path / "graph", dtype)
