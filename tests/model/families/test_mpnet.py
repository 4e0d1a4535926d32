"""MPNet, against `transformers`."""

from pathlib import Path
from typing import Any

import pytest

from tests.references.families import write_model
from tests.support.families import PADDED, SIZES, check_onnx, check_torch, sample

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one head of an odd size": {"hidden_size": 30, "num_attention_heads": 1},
    "one layer": {"num_hidden_layers": 1},
    "relu": {"hidden_act": "relu"},
    "gelu_new": {"hidden_act": "gelu_new"},
    "a larger table of biases": {"relative_attention_num_buckets": 40},
    "another padding id": {"pad_token_id": 0},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_mpnet_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "MPNet", **{**SIZES, **options}))


@pytest.mark.repeated
def test_mpnet_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    written = write_model(tmp_path / "checkpoint", "MPNet", **SIZES)
    check_onnx(written, tmp_path / "graph", [*sample(), *PADDED])


def test_a_padding_token_in_a_text_is_not_counted_by_the_positions(tmp_path: Path) -> None:
    """A literal "<pad>" has its own position, and the tokens after it go on as without it."""
    check_torch(write_model(tmp_path, "MPNet", **SIZES), PADDED)
