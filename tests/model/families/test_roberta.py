"""RoBERTa, XLM-RoBERTa and CamemBERT, against `transformers`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.checkpoints.checkpoint import load_checkpoint
from tests.references.families import write_model
from tests.support.families import PADDED, SIZES, check_onnx, check_torch, sample

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one head of an odd size": {"hidden_size": 30, "num_attention_heads": 1},
    "one layer": {"num_hidden_layers": 1},
    "relu": {"hidden_act": "relu"},
    "gelu_new": {"hidden_act": "gelu_new"},
    "two segments": {"type_vocab_size": 2},
    "another padding id": {"pad_token_id": 3},
    "padding id 0": {"pad_token_id": 0},
    "coarse norms": {"layer_norm_eps": 0.1},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_roberta_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "Roberta", **{**SIZES, **options}))


@pytest.mark.repeated
def test_roberta_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    written = write_model(tmp_path / "checkpoint", "Roberta", **{**SIZES, "num_hidden_layers": 2})
    check_onnx(written, tmp_path / "graph", [*sample(), *PADDED])


def test_a_padding_token_in_a_text_is_not_counted_by_the_positions(tmp_path: Path) -> None:
    """A literal "<pad>" has its own position, and the tokens after it go on as without it."""
    check_torch(write_model(tmp_path, "Roberta", **SIZES), PADDED)


@pytest.mark.parametrize("name", ["XLMRoberta", "Camembert"])
def test_the_families_like_roberta_are_the_reference_s(name: str, tmp_path: Path) -> None:
    """They differ in their name and their tokenizer alone."""
    check_torch(write_model(tmp_path, name, **SIZES))


@pytest.mark.parametrize("name", ["Roberta", "XLMRoberta", "Camembert"])
def test_an_encoder_under_a_head_is_found(name: str, tmp_path: Path) -> None:
    """A classifier's weights are named with a prefix, and its head is left out."""
    architecture = f"{name}ForSequenceClassification"
    classifier = write_model(tmp_path, name, architecture=architecture, **SIZES)
    check_torch(replace(classifier, model=classifier.model.base_model))


def test_positions_after_the_padding_id_are_all_there_are(tmp_path: Path) -> None:
    """64 rows and padding id 1 leave 62 positions."""
    write_model(tmp_path, "Roberta", **SIZES)
    assert load_checkpoint(tmp_path).folder.tokenizer.max_length == 62
