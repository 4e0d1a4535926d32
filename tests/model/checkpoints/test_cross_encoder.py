"""What folders of cross-encoders say of their scores."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from model.checkpoints.checkpoint import load_checkpoint
from model.errors import CheckpointError
from tests.references.cross_encoder import IDENTITY, SIGMOID, SOFTMAX, Form, write_cross_encoder
from tests.references.families import change_config, write_model
from tests.support.families import SIZES


def activation_of(folder: Path) -> str:
    """How the scores of a folder's checkpoint are made."""
    predictor = load_checkpoint(folder).predictor
    assert predictor is not None
    return predictor.info.activation


@pytest.mark.parametrize("form", get_args(Form))
@pytest.mark.parametrize(("function", "activation"), [(SIGMOID, "sigmoid"), (IDENTITY, "identity")])
def test_every_form_of_folder_says_how_scores_are_made(
    form: Form, function: str, activation: str, tmp_path: Path
) -> None:
    """Those of every release of sentence-transformers."""
    write_cross_encoder(tmp_path, "Bert", form, function, **SIZES)
    assert activation_of(tmp_path) == activation


def test_modules_go_before_the_config(tmp_path: Path) -> None:
    """A model that is saved again keeps the field of the older form, and the newer one counts."""
    write_cross_encoder(tmp_path, "Bert", "with modules", IDENTITY, **SIZES)
    change_config(tmp_path, sbert_ce_default_activation_function=SIGMOID)
    assert activation_of(tmp_path) == "identity"


@pytest.mark.parametrize("form", get_args(Form))
@pytest.mark.parametrize(
    ("function", "activation"), [(SIGMOID, "sigmoid"), (SOFTMAX, "softmax"), (IDENTITY, "softmax")]
)
def test_the_function_is_of_several_labels_too(
    form: Form, function: str, activation: str, tmp_path: Path
) -> None:
    """Identity is what is written where none was chosen: then that of a classifier counts."""
    write_cross_encoder(tmp_path, "Bert", form, function, num_labels=3, **SIZES)
    assert activation_of(tmp_path) == activation


def test_names_of_labels_may_be_numbers(tmp_path: Path) -> None:
    """As transformers takes them."""
    write_cross_encoder(tmp_path, "Bert", num_labels=3, **SIZES)
    change_config(tmp_path, id2label={"0": 0, "1": 1, "2": 5})
    predictor = load_checkpoint(tmp_path).predictor
    assert predictor is not None
    assert predictor.info.labels == ("0", "1", "5")


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ("before 4.0", "sbert_ce_default_activation_function"),
        ("since 4.0", "sentence_transformers.activation_fn"),
        ("with modules", "config_sentence_transformers.json: activation_fn"),
    ],
)
@pytest.mark.parametrize("function", ["torch.nn.modules.activation.Tanh", "os.system", ["x"]])
def test_another_function_ends_the_start(form: Form, field: str, function: Any, tmp_path: Path) -> None:
    """With its field and those that there are; nothing that a folder names is imported."""
    write_cross_encoder(tmp_path, "Bert", form, function, **SIZES)
    with pytest.raises(CheckpointError) as refused:
        load_checkpoint(tmp_path)
    assert f"{field} is {function!r}; for a model with one label it must be {SIGMOID} or" in str(
        refused.value
    )
    write_cross_encoder(tmp_path, "Bert", form, function, num_labels=3, **SIZES)
    with pytest.raises(CheckpointError, match=r"; for a model with several labels it must be torch\.nn"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("form", get_args(Form))
@pytest.mark.parametrize("architecture", ["BertModel", "BertForRanking"])
def test_a_cross_encoder_of_another_architecture_ends_the_start(
    form: Form, architecture: str, tmp_path: Path
) -> None:
    """With or without a classifier: ranking by its vectors would be wrong."""
    write_cross_encoder(tmp_path, "Bert", form, SIGMOID, **SIZES)
    kept = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    for classifier in (True, False):
        if not classifier:
            write_model(tmp_path, "Bert", **SIZES)
            (tmp_path / "config.json").write_text(json.dumps(kept), encoding="utf-8")
        change_config(tmp_path, architectures=[architecture])
        with pytest.raises(CheckpointError, match=r"says that it is a CrossEncoder"):
            load_checkpoint(tmp_path)
