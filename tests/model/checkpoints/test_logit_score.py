"""What folders of rerankers that score by the logit of a token must say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model.checkpoints.checkpoint import load_checkpoint
from model.errors import CheckpointError
from tests.model.checkpoints.test_cross_encoder import activation_of
from tests.references.families import change_config
from tests.references.logit_score import FIXED, write_reranker

MODULE = "1_LogitScore/config.json"
SENTENCE = "sentence_bert_config.json"
GENERAL = "config_sentence_transformers.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small one, with a chat template."""
    return write_reranker(tmp_path / "model", tie_word_embeddings=True).folder


def change(folder: Path, name: str, **changes: Any) -> None:
    """Change fields of a JSON file."""
    file = folder / name
    given = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**given, **changes}), encoding="utf-8")


def changed(name: str, **changes: Any) -> Callable[[Path], None]:
    """Return what does so."""
    return lambda folder: change(folder, name, **changes)


def template(text: str | bytes | None) -> Callable[[Path], None]:
    """Return what writes another chat template, or removes it."""

    def write(folder: Path) -> None:
        file = folder / "chat_template.jinja"
        file.unlink()
        if text is not None:
            file.write_bytes(text if isinstance(text, bytes) else text.encode())

    return write


def without_template(folder: Path) -> None:
    template(FIXED)(folder)
    change(folder, GENERAL, prompts={"web": "Find it"}, default_prompt_name="web")


RENDERED = {"processing_kwargs": {"chat_template": {"max_length": 5}}}


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (changed(MODULE, true_token_id=100_000), "true_token_id is 100000, but the model has only "),
        (changed(MODULE, false_token_id=100_000), "false_token_id is 100000, but the model has only "),
        (changed(MODULE, true_token_id=None), "true_token_id is None; it must be a token id."),
        (changed(MODULE, true_token_id=[40]), "true_token_id is [40]; it must be a token id."),
        (changed(MODULE, true_token_id=True), "true_token_id is True; it must be a token id."),
        (changed(MODULE, false_token_id=-1), "false_token_id is -1; it must be a token id."),
        (changed(MODULE, module_input_name="logits"), "module_input_name is 'logits'; only causal_logits"),
        (
            changed(GENERAL, model_type="SentenceTransformer"),
            "model_type 'SentenceTransformer', with the module",
        ),
        (
            changed(SENTENCE, transformer_task="feature-extraction"),
            "only the modality text, with the method forward",
        ),
        (changed(SENTENCE, module_output_name="logits"), "for text-generation only causal_logits is served"),
        (changed(SENTENCE, **RENDERED), "processing_kwargs.chat_template has max_length 5; the tokenizer's"),
        (changed("config.json", architectures=["Qwen3Model"]), "architectures is ['Qwen3Model']; LogitScore"),
        (
            changed("config.json", final_logit_softcapping=30.0),
            "final_logit_softcapping is 30.0; headlight serves LogitScore only",
        ),
        (
            changed("config.json", tie_word_embeddings=False),
            "the weights lack lm_head.weight: use files from",
        ),
        (template(None), "tokenizer_config.json: chat_template is None, but the modality_config of the"),
        (template("{{ messages[0].content }}"), "chat_template.jinja: the chat template does not render"),
        (template(b"\xff"), "chat_template.jinja cannot be read: "),
        (
            template("x" * 60 + "{{ messages[0].content }}{{ messages[1].content }}"),
            "no room for a query and a",
        ),
        (without_template, "default_prompt_name is 'web', but the chat template has no system message to"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_folder_that_cannot_score_is_refused(
    folder: Path, damage: Callable[[Path], None], sentence: str
) -> None:
    """With the file, the field, its value and what to do."""
    damage(folder)
    with pytest.raises(CheckpointError) as refused:
        load_checkpoint(folder)
    assert sentence in str(refused.value)
    assert str(folder) in str(refused.value)


def test_a_module_alone_is_refused(folder: Path) -> None:
    """transformer_task without the module LogitScore, which reads what it returns."""
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    (folder / "modules.json").write_text(json.dumps(modules[:1]), encoding="utf-8")
    with pytest.raises(
        CheckpointError, match=r"transformer_task is text-generation .*without the module Log"
    ):
        load_checkpoint(folder)


def test_older_places_of_a_template_are_read(folder: Path) -> None:
    """tokenizer_config.json has it, alone or among several, in releases of transformers before 5."""
    file = folder / "chat_template.jinja"
    source = file.read_text(encoding="utf-8")
    pair = [("the man", "the boy")]
    expected = load_checkpoint(folder).tokenizer.encode(pair)
    file.unlink()
    for given in (source, [{"name": "tool", "template": "x"}, {"name": "default", "template": source}]):
        change(folder, "tokenizer_config.json", chat_template=given)
        assert load_checkpoint(folder).tokenizer.encode(pair) == expected


def test_another_function_of_scores_is_the_folder_s(folder: Path) -> None:
    """The logit itself; without one in the folder the sigmoid is."""
    change(folder, GENERAL, activation_fn="torch.nn.modules.linear.Identity")
    assert activation_of(folder) == "identity"
    change(folder, GENERAL, activation_fn=None)
    assert activation_of(folder) == "sigmoid"


def test_words_that_are_not_read_are_no_unknown_tensors(folder: Path) -> None:
    """A matrix of words of its own is read for its two rows, and counts as read."""
    written = write_reranker(folder.parent / "own", tie_word_embeddings=False)
    load_checkpoint(written.folder, strict=True)
    change_config(written.folder, tie_word_embeddings=None)
    load_checkpoint(written.folder, strict=True)
