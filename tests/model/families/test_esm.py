"""ESM-1b and ESM-2, against `transformers`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoints.checkpoint import load_checkpoint
from model.errors import CheckpointError
from tests.references.families import Written, change_config, write_model
from tests.support import families
from tests.support.families import check_onnx, check_torch, encoding_of, sample

MASK = 32
SIZES = {**families.SIZES, "pad_token_id": 1, "mask_token_id": MASK}
ESM_2: dict[str, Any] = {"position_embedding_type": "rotary", "token_dropout": True, "layer_norm_eps": 1e-5}

OPTIONS: dict[str, dict[str, Any]] = {
    "ESM-2": ESM_2,
    "ESM-1b": {"token_dropout": True, "emb_layer_norm_before": True},
    "plain": {},
    "rotary": {"position_embedding_type": "rotary"},
    "rotary after a norm": {**ESM_2, "emb_layer_norm_before": True},
    "another base": {**ESM_2, "rope_theta": 500.0},
    "another mask": {**ESM_2, "mask_token_id": 7},
    "another padding id": {"pad_token_id": 3},
    "one layer, one head": {**ESM_2, "num_hidden_layers": 1, "num_attention_heads": 1},
    "coarse norms": {**ESM_2, "layer_norm_eps": 0.1},
}

MASKED = [
    encoding_of(ids)
    for ids in ([5, MASK, 7, 8], [MASK, 9], [7, 8, 9], [MASK, MASK, 4, MASK, 9, 1, 30, 7], [1, 5, 7, MASK])
]
"""Texts with masks, one with none, and some with the padding token."""


@pytest.mark.in_turns
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_esm_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    written = write_model(tmp_path, "Esm", **{**SIZES, **options})
    check_torch(written, [*sample(), *MASKED])


@pytest.mark.parametrize("kind", ["ESM-1b", "ESM-2"])
@pytest.mark.repeated
def test_esm_runs_as_a_graph(kind: str, tmp_path: Path) -> None:
    """Exported, it counts the masks of each sequence, and not of its padding."""
    written = write_model(
        tmp_path / "checkpoint", "Esm", **{**SIZES, **OPTIONS[kind], "num_hidden_layers": 2}
    )
    check_onnx(written, tmp_path / "graph", [*sample(), *MASKED])


def test_a_text_of_masks_alone_is_finite(tmp_path: Path) -> None:
    """The reference divides zero by zero; here every embedding is zero."""
    write_model(tmp_path, "Esm", **SIZES, **ESM_2)
    embeddings = load_checkpoint(tmp_path).encoder.embeddings
    ids = torch.tensor([MASK, MASK])
    weights = embeddings.token_weights(ids, lambda masks: (masks.sum(), torch.tensor(2)))
    assert weights is not None
    assert weights.tolist() == [0, 0]


@pytest.mark.parametrize(
    "architecture", ["EsmForMaskedLM", "EsmForSequenceClassification", "EsmForTokenClassification"]
)
def test_an_encoder_under_a_head_is_found(architecture: str, tmp_path: Path) -> None:
    """Heads are left out, and so is the one for contacts, which lies in the encoder."""
    written = write_model(tmp_path, "Esm", architecture=architecture, **SIZES, **ESM_2)
    check_torch(replace(written, model=written.model.base_model), MASKED)


def rounded(folder: Path) -> Written:
    """ESM-2 whose frequencies are rounded to float16, as some were in training."""
    written = write_model(folder, "Esm", **SIZES, **ESM_2)
    frequencies = written.model.rotary_embeddings.inv_freq
    frequencies.copy_(frequencies.half().float())
    written.model.save_pretrained(folder)
    return written


def test_frequencies_are_those_that_are_stored(tmp_path: Path) -> None:
    """A model has learned with the rounded ones: with the exact ones, maps of 40 tokens differ by 5e-4."""
    check_torch(rounded(tmp_path))


def test_older_checkpoints_repeat_the_frequencies_in_each_layer(tmp_path: Path) -> None:
    """With a table of positions that rotary positions leave unused; both are in the files of ESM-2."""
    written = rounded(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = {f"esm.{name}": x for name, x in load_file(file).items() if "inv_freq" not in name}
    frequencies = written.model.rotary_embeddings.inv_freq
    for layer in range(3):
        name = f"esm.encoder.layer.{layer}.attention.self.rotary_embeddings.inv_freq"
        tensors[name] = frequencies.clone()
    tensors["esm.embeddings.position_embeddings.weight"] = torch.ones(64, 48)
    save_file(tensors, file)
    check_torch(written)
    tensors["esm.rotary_embeddings.inv_freq"] = torch.ones(3)
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match="it must have 8 frequencies"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"is_folding_model": True}, "not ESMFold"),
        ({"is_decoder": True}, "is_decoder is set"),
        ({"mask_token_id": None}, "token_dropout needs the mask token's id"),
        ({"mask_token_id": True}, "mask_token_id is True"),
        ({"token_dropout": "yes"}, "token_dropout is 'yes'"),
        ({"position_embedding_type": "relative_key"}, 'only "absolute" or "rotary"'),
    ],
)
def test_what_is_not_computed_is_refused(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    """In one sentence that names the field."""
    write_model(tmp_path, "Esm", **SIZES, **ESM_2)
    change_config(tmp_path, **changes)
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(tmp_path)


def test_rotary_positions_leave_all_the_length(tmp_path: Path) -> None:
    """Of learned ones, those up to the padding id are not for a text."""
    write_model(tmp_path, "Esm", **SIZES, **ESM_2)
    assert load_checkpoint(tmp_path).folder.tokenizer.max_length == 64
    write_model(tmp_path, "Esm", **SIZES)
    assert load_checkpoint(tmp_path).folder.tokenizer.max_length == 62
