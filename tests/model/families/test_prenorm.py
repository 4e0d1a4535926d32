"""RoBERTa-PreLayerNorm, Megatron-BERT and XLM-RoBERTa-XL, against `transformers`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.checkpoints.checkpoint import load_checkpoint
from tests.references.families import change_config, write_model
from tests.support.families import PADDED, SIZES, check_onnx, check_torch, sample

NAMES = ["RobertaPreLayerNorm", "XLMRobertaXL", "MegatronBert"]
OFFSET = NAMES[:2]
"""Those whose positions follow the padding id."""
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one head of an odd size": {"hidden_size": 30, "num_attention_heads": 1},
    "one layer": {"num_hidden_layers": 1},
    "relu": {"hidden_act": "relu"},
    "gelu_new": {"hidden_act": "gelu_new"},
    "one segment": {"type_vocab_size": 1},
    "two segments": {"type_vocab_size": 2},
    "another padding id": {"pad_token_id": 3},
    "wider layers within": {"intermediate_size": 96, "layer_norm_eps": 0.1},
}


@pytest.mark.in_turns
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_every_option_of_norms_before_sub_layers_is_the_reference_s(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, name, **{**SIZES, **options}))


@pytest.mark.repeated
@pytest.mark.parametrize("name", NAMES)
def test_norms_before_sub_layers_run_as_a_graph(name: str, tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    written = write_model(tmp_path / "checkpoint", name, **{**SIZES, "num_hidden_layers": 2})
    check_onnx(written, tmp_path / "graph", [*sample(), *PADDED])


@pytest.mark.parametrize("name", NAMES)
def test_a_padding_token_in_a_text_is_counted_as_the_family_does(name: str, tmp_path: Path) -> None:
    """Positions that follow the padding id pass over it, and those of Megatron-BERT do not."""
    check_torch(write_model(tmp_path, name, **SIZES), PADDED)


@pytest.mark.parametrize("name", NAMES)
def test_an_encoder_under_a_head_is_found(name: str, tmp_path: Path) -> None:
    """A classifier's weights are named with a prefix, and its head is left out."""
    architecture = f"{name}ForSequenceClassification"
    classifier = write_model(tmp_path, name, architecture=architecture, **SIZES)
    check_torch(replace(classifier, model=classifier.model.base_model))


@pytest.mark.parametrize("name", NAMES)
def test_as_many_tokens_are_read_as_there_are_positions(name: str, tmp_path: Path) -> None:
    """64 rows, of which padding id 1 leaves 62 where positions follow it."""
    write_model(tmp_path, name, **SIZES)
    assert load_checkpoint(tmp_path).folder.tokenizer.max_length == (62 if name in OFFSET else 64)


def test_what_a_config_leaves_out_is_the_library_s_default(tmp_path: Path) -> None:
    """XLM-RoBERTa-XL has one segment and norms of 1e-5 where RoBERTa has two and 1e-12."""
    written = write_model(tmp_path, "XLMRobertaXL", **SIZES)
    change_config(tmp_path, type_vocab_size=None, layer_norm_eps=None)
    check_torch(written)
    assert load_checkpoint(tmp_path).encoder.config.norm_eps == 1e-5
