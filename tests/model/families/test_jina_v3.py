"""jina-embeddings-v3, against `transformers`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoints.checkpoint import load_checkpoint
from model.errors import CheckpointError
from tests.references.families import Written, change_config, write_model
from tests.support.families import SIZES, check_onnx, check_torch

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one layer, one head": {"num_hidden_layers": 1, "num_attention_heads": 1},
    "relu": {"hidden_act": "relu"},
    "gelu_new": {"hidden_act": "gelu_new"},
    "two segments": {"type_vocab_size": 2},
    "another base": {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
    "linear scaling": {"rope_parameters": {"rope_type": "linear", "rope_theta": 20000.0, "factor": 4.0}},
    "coarse norms": {"layer_norm_eps": 0.1},
}


def write(folder: Path, **options: Any) -> Written:
    """A checkpoint; one with a single segment has it for both texts of a pair, and is not told any."""
    written = write_model(folder, "JinaEmbeddingsV3", **{**SIZES, **options})
    return replace(written, takes_segments=options.get("type_vocab_size", 1) > 1)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_jina_v3_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write(tmp_path, **options))


@pytest.mark.repeated
def test_jina_v3_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    check_onnx(write(tmp_path / "checkpoint", num_hidden_layers=2), tmp_path / "graph")


@pytest.mark.parametrize("kind", ["ForMaskedLM", "ForSequenceClassification", "ForQuestionAnswering"])
def test_an_encoder_under_a_head_is_found(kind: str, tmp_path: Path) -> None:
    """Its names have a prefix, and the head is left out."""
    written = write(tmp_path, architecture=f"JinaEmbeddingsV3{kind}")
    check_torch(replace(written, model=written.model.base_model))


def test_both_kinds_of_names_are_read(tmp_path: Path) -> None:
    """transformers stores the original ones, with one product for q, k and v; its own may be stored too."""
    written, file = write(tmp_path), tmp_path / "model.safetensors"
    assert "encoder.layers.0.mixer.Wqkv.weight" in load_file(file)
    save_file({f"roberta.{name}": x for name, x in written.model.state_dict().items()}, file)
    assert "roberta.layers.0.self_attn.q_proj.weight" in load_file(file)
    check_torch(written)


@pytest.mark.parametrize(
    "adapter",
    [
        "roberta.encoder.layers.0.mixer.Wqkv.parametrizations.weight.0.lora_A",
        "roberta.embeddings.word_embeddings.parametrizations.weight.original",
        "base_model.model.layers.0.self_attn.q_proj.lora_B.retrieval.weight",
    ],
)
def test_adapters_are_refused(adapter: str, tmp_path: Path) -> None:
    """Without them another embedding would be served than the one that was asked for."""
    write(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({**load_file(file), adapter: torch.ones(4, 48)}, file)
    with pytest.raises(
        CheckpointError, match="LoRA adapters, which headlight does not read with model_type jina_emb"
    ):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "code",
    [
        "jinaai/xlm-roberta-flash-implementation--configuration_xlm_roberta.XLMRobertaFlashConfig",
        "configuration_xlm_roberta.XLMRobertaFlashConfig",
    ],
)
def test_the_original_config_is_not_taken_for_xlm_roberta(code: str, tmp_path: Path) -> None:
    """Its model_type names a model with learned positions; what runs it is the code that it names."""
    write_model(tmp_path, "XLMRoberta", **SIZES)
    change_config(tmp_path, auto_map={"AutoConfig": code, "AutoModel": "x--modeling_lora.XLMRobertaLoRA"})
    with pytest.raises(CheckpointError, match=r"unexpected: embeddings\.position_embeddings\.weight"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "code", [{"AutoConfig": "x--configuration_other.OtherConfig"}, {"AutoConfig": None}, {}, None, "text"]
)
def test_other_code_is_ignored(code: Any, tmp_path: Path) -> None:
    """Most of it adds a head, or was merged into transformers: the model_type says what is computed."""
    written = write_model(tmp_path, "XLMRoberta", **SIZES)
    change_config(tmp_path, auto_map=code)
    check_torch(written)
