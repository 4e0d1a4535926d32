"""What sentence-transformers writes about a transformer does what it says, or is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from model.checkpoints.folder import read_folder
from model.errors import CheckpointError
from model.keys.files import SENTENCE_FILES
from tests.references.checkpoints import write_bert

LAST = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small BERT with two layers and 64 positions, in the form of sentence-transformers."""
    write_bert(tmp_path)
    entry = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    (tmp_path / "modules.json").write_text(json.dumps([entry]), encoding="utf-8")
    return tmp_path


def write(folder: Path, name: str = SENTENCE_FILES[0], **fields: Any) -> None:
    (folder / name).write_text(json.dumps(fields), encoding="utf-8")


def output(read: Any, name: str = "token_embeddings", **others: Any) -> dict[str, Any]:
    text = {"text": {"method": "forward", "method_output_name": read}}
    return {"modality_config": {**text, **others}, "module_output_name": name}


@pytest.mark.parametrize(
    "config",
    [
        output(["hidden_states", 1]),
        output("pooler_output"),
        output("last_hidden_state", "sentence_embedding"),
        output("last_hidden_state", message=LAST["text"]),
        {"modality_config": LAST},
        {"modality_config": {"image": LAST["text"]}, "module_output_name": "token_embeddings"},
        {"modality_config": {"text": {"method": "encode", "method_output_name": "last_hidden_state"}}},
        {"transformer_task": "text-generation"},
        {"processing_kwargs": {"text": {"add_special_tokens": False}}},
        {"processing_kwargs": {"common": {"truncation": False}}},
        {"processing_kwargs": {"text": {"is_split_into_words": True}}},
        {"processing_kwargs": ["text"]},
        {"config_args": {"num_hidden_layers": 1}},
        {"config_kwargs": {"hidden_act": "relu"}},
        {"model_args": {"quantization_config": {"load_in_8bit": True}}},
        {"tokenizer_args": {"split_special_tokens": True}},
        {"query_length": 32},
        {"max_seq_length": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", SENTENCE_FILES[::6])
def test_what_would_change_vectors_is_refused(folder: Path, name: str, config: dict[str, Any]) -> None:
    """The sentence names the file, the key and its value, and what to do instead."""
    write(folder, name, **config)
    with pytest.raises(CheckpointError) as refusal:
        read_folder(folder)
    said = str(refusal.value)
    assert f"{folder / name}: " in said
    assert any(key in said for key in (*config, "module_output_name", "split_special_tokens"))


@pytest.mark.parametrize(
    ("config", "length"),
    [
        (output("last_hidden_state"), 64),
        (output(["last_hidden_state"]), 64),
        (output(["hidden_states", -1], image=LAST["text"]), 64),
        ({"config_args": {"num_hidden_layers": 2, "hidden_dropout_prob": 0.3}}, 64),
        ({"model_kwargs": {"torch_dtype": "float16", "attn_implementation": "sdpa"}}, 64),
        ({"max_seq_length": 20}, 20),
        ({"max_seq_length": 20, "processing_kwargs": {"text": {"max_length": 30, "padding": True}}}, 30),
        ({"processing_kwargs": {"text": {"max_length": 30}, "common": {"max_length": 31}}}, 31),
        ({"max_seq_length": 20, "tokenizer_args": {"model_max_length": 40}}, 40),
        ({"processor_kwargs": {"model_max_length": 40}, "tokenizer_args": {"model_max_length": 41}}, 41),
        ({"tokenizer_args": {"use_fast": True, "revision": "main"}, "unpad_inputs": True}, 64),
    ],
    ids=str,
)
def test_the_longest_text_is_sentence_transformers_own(
    folder: Path, config: dict[str, Any], length: int
) -> None:
    """What is called with goes before what is loaded with, and that before the tokenizer's files."""
    write(folder, **config)
    tokenizer = read_folder(folder, strict=True).tokenizer
    assert tokenizer.max_length == length
    (encoding,) = tokenizer.encode(["a " * 100])
    assert len(encoding) == length


def test_settings_of_the_tokenizer_are_those_it_is_loaded_with(folder: Path) -> None:
    """As AutoTokenizer takes them as arguments."""
    from transformers import AutoTokenizer

    settings = {"do_lower_case": False, "truncation_side": "left", "bos_token": "hello"}
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}', encoding="utf-8")
    write(folder, tokenizer_args=settings)
    theirs = AutoTokenizer.from_pretrained(folder, model_max_length=64, **settings)
    ours = read_folder(folder).tokenizer
    for text in ("Hello hello a", "abcd " * 50):
        assert ours.encode([text])[0].token_ids == theirs(text, truncation=True)["input_ids"]


@pytest.mark.parametrize("name", SENTENCE_FILES)
def test_each_of_the_seven_names_is_read(folder: Path, name: str) -> None:
    """The first that says something counts."""
    write(folder, max_seq_length=11)
    write(folder, name, max_seq_length=10)
    if name != SENTENCE_FILES[0]:
        write(folder)
    assert read_folder(folder).tokenizer.max_length == 10
