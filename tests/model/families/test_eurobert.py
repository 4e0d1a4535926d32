"""EuroBERT, against `transformers`."""

from pathlib import Path
from typing import Any

import pytest

from tests.references.families import write_model
from tests.support.families import SIZES, check_onnx, check_torch

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one layer": {"num_hidden_layers": 1},
    "grouped queries": {"num_attention_heads": 6, "num_key_value_heads": 2},
    "one key for all": {"num_key_value_heads": 1},
    "wide heads": {"head_dim": 24},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "gelu": {"hidden_act": "gelu"},
    "another base": {"rope_parameters": {"rope_type": "default", "rope_theta": 250000.0}},
    "linear scaling": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    "the scaling of Llama 3": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 100.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    },
}


@pytest.mark.in_turns
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_eurobert_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "EuroBert", **{**SIZES, **options}))


@pytest.mark.repeated
def test_eurobert_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    written = write_model(
        tmp_path / "checkpoint", "EuroBert", **{**SIZES, "num_hidden_layers": 2, "num_key_value_heads": 1}
    )
    check_onnx(written, tmp_path / "graph")
