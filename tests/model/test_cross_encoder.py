"""What folders of cross-encoders say of their scores."""

from pathlib import Path
from typing import Any, get_args

import pytest

from model.checkpoints.checkpoint import load_checkpoint
from model.errors import CheckpointError
from tests.references.cross_encoder import IDENTITY, SIGMOID, Form, write_cross_encoder
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


def test_the_function_is_of_one_label(tmp_path: Path) -> None:
    """Of several labels sentence-transformers returns logits; their scores are those of a classifier."""
    write_cross_encoder(tmp_path, "Bert", "since 4.0", IDENTITY, num_labels=3, **SIZES)
    assert activation_of(tmp_path) == "softmax"


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


def test_a_cross_encoder_without_a_classifier_ends_the_start(tmp_path: Path) -> None:
    """Its scores come from modules that are not run: ranking by its vectors instead would be wrong."""
    write_cross_encoder(tmp_path, "Bert", "with modules", SIGMOID, **SIZES)
    write_model(tmp_path, "Bert", **SIZES)
    with pytest.raises(
        CheckpointError, match=r"says CrossEncoder, and headlight runs those whose architecture"
    ):
        load_checkpoint(tmp_path)
