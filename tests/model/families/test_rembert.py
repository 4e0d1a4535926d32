"""RemBERT, against `transformers`."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer, processors

from model.checkpoints.folder import read_folder
from model.errors import CheckpointError
from tests.references.families import change_config, write_model
from tests.support import families
from tests.support.families import check_onnx, check_torch

SIZES = {**families.SIZES, "input_embedding_size": 20, "output_embedding_size": 56}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one head of an odd size": {"hidden_size": 30, "num_attention_heads": 1},
    "one layer": {"num_hidden_layers": 1},
    "relu": {"hidden_act": "relu"},
    "gelu_new": {"hidden_act": "gelu_new"},
    "one segment": {"type_vocab_size": 1},
    "as wide embeddings, still projected": {"input_embedding_size": 48},
    "narrow embeddings": {"input_embedding_size": 9},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_rembert_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_model(tmp_path, "RemBert", **{**SIZES, **options}))


@pytest.mark.repeated
def test_rembert_runs_as_a_graph(tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    written = write_model(tmp_path / "checkpoint", "RemBert", **SIZES)
    check_onnx(written, tmp_path / "graph")


TEXTS = ("", " ", "the man", "A b,  C'", "``the'' man", "été  İ日", "the [SEP] man[MASK] <unk>", "a\tb\nc")
SPECIAL = ("<pad>", "</s>", "<unk>", "[CLS]", "[SEP]", "[MASK]")


@pytest.mark.parametrize(("accents", "lower"), [(True, False), (True, True), (False, False)])
def test_a_tokenizer_json_gives_the_reference_s_ids(accents: bool, lower: bool, tmp_path: Path) -> None:
    """Of single texts and pairs; other settings beside it than its own end the start."""
    write_model(tmp_path, "RemBert", **SIZES)
    pieces = [*"▁abcdefhimntéABC,'\"", "▁the", "▁man", "▁İ"]
    vocabulary = [*((one, 0.0) for one in SPECIAL), *((one, -1.0 - n / 9) for n, one in enumerate(pieces))]
    kind = transformers.RemBertTokenizer
    kind(vocab=vocabulary, keep_accents=accents, do_lower_case=lower).save_pretrained(tmp_path)
    file = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    around = [(one, SPECIAL.index(one)) for one in ("[CLS]", "[SEP]")]
    file.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=around
    )
    file.save(str(tmp_path / "tokenizer.json"))
    theirs, ours = kind.from_pretrained(tmp_path), read_folder(tmp_path).tokenizer
    for text in TEXTS:
        assert ours.encode([text])[0].token_ids == theirs(text)["input_ids"]
        pair = theirs(text, "the man", return_token_type_ids=True)
        (found,) = ours.encode([(text, "the man")])
        assert (found.token_ids, found.segment_ids) == (pair["input_ids"], pair["token_type_ids"])
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "do_lower_case": not lower}))
    with pytest.raises(CheckpointError, match=r"do_lower_case is (true|false), but tokenizer\.json does"):
        read_folder(tmp_path)


def test_what_a_config_leaves_out_is_the_library_s_default(tmp_path: Path) -> None:
    """Embeddings of 256."""
    written = write_model(tmp_path, "RemBert", **{**SIZES, "input_embedding_size": 256})
    change_config(tmp_path, input_embedding_size=None)
    check_torch(written)
