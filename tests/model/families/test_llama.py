"""Llama and Mistral, against `transformers`."""

from pathlib import Path
from typing import Any

import pytest

from model.errors import CheckpointError
from model.families.decoders.llama import read_llama, read_mistral
from tests.references.families import change_config, write_model
from tests.support.families import SIZES, check_onnx, check_torch, every_option

LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LLAMA: dict[str, dict[str, Any]] = {
    "shared keys": {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16},
    "bidirectional": {"is_causal": False},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "the scaling of Llama 3": {"rope_parameters": LLAMA_3},
    "gelu": {"hidden_act": "gelu"},
    "plain": {},
}
MISTRAL: dict[str, dict[str, Any]] = {
    "windows": {"sliding_window": 5},
    "plain": {"sliding_window": None},
    "bidirectional, with windows": {"sliding_window": 5, "is_causal": False},
    "wide heads": {"head_dim": 24, "num_key_value_heads": 1},
}


@every_option(LLAMA)
def test_every_option_of_llama_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "Llama", **{**SIZES, **options}))


@every_option(MISTRAL)
def test_every_option_of_mistral_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Likewise."""
    sizes: dict[str, Any] = {**SIZES, "num_key_value_heads": 3}
    check_torch(write_model(tmp_path, "Mistral", **{**sizes, **options}))


def test_older_files_scale_as_the_newer_do(tmp_path: Path) -> None:
    """`rope_theta` beside `rope_scaling`, and the original length in max_position_embeddings."""
    parameters = {**LLAMA_3, "original_max_position_embeddings": SIZES["max_position_embeddings"]}
    written = write_model(tmp_path, "Llama", **SIZES, rope_parameters=parameters)
    scaling = {k: v for k, v in parameters.items() if not k.startswith(("rope_theta", "original"))}
    change_config(tmp_path, rope_parameters=None, rope_scaling=scaling, rope_theta=100.0)
    check_torch(written)


SMALL: dict[str, Any] = {**SIZES, "vocab_size": 100}


@pytest.mark.parametrize(
    ("read", "change", "said"),
    [
        (read_llama, {"hidden_size": 50}, "hidden_size 50 is not a multiple of num_attention_heads 3"),
        (read_llama, {"is_causal": "no"}, "is_causal is 'no'; it must be true or false"),
        (read_llama, {"rope_scaling": {"rope_type": "yarn"}}, 'rope_type "yarn" is not supported; the suppo'),
        (read_llama, {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; in this family it mu"),
        (read_llama, {"hidden_act": "xielu"}, 'hidden_act "xielu" is not one of gelu'),
        (read_mistral, {"layer_types": ["full_attention"] * 3}, "layer_types is ['full_attention', 'full_"),
        (read_mistral, {"sliding_window": 1}, "sliding_window is 1; it must be at least 2"),
    ],
)
def test_what_is_not_supported_is_refused(read: Any, change: dict[str, Any], said: str) -> None:
    """With the field, its value and what is."""
    with pytest.raises(CheckpointError) as refused:
        read({**SMALL, **change})
    assert said in str(refused.value)


@pytest.mark.repeated
def test_mistral_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    options: dict[str, Any] = {**SIZES, "num_key_value_heads": 1, "sliding_window": 5}
    check_onnx(write_model(tmp_path / "checkpoint", "Mistral", **options), tmp_path / "graph")
