"""ALBERT, against `transformers`."""

from pathlib import Path
from typing import Any

import pytest

from tests.references.families import write_model
from tests.support import families
from tests.support.families import check_onnx, check_torch

SIZES = {**families.SIZES, "embedding_size": 20}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one head of an odd size": {"hidden_size": 30, "num_attention_heads": 1},
    "one layer": {"num_hidden_layers": 1},
    "gelu": {"hidden_act": "gelu"},
    "two groups": {"num_hidden_layers": 5, "num_hidden_groups": 2},
    "a group of each layer": {"num_hidden_groups": 3},
    "inner layers": {"inner_group_num": 2, "num_hidden_layers": 2},
    "as wide embeddings": {"embedding_size": 48},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_albert_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "Albert", **{**SIZES, **options}))


@pytest.mark.repeated
def test_albert_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    written = write_model(tmp_path / "checkpoint", "Albert", **{**SIZES, "num_hidden_layers": 2})
    check_onnx(written, tmp_path / "graph")
