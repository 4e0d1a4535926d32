"""The encoders of T5, mT5 and umT5, against `transformers`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.references.families import write_model
from tests.support.families import check_onnx, check_torch

SIZES: dict[str, Any] = {
    "d_model": 48,
    "d_kv": 32,
    "d_ff": 40,
    "num_layers": 3,
    "num_heads": 3,
    "spread": 0.5,  # of scores that no scale makes smaller
}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gated gelu": {"feed_forward_proj": "gated-gelu"},
    "gated silu": {"feed_forward_proj": "gated-silu"},
    "silu": {"feed_forward_proj": "silu"},
    "narrow heads": {"d_kv": 6},
    "one layer, one head": {"num_layers": 1, "num_heads": 1},
    "few buckets": {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_t5_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "T5", architecture="T5EncoderModel", **{**SIZES, **options}))


@pytest.mark.repeated
def test_t5_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    written = write_model(
        tmp_path / "checkpoint", "T5", architecture="T5EncoderModel", **{**SIZES, "num_layers": 1}
    )
    check_onnx(written, tmp_path / "graph")


@pytest.mark.parametrize("name", ["MT5", "UMT5"])
@pytest.mark.parametrize("kind", ["relu", "gated-gelu"])
def test_the_families_like_t5_are_the_reference_s(name: str, kind: str, tmp_path: Path) -> None:
    """mT5 is T5 under another name; of umT5 every layer has a bias of its own."""
    options = {**SIZES, "feed_forward_proj": kind}
    check_torch(write_model(tmp_path, name, architecture=f"{name}EncoderModel", **options))


@pytest.mark.repeated
def test_umt5_runs_as_a_graph(tmp_path: Path) -> None:
    """With the bias of each layer."""
    written = write_model(
        tmp_path / "checkpoint", "UMT5", architecture="UMT5EncoderModel", **{**SIZES, "num_layers": 1}
    )
    check_onnx(written, tmp_path / "graph")


def test_the_encoder_of_a_whole_t5_is_found(tmp_path: Path) -> None:
    """The decoder is left out."""
    whole = write_model(tmp_path, "T5", architecture="T5ForConditionalGeneration", **SIZES)
    check_torch(replace(whole, model=whole.model.encoder))
