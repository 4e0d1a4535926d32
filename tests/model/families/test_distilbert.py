"""DistilBERT, against `transformers`."""

from pathlib import Path
from typing import Any

import pytest

from tests.references.families import write_model
from tests.support.families import check_onnx, check_torch

SIZES: dict[str, Any] = {
    "dim": 48,
    "n_layers": 3,
    "n_heads": 3,
    "hidden_dim": 40,
    "max_position_embeddings": 64,
}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one head of an odd size": {"dim": 30, "n_heads": 1},
    "one layer": {"n_layers": 1},
    "relu": {"activation": "relu"},
    "sinusoidal positions": {"sinusoidal_pos_embds": True},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_distilbert_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "DistilBert", **{**SIZES, **options}))


@pytest.mark.repeated
def test_distilbert_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    written = write_model(tmp_path / "checkpoint", "DistilBert", **{**SIZES, "n_layers": 2})
    check_onnx(written, tmp_path / "graph")
