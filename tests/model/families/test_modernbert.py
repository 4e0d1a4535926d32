"""ModernBERT, against `transformers`."""

from pathlib import Path
from typing import Any

import pytest

from tests.references.families import change_config, write_model
from tests.support import families
from tests.support.families import check_onnx, check_torch

SIZES = {**families.SIZES, "num_hidden_layers": 4, "local_attention": 8}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one head": {"hidden_size": 32, "num_attention_heads": 1},
    "one layer": {"num_hidden_layers": 1},
    "a window wider than any text": {"local_attention": 128},
    "the smallest window": {"local_attention": 2},
    "every layer full": {"global_attn_every_n_layers": 1},
    "biases": {"attention_bias": True, "mlp_bias": True, "norm_bias": True},
    "silu": {"hidden_activation": "silu"},
    "kinds listed": {
        "layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
    },
}


@pytest.mark.in_turns
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_modernbert_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "ModernBert", **{**SIZES, **options}))


@pytest.mark.repeated
def test_modernbert_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    written = write_model(tmp_path / "checkpoint", "ModernBert", **SIZES)
    check_onnx(written, tmp_path / "graph")


def test_the_older_form_of_the_config_is_read_too(tmp_path: Path) -> None:
    """Bases of the rotary positions by layer's kind, before transformers 5 gathered them in one object."""
    written = write_model(tmp_path, "ModernBert", **SIZES)
    change_config(tmp_path, rope_parameters=None, layer_types=None, global_attn_every_n_layers=3)
    check_torch(written)
    change_config(tmp_path, global_rope_theta=500.0)
    with pytest.raises(AssertionError):  # so the base is read
        check_torch(written)
