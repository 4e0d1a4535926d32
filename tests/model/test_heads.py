"""A BERT that was trained for something is served for its encoder, and the log says what is left out."""

import json
import logging
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoints.checkpoint import load_checkpoint
from model.errors import CheckpointError
from model.loading import load_model
from tests.model.checkpoints.test_layout import BEFORE, write, write_modules
from tests.references.checkpoints import Reference, write_bert
from tests.references.comparing import relative_distance
from tests.references.families import change_config
from tests.support.product import run, want_all
from tests.support.serving import ROOT

pytestmark = pytest.mark.thorough

TEXTS = ["the man beats the boy", "hello world", "a"]
HEADS = {
    "BertForSequenceClassification": None,
    "BertForTokenClassification": None,
    "BertForMultipleChoice": "classes (classifier.bias, classifier.weight)",
    "BertForQuestionAnswering": "answers within a text (qa_outputs.bias, qa_outputs.weight)",
    "BertForMaskedLM": None,
    "BertForNextSentencePrediction": "the next sentence (cls.seq_relationship.bias, ",
    "BertForPreTraining": "the next sentence (cls.seq_relationship.bias, ",
}
"""What is left out of a checkpoint; None if its head is served."""


@pytest.mark.parametrize("architecture", HEADS)
def test_the_encoder_of_a_trained_model_is_served(
    architecture: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every state and map is that of the encoder inside, pooler or none; a line names a head that is not."""
    write_bert(tmp_path, architecture=architecture)
    assert any(name.startswith("bert.") for name in load_file(tmp_path / "model.safetensors"))
    with caplog.at_level(logging.INFO):
        tokenizer, backend = load_model(str(tmp_path), device="cpu", dtype="float32")
    lines = [
        record.getMessage() for record in caplog.records if record.name == "model.checkpoints.checkpoint"
    ]
    left_out = HEADS[architecture]
    assert len(lines) == (left_out is not None)
    start = f"{tmp_path}: only the encoder is served; the head for {left_out}"
    assert all(line.startswith(start) for line in lines)
    reference = Reference.load(tmp_path)
    for text, encoding in zip(TEXTS, tokenizer.encode(TEXTS), strict=True):
        (output,) = run(backend, [encoding], [want_all(backend)])
        columns = reference.tokenize(text, 64)
        states, maps = reference.run(columns["input_ids"], columns["token_type_ids"])
        assert relative_distance(output.tokens, states) <= 1e-5
        assert relative_distance(output.attention, maps) <= 1e-5


def test_of_an_encoder_alone_nothing_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its pooler is no head: it is left out in silence, as ever."""
    write_bert(tmp_path)
    with caplog.at_level(logging.INFO):
        load_checkpoint(tmp_path)
    assert not [record for record in caplog.records if record.name == "model.checkpoints.checkpoint"]


# ----------------------------------------------------------------------------------- conversions


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    return str(caught.value)


def commands(sentence: str) -> list[str]:
    """The commands that a refusal names."""
    return re.findall(r"`(python -c [^`]+)`", sentence)


def obey(sentence: str) -> int:
    """Run the commands that a refusal names, as they stand there; say how many."""
    found = commands(sentence)
    for command in found:
        _, *arguments = shlex.split(command)
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, check=False, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
    return len(found)


def pickle_weights(folder: Path, name: str) -> None:
    """Put pickled weights in the place of safetensors."""
    torch.save(load_file(folder / "model.safetensors"), folder / name)
    (folder / "model.safetensors").unlink()


def take_vocabulary_apart(folder: Path, tokenizer_class: str | None = "BertTokenizer") -> None:
    """Leave a vocab.txt in the place of tokenizer.json, as old folders have it."""
    vocabulary = load_checkpoint(folder).tokenizer._whole.get_vocab()
    words = sorted(vocabulary, key=lambda word: vocabulary[word])
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (folder / "tokenizer.json").unlink()
    write(folder, "tokenizer_config.json", {"tokenizer_class": tokenizer_class, "model_max_length": 64})


@pytest.mark.parametrize(
    ("tokenizer_class", "count"), [("BertTokenizer", 1), (None, 1), ("LayoutLMTokenizer", 2)]
)
def test_an_old_folder_is_served_once_its_lines_were_run(
    tokenizer_class: str | None, count: int, tmp_path: Path
) -> None:
    """Pickled weights and a plain vocabulary: one refusal, its commands, and the same numbers as before.

    A tokenizer of a known class is built; that of another is converted by a second command.
    """
    folder = tmp_path / "it's old"
    write_bert(folder, architecture="BertForSequenceClassification")
    tokenizer, before = load_model(str(folder), device="cpu", dtype="float32")
    encodings = tokenizer.encode(TEXTS)
    expected = run(before, encodings, [want_all(before)] * len(TEXTS))
    take_vocabulary_apart(folder, tokenizer_class)
    pickle_weights(folder, "pytorch_model.bin")
    sentence = refusal(folder)
    first = (
        "model.safetensors is missing" if count == 1 else "tokenizer.json is missing: to convert vocab.txt"
    )
    assert sentence.startswith(f"{folder}/{first}")
    assert obey(sentence) == count
    tokenizer, after = load_model(str(folder), device="cpu", dtype="float32")
    assert [e.token_ids for e in tokenizer.encode(TEXTS)] == [e.token_ids for e in encodings]
    for one, other in zip(run(after, encodings, [want_all(after)] * len(TEXTS)), expected, strict=True):
        assert relative_distance(one.tokens, other.tokens) <= 1e-6


def test_pickled_weights_alone_take_one_line(tmp_path: Path) -> None:
    """The tokenizer is there already."""
    write_bert(tmp_path)
    pickle_weights(tmp_path, "pytorch_model.bin")
    sentence = refusal(tmp_path)
    assert "only safetensors are read; to convert the pickled weights (pytorch_model.bin), run" in sentence
    assert "from transformers import BertModel; BertModel.from_pretrained" in sentence
    assert len(commands(sentence)) == 1


def test_the_commands_name_the_classes_of_the_folder(tmp_path: Path) -> None:
    """Of its architecture, so that what it predicts with is kept; of a vocab.txt that no family reads."""
    write_bert(tmp_path, architecture="BertForSequenceClassification")
    take_vocabulary_apart(tmp_path, "AlbertTokenizer")
    pickle_weights(tmp_path, "pytorch_model.bin")
    tokenizer, weights = commands(refusal(tmp_path))
    assert "from transformers import BertTokenizer; BertTokenizer.from_pretrained" in tokenizer
    assert "BertForSequenceClassification; BertForSequenceClassification.from_pretrained" in weights
    change_config(tmp_path, architectures=["os; import x"])
    assert "from transformers import AutoModel; AutoModel.from_pretrained" in refusal(tmp_path)


def test_a_tokenizer_that_knows_nothing_ends_the_start(tmp_path: Path) -> None:
    """As those saved from a file that their class does not read: five tokens, and [UNK] for all else."""
    write_bert(tmp_path)
    file = tmp_path / "tokenizer.json"
    made = json.loads(file.read_text(encoding="utf-8"))
    special = {token["content"] for token in made["added_tokens"]} | {made["model"]["unk_token"]}
    vocabulary = made["model"]["vocab"]
    made["model"]["vocab"] = {token: number for token, number in vocabulary.items() if token in special}
    file.write_text(json.dumps(made), encoding="utf-8")
    assert "turns everything in test texts of eight scripts into the same token" in refusal(tmp_path)


def test_a_pickled_linear_layer_is_converted_too(tmp_path: Path) -> None:
    """A Dense module of an old folder of sentence-transformers."""
    write_bert(tmp_path)
    write_modules(tmp_path, *(f"{BEFORE}.{kind}" for kind in ("Transformer", "Pooling", "Dense")))
    write(tmp_path, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    write(tmp_path, "2_Dense/config.json", {"in_features": 32, "out_features": 8, "bias": True})
    dense = {"linear.weight": torch.ones(8, 32), "linear.bias": torch.zeros(8)}
    save_file(dense, tmp_path / "2_Dense/model.safetensors")
    pickle_weights(tmp_path / "2_Dense", "pytorch_model.bin")
    assert obey(refusal(tmp_path)) == 1
    assert load_checkpoint(tmp_path).folder.dense[0].size(32) == 8


@pytest.mark.parametrize("name", ["tf_model.h5", "flax_model.msgpack", "model.Q8_0.gguf"])
def test_weights_of_other_libraries_are_not_fetched_again(name: str, tmp_path: Path) -> None:
    """They would be the same: another copy of the model is needed."""
    write_bert(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / name)
    assert refusal(tmp_path).endswith(f", not {name}: use a copy of the model that has safetensors.")


@pytest.mark.parametrize("left", ["nothing", "config.json"])
def test_a_folder_with_neither_says_what_is_missing(left: str, tmp_path: Path) -> None:
    """No command can make weights or a vocabulary out of nothing."""
    write_bert(tmp_path / "whole")
    (tmp_path / "model").mkdir()
    if left != "nothing":
        shutil.copy(tmp_path / "whole" / left, tmp_path / "model")
    sentence = refusal(tmp_path / "model")
    assert not commands(sentence)
    assert "is missing: fetch the model again, with all its files." in sentence
