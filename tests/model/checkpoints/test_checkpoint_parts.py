"""Which weights, heads and labels of a folder count, and the reasons why others are refused."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoints.checkpoint import load_checkpoint
from tests.model.checkpoints.test_checkpoint import Tensors, edit, refusal, rewrite
from tests.references.checkpoints import write_bert


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small BERT."""
    write_bert(tmp_path)
    return tmp_path


@pytest.mark.parametrize("shards", ["old", "missing"])
def test_one_file_of_weights_goes_before_shards(folder: Path, shards: str) -> None:
    """transformers takes the one file; the shards of an earlier save beside it are not even opened."""
    expected = load_checkpoint(folder).encoder.state_dict()
    tensors = load_file(folder / "model.safetensors")
    name = "model-00001-of-00001.safetensors"
    if shards == "old":
        save_file({key: torch.zeros_like(tensor) for key, tensor in tensors.items()}, folder / name)
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, name)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    found = load_checkpoint(folder).encoder.state_dict()
    assert all(torch.equal(found[key], expected[key]) for key in expected)


def test_a_head_that_is_served_is_not_said_to_be_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the parts of its norm are called: gamma and beta are older names."""
    write_bert(tmp_path, architecture="BertForMaskedLM")

    def rename(tensors: Tensors) -> None:
        for name in [name for name in tensors if "LayerNorm" in name]:
            older = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("norm.bias", "norm.beta")
            tensors[older.replace("LayerNorm.bias", "LayerNorm.beta")] = tensors.pop(name)

    rewrite(tmp_path, rename)
    assert load_checkpoint(tmp_path).predictor is not None
    assert "left out" not in caplog.text


def test_a_number_of_labels_goes_before_names_of_others(tmp_path: Path) -> None:
    """As in transformers, which then names the labels anew."""
    from transformers import AutoConfig

    write_bert(tmp_path, architecture="BertForSequenceClassification", num_labels=3)
    edit(tmp_path, "config.json", id2label={"0": "no", "1": "yes"}, num_labels=3)
    predictor = load_checkpoint(tmp_path).predictor
    assert predictor is not None
    assert predictor.info.labels == tuple(AutoConfig.from_pretrained(tmp_path).id2label.values())


def test_a_missing_model_type_is_asked_for(folder: Path) -> None:
    """Not a graph: with the field, the checkpoint can be served."""
    edit(folder, "config.json", model_type=None)
    said = refusal(folder)
    assert "config.json: the field model_type is missing; add it" in said
    assert "onnx" not in said


def test_heads_of_an_architecture_of_its_own_are_called_so(folder: Path) -> None:
    """The files are of one checkpoint, and what they need is named."""
    edit(folder, "config.json", architectures=["AntiBERTy"])
    rewrite(folder, lambda tensors: tensors.update({"cls.species.weight": torch.zeros(3, 32)}))
    said = refusal(folder)
    assert "cls.species.weight belong to the architecture ['AntiBERTy'] of config.json" in said
    assert "same checkpoint" not in said
