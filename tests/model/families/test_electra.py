"""ELECTRA, against `transformers`."""

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
    "relu": {"hidden_act": "relu"},
    "gelu_new": {"hidden_act": "gelu_new"},
    "as wide embeddings": {"embedding_size": 48},
    "narrow embeddings": {"embedding_size": 9},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_electra_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "Electra", **{**SIZES, **options}))


@pytest.mark.repeated
def test_electra_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    written = write_model(tmp_path / "checkpoint", "Electra", **SIZES)
    check_onnx(written, tmp_path / "graph")
