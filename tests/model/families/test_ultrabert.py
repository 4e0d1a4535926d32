"""UltraBERT, against `transformers`."""

from pathlib import Path
from typing import Any

import pytest

from model.errors import CheckpointError
from model.families.ultrabert import read_config
from tests.references.families import VOCABULARY, change_config, write_model
from tests.support import families
from tests.support.families import check_onnx, check_torch

SIZES = {**families.SIZES, "num_hidden_layers": 4, "sliding_window": 4}
FULL, SLIDING = "full_attention", "sliding_attention"

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one layer": {"num_hidden_layers": 1},
    "grouped queries": {"num_attention_heads": 6, "num_key_value_heads": 2},
    "wide heads": {"head_dim": 24},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "gelu": {"hidden_act": "gelu"},
    "a window wider than any text": {"sliding_window": 128},
    "the smallest window": {"sliding_window": 1},
    "every layer full": {"layer_types": [FULL] * 4},
    "windows by layer": {"attention_windows": [0, 3, 3, 0], "rope_theta": [500.0, 9.0, 9.0, 500.0]},
    "kinds and angles": {
        "layer_types": [FULL, SLIDING, FULL, FULL],
        "rope_parameters": {
            FULL: {"rope_type": "linear", "rope_theta": 300.0, "factor": 4.0},
            SLIDING: {"rope_type": "default", "rope_theta": 20.0},
        },
    },
}


@pytest.mark.in_turns
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_ultrabert_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "Ultrabert", **{**SIZES, **options}))


@pytest.mark.repeated
def test_ultrabert_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    written = write_model(tmp_path / "checkpoint", "Ultrabert", **SIZES)
    check_onnx(written, tmp_path / "graph")


BY_LAYER: dict[str, Any] = {"attention_windows": [4, 4, 0, 4], "rope_theta": [7.0, 7.0, 90.0, 7.0]}


def test_the_published_form_of_the_config_is_read_too(tmp_path: Path) -> None:
    """Windows and bases listed by layer, from which transformers makes its own form."""
    written = write_model(tmp_path, "Ultrabert", **{**SIZES, **BY_LAYER})
    newer = dict.fromkeys(("sliding_window", "layer_types", "rope_parameters"))
    change_config(tmp_path, **newer, **BY_LAYER)
    check_torch(written)
    change_config(tmp_path, rope_theta=[8.0, 8.0, 90.0, 8.0])
    with pytest.raises(AssertionError):  # so the bases are read
        check_torch(written)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"attention_windows": [4, 4, 0, 5]},
            "attention_windows has [4, 4, 5] for layers of the same kind; these",
        ),
        ({"attention_windows": [4]}, "attention_windows is [4]; it must have an entry for each of the 4"),
        ({"rope_theta": 10_000.0}, "rope_theta is 10000.0; it must have an entry for each of the 4"),
        (
            {"rope_theta": [1.0, 2.0, 3.0, 1.0]},
            "rope_theta has [1.0, 2.0, 1.0] for layers of the same kind; these",
        ),
        ({"rope_parameters": {"rope_theta": 9.0}}, "it must have an entry"),
        ({"layer_types": ["chunked_attention"] * 4}, 'layer_types has "chunked_attention"; a kind is'),
        ({"sliding_window": 0}, "sliding_window is 0; it must be at least 1"),
    ],
)
def test_what_is_not_supported_is_refused(change: dict[str, Any], said: str) -> None:
    """With the field, its value and what it must be."""
    with pytest.raises(CheckpointError) as refused:
        read_config({**SIZES, "vocab_size": VOCABULARY, **change})
    assert said in str(refused.value)
