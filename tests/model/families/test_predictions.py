"""What checkpoints predict above their encoders, of every family, against `transformers`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.checkpoints.checkpoint import load_checkpoint
from model.contract import Backend, HeadInfo, HeadKind, LogitsWant, SparseWant, Want
from model.errors import CheckpointError
from model.families.table import FAMILIES
from model.heads.predictor import Predictor
from tests.references.comparing import relative_distance
from tests.references.families import VOCABULARY, Written, change_config, write_model
from tests.references.splade import weights_of
from tests.support.backends import load_checkpoint_as
from tests.support.families import ALIKE, EXACT, SIZES, encoding_of, sample, write_small
from tests.support.product import run

VARIANTS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "modernbert, mean": ("modernbert", {"classifier_pooling": "mean", "classifier_bias": True}),
    "ultrabert, mean": ("ultrabert", {"classifier_pooling": "mean"}),
    "eurobert, mean": ("eurobert", {"classifier_pooling": "mean"}),
}
"""Further small models: their family, and other options."""
ELSEWHERE = {"jina_bert", "jina_bert_qk"}
"""Families without classes in `transformers`: their heads are tested beside their encoders."""


def families_with(head: HeadKind) -> list[str]:
    """The families with a head, and the variants of them."""
    names = [name for name, one in FAMILIES.items() if head in one.predictors and name not in ELSEWHERE]
    return [*names, *(name for name, (family, _) in VARIANTS.items() if family in names)]


def everywhere(head: HeadKind) -> pytest.MarkDecorator:
    """Every family with a head, in PyTorch and as graphs.

    A graph ends before the head, so those of one family are thorough, and those of others only repeat them.
    """
    repeated = pytest.mark.repeated
    alike = {name: [pytest.mark.thorough] for name in ALIKE}
    cases = [
        pytest.param(name, "torch", id=name, marks=alike.get(name, [])) for name in families_with(head)
    ] + [
        pytest.param(
            name,
            "onnx",
            id=f"{name} as a graph",
            marks=pytest.mark.thorough if name == "modernbert, mean" else repeated,
        )
        for name in families_with(head)
    ]
    return pytest.mark.parametrize(("name", "backend"), cases)


def write(folder: Path, name: str, kind: str, **options: Any) -> Written:
    """A small checkpoint with a head."""
    family, others = VARIANTS.get(name, (name, {}))
    return write_small(folder, family, f"For{kind}", **{**others, **options})


def logits_of(backend: Backend, name: str) -> list[Any]:
    """Those of the sample, alone and in one batch."""
    inputs = sample()
    want = Want(heads=(LogitsWant(),))
    together = run(backend, inputs, [want] * len(inputs))
    for encoding, beside in zip(inputs, together, strict=True):
        (alone,) = run(backend, [encoding], [want])
        assert relative_distance(alone.heads[name], beside.heads[name]) <= EXACT
    return [output.heads[name] for output in together]


def check(written: Written, backend: Backend, name: str) -> None:
    """The logits of a backend equal those of transformers."""
    for encoding, ours in zip(sample(), logits_of(backend, name), strict=True):
        theirs = reference(written, encoding.token_ids, encoding.segment_ids)
        assert relative_distance(ours, theirs) <= EXACT


def reference(written: Written, ids: Sequence[int], segments: Sequence[int]) -> torch.Tensor:
    """The logits of transformers for one input, alone."""
    given = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids)).long()}
    if written.takes_segments:
        given["token_type_ids"] = torch.tensor([segments])
    with torch.inference_mode():
        logits: torch.Tensor = written.model(**given).logits[0]
    return logits


@pytest.mark.in_turns
@everywhere("classification")
def test_classes_of_a_sequence_are_the_reference_s(name: str, backend: str, tmp_path: Path) -> None:
    """Their logits, whatever the family pools and however many layers follow."""
    written = write(tmp_path / "checkpoint", name, "SequenceClassification", num_labels=5)
    _, loaded = load_checkpoint_as(backend, written.folder)
    assert loaded.info.head == HeadInfo("classification", tuple(f"LABEL_{i}" for i in range(5)), "softmax")
    check(written, loaded, "logits")


@pytest.mark.parametrize("backend", ["torch", pytest.param("onnx", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(("name", "stated"), [("qwen3", 7), ("qwen3", None), ("gemma", 7), ("gemma", None)])
def test_decoders_pool_the_last_token_that_is_not_padding(
    name: str, stated: int | None, backend: str, tmp_path: Path
) -> None:
    """Also where the text itself ends in it; Gemma's is 0 if config.json says nothing, Qwen has none then."""
    options = {} if stated is None else {"pad_token_id": stated}
    written = write(tmp_path / "checkpoint", name, "SequenceClassification", num_labels=3, **options)
    if stated is None:
        change_config(written.folder, pad_token_id=None)
    _, loaded = load_checkpoint_as(backend, written.folder)
    padding = written.model.config.pad_token_id
    assert padding == (stated if stated is not None else {"gemma": 0}.get(name))
    inputs = [encoding_of(ids) for ids in ([9, 8, 7], [9, 0, 7, 7], [7, 7], [0], [7, 9, 7, 0, 7, 8])]
    outputs = run(loaded, inputs, [Want(heads=(LogitsWant(),))] * len(inputs))
    for encoding, output in zip(inputs, outputs, strict=True):
        theirs = reference(written, encoding.token_ids, encoding.segment_ids)
        assert relative_distance(output.heads["logits"], theirs) <= EXACT


@pytest.mark.in_turns
@everywhere("token_classification")
def test_classes_of_tokens_are_the_reference_s(name: str, backend: str, tmp_path: Path) -> None:
    """The logits of every token."""
    written = write(tmp_path / "checkpoint", name, "TokenClassification", num_labels=3)
    check(written, load_checkpoint_as(backend, written.folder)[1], "token_logits")


@pytest.mark.in_turns
@everywhere("masked_words")
def test_masked_words_are_the_reference_s(name: str, backend: str, tmp_path: Path) -> None:
    """The logits of every word of the vocabulary, at every token; and the weights of SPLADE from them."""
    written = write(tmp_path / "checkpoint", name, "MaskedLM", tie_word_embeddings=True)
    _, loaded = load_checkpoint_as(backend, written.folder)
    assert loaded.info.head == HeadInfo("masked_words", size=VOCABULARY)
    check(written, loaded, "token_logits")
    inputs = sample()
    outputs = run(loaded, inputs, [Want(heads=(SparseWant(),))] * len(inputs))
    for encoding, output in zip(inputs, outputs, strict=True):
        logits = reference(written, encoding.token_ids, encoding.segment_ids).numpy()
        expected, found = weights_of(logits), np.zeros(VOCABULARY)
        found[output.heads["sparse_ids"]] = output.heads["sparse_weights"]
        assert relative_distance(found, expected) <= EXACT


@pytest.mark.parametrize(
    ("labels", "problem", "activation"),
    [
        (1, None, "sigmoid"),
        (3, None, "softmax"),
        (3, "single_label_classification", "softmax"),
        (3, "multi_label_classification", "sigmoid"),
        (1, "regression", "identity"),
    ],
)
def test_the_problem_says_how_logits_become_scores(
    labels: int, problem: str | None, activation: str, tmp_path: Path
) -> None:
    """As the pipelines of transformers choose it."""
    write(tmp_path, "bert", "SequenceClassification", num_labels=labels)
    change_config(tmp_path, problem_type=problem)
    found = predictor_in(tmp_path)
    assert found is not None
    assert found.info.activation == activation


def predictor_in(folder: Path) -> Predictor | None:
    """What the checkpoint in a folder predicts with."""
    return load_checkpoint(folder).predictor


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem_type": "ranking"}, "problem_type is 'ranking'; it must be one of regression, single_"),
        ({"id2label": {"0": "a"}}, "id2label names 1 labels, but the weights predict 2: it must map each"),
        (
            {"id2label": {"0": "a" * 2000, "1": "b"}},
            "id2label has a name of 2000 characters; the limit is 1000",
        ),
        ({"id2label": ["a", "b"]}, "id2label is ['a', 'b']; it must map numbers to at most"),
        (
            {"architectures": ["RobertaForSequenceClassification"], "model_type": "roberta"},
            "config.json says RobertaForSequenceClassification, but the weights lack classifier.dense.weight",
        ),
    ],
)
def test_a_head_that_is_not_understood_ends_the_start(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """With the field or the weight that is the reason."""
    write(tmp_path, "bert", "SequenceClassification")
    change_config(tmp_path, **changes)
    with pytest.raises(CheckpointError) as refused:
        load_checkpoint(tmp_path)
    assert message in str(refused.value)


def test_an_encoder_that_was_trained_on_masked_words_needs_no_head(tmp_path: Path) -> None:
    """Many name that architecture in their config, without the weights."""
    write_model(tmp_path, "Bert", **SIZES)
    change_config(tmp_path, architectures=["BertForMaskedLM"])
    assert predictor_in(tmp_path) is None
