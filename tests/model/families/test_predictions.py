"""What checkpoints predict above their encoders, of every family, against `transformers`."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from export.pipeline import export
from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.folder import read_folder
from model.contract import Backend, HeadInfo, LogitsWant, Want
from model.errors import CheckpointError
from model.heads.predictor import Predictor
from model.onnx.backend import OnnxBackend
from model.onnx.file import find_graph
from model.pytorch.backend import TorchBackend
from tests.references.comparing import distance
from tests.references.families import VOCABULARY, Written, change_config, write_model
from tests.support.families import SIZES, sample
from tests.support.product import run

NAMES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "bert": ("Bert", SIZES),
    "roberta": ("Roberta", SIZES),
    "xlm-roberta": ("XLMRoberta", SIZES),
    "camembert": ("Camembert", SIZES),
    "distilbert": (
        "DistilBert",
        {"dim": 48, "n_layers": 2, "n_heads": 3, "hidden_dim": 40, "max_position_embeddings": 64},
    ),
    "electra": ("Electra", {**SIZES, "embedding_size": 16}),
    "albert": ("Albert", {**SIZES, "embedding_size": 16}),
    "mpnet": ("MPNet", SIZES),
    "deberta-v2": ("DebertaV2", {**SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "modernbert": ("ModernBert", {**SIZES, "classifier_pooling": "cls"}),
    "modernbert, mean": ("ModernBert", {**SIZES, "classifier_pooling": "mean", "classifier_bias": True}),
    "eurobert": ("EuroBert", {**SIZES, "num_key_value_heads": 3, "classifier_pooling": "bos"}),
    "eurobert, mean": ("EuroBert", {**SIZES, "num_key_value_heads": 3, "classifier_pooling": "mean"}),
    "nomic_bert": ("NomicBert", SIZES),
    "gte": ("Gte", SIZES),
    "jina_embeddings_v3": ("JinaEmbeddingsV3", SIZES),
    "esm": ("Esm", {**SIZES, "position_embedding_type": "rotary", "pad_token_id": 1}),
}
"""What the names of a family's classes begin with, and a config."""
WITHOUT_CLASSES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "t5": ("T5", {"d_model": 48, "d_kv": 16, "num_layers": 2, "num_heads": 3, "d_ff": 40}),
}
every_family = pytest.mark.parametrize("name", NAMES)


def write(folder: Path, name: str, kind: str, **options: Any) -> Written:
    """A small checkpoint of a family with a head."""
    names, config = (NAMES | WITHOUT_CLASSES)[name]
    architecture = f"{names}For{kind}"
    return write_model(folder, names, architecture=architecture, **{**config, **options})


def logits_of(backend: Backend, name: str) -> list[Any]:
    """Those of the sample, alone and in one batch."""
    inputs = sample()
    want = Want(heads=(LogitsWant(),))
    together = run(backend, inputs, [want] * len(inputs))
    for encoding, beside in zip(inputs, together, strict=True):
        (alone,) = run(backend, [encoding], [want])
        assert distance(alone.heads[name], beside.heads[name]) <= 1e-5
    return [output.heads[name] for output in together]


def check(written: Written, backend: Backend, name: str, bound: float) -> None:
    """The logits of a backend equal those of transformers."""
    for encoding, ours in zip(sample(), logits_of(backend, name), strict=True):
        theirs = reference(written, encoding.token_ids, encoding.segment_ids)
        assert ours.shape == theirs.shape
        assert distance(ours, theirs) <= bound * max(1.0, float(theirs.abs().max()))


def reference(written: Written, ids: Sequence[int], segments: Sequence[int]) -> torch.Tensor:
    """The logits of transformers for one input, alone."""
    given = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids)).long()}
    if written.takes_segments:
        given["token_type_ids"] = torch.tensor([segments])
    with torch.inference_mode():
        logits: torch.Tensor = written.model(**given).logits[0]
    return logits


@every_family
def test_classes_of_a_sequence_are_the_reference_s(name: str, tmp_path: Path) -> None:
    """Their logits, whatever the family pools and however many layers follow."""
    written = write(tmp_path, name, "SequenceClassification", num_labels=5)
    backend = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype="float32")
    assert backend.info.head == HeadInfo("classification", tuple(f"LABEL_{i}" for i in range(5)), "softmax")
    check(written, backend, "logits", 1e-5)


@pytest.mark.parametrize("name", [*NAMES, *WITHOUT_CLASSES])
def test_classes_of_tokens_are_the_reference_s(name: str, tmp_path: Path) -> None:
    """The logits of every token."""
    written = write(tmp_path, name, "TokenClassification", num_labels=3)
    backend = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype="float32")
    check(written, backend, "token_logits", 1e-5)


@every_family
def test_masked_words_are_the_reference_s(name: str, tmp_path: Path) -> None:
    """The logits of every word of the vocabulary, at every token."""
    written = write(tmp_path, name, "MaskedLM", tie_word_embeddings=True)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.predictor is not None
    assert checkpoint.predictor.info == HeadInfo("masked_words", size=VOCABULARY)
    backend = TorchBackend(checkpoint, device="cpu", dtype="float32")
    check(written, backend, "token_logits", 1e-5)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bert", "SequenceClassification"),
        ("modernbert, mean", "TokenClassification"),
        pytest.param("roberta", "MaskedLM", marks=pytest.mark.repeated),
    ],
)
def test_an_exported_folder_predicts_the_same(name: str, kind: str, tmp_path: Path) -> None:
    """Without PyTorch: the export writes what the model predicts with beside its graph."""
    written = write(tmp_path / "checkpoint", name, kind)
    place = tmp_path / "graph"
    export(str(written.folder), place, dtype="float32", overwrite=False, step=lambda _: nullcontext())
    file = find_graph(place)
    assert file is not None
    backend = OnnxBackend(read_folder(place, graph=True), file, device="cpu")
    check(written, backend, "logits" if kind.startswith("Seq") else "token_logits", 1e-4)


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
