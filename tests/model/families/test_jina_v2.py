"""jina-embeddings-v2 in both versions of its code, against plain numpy."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from model.checkpoints.checkpoint import load_checkpoint
from model.errors import CheckpointError
from tests.model.families.test_predictions import logits_of
from tests.references.comparing import relative_distance
from tests.references.families import change_config
from tests.references.jina import PLAIN, QK, Head, write_jina
from tests.support.backends import load_checkpoint_as, torch_or_graph
from tests.support.families import EXACT, check_onnx, check_torch, sample

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "reglu": {"feed_forward_type": "reglu"},
    "one layer, one head": {"num_hidden_layers": 1, "num_attention_heads": 1},
    "heads of a power of two": {"num_attention_heads": 4},
    "twelve heads": {"num_attention_heads": 12},
    "coarse norms": {"layer_norm_eps": 0.1},
}


@pytest.mark.in_turns
@pytest.mark.parametrize("code", [PLAIN, QK], ids=["plain", "qk"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_of_jina_v2_is_the_reference_s(options: Any, code: str, tmp_path: Path) -> None:
    """Hidden states and maps of every layer, with kernels and without, alone and beside others."""
    check_torch(write_jina(tmp_path, code, **options))


@pytest.mark.parametrize("act", ["gelu", "relu"])
def test_feed_forward_layers_without_a_gate(act: str, tmp_path: Path) -> None:
    """The original ones are those of BERT, under its names."""
    check_torch(write_jina(tmp_path, feed_forward_type="original", hidden_act=act))


@pytest.mark.parametrize("code", [PLAIN, QK], ids=["plain", "qk"])
@pytest.mark.repeated
def test_jina_v2_runs_as_a_graph(code: str, tmp_path: Path) -> None:
    """Exported, it passes the comparison of the export, and gives the reference's states and maps."""
    check_onnx(write_jina(tmp_path / "checkpoint", code, num_hidden_layers=2), tmp_path / "graph")


def test_an_encoder_under_a_head_is_found(tmp_path: Path) -> None:
    """Its names have a prefix."""
    check_torch(write_jina(tmp_path, prefix="bert."))


@torch_or_graph
@pytest.mark.parametrize("code", [PLAIN, QK], ids=["plain", "qk"])
@pytest.mark.parametrize("head", get_args(Head))
def test_its_heads_are_those_of_bert(head: Head, code: str, backend: str, tmp_path: Path) -> None:
    """The logits of a sequence, and of every token."""
    reference = write_jina(tmp_path / "checkpoint", code, prefix="bert.", head=head)
    _, loaded = load_checkpoint_as(backend, reference.folder)
    name = "logits" if head == "SequenceClassification" else "token_logits"
    for encoding, ours in zip(sample(), logits_of(loaded, name), strict=True):
        expected = reference.predict(head, encoding.token_ids, encoding.segment_ids)
        assert relative_distance(ours, expected) <= EXACT


@pytest.mark.parametrize(
    ("code", "family"), [(PLAIN, "jina_bert"), (QK, "jina_bert_qk"), (PLAIN.partition("--")[2], "jina_bert")]
)
def test_the_code_says_which_family_it_is(code: str, family: str, tmp_path: Path) -> None:
    """Also where the code lies in the folder itself; every position is for a text."""
    write_jina(tmp_path, code)
    folder = load_checkpoint(tmp_path).folder
    assert (folder.family.name, folder.tokenizer.max_length) == (family, 64)


def test_the_versions_are_not_confused(tmp_path: Path) -> None:
    """Code in the folder itself does not say its version; the weights of the other one do not fit."""
    write_jina(tmp_path, QK)
    change_config(tmp_path, auto_map={"AutoConfig": PLAIN.partition("--")[2]})
    with pytest.raises(CheckpointError, match=r"unexpected: .*layer_norm_k"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("code", "changes", "sentence"),
    [
        (PLAIN, {"position_embedding_type": "absolute"}, "is not supported with jina's code"),
        (PLAIN, {"position_embedding_type": None}, "is not supported with jina's code"),
        (PLAIN, {"feed_forward_type": "swiglu"}, 'feed_forward_type "swiglu" is not supported'),
        (PLAIN, {"is_decoder": True}, "is_decoder is set"),
        (QK, {"feed_forward_type": "original"}, "with layer norms of queries and keys"),
    ],
)
def test_what_is_not_computed_is_refused(code: str, changes: Any, sentence: str, tmp_path: Path) -> None:
    """In one sentence that names the field."""
    write_jina(tmp_path, code)
    change_config(tmp_path, **changes)
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(tmp_path)


def test_without_its_code_it_is_not_taken_for_bert(tmp_path: Path) -> None:
    """A config that lost its auto_map still has positions that BERT does not know."""
    write_jina(tmp_path)
    change_config(tmp_path, auto_map=None)
    assert "auto_map" not in json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    with pytest.raises(CheckpointError, match='position_embedding_type "alibi" is not supported'):
        load_checkpoint(tmp_path)
