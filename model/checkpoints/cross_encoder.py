"""What sentence-transformers' CrossEncoder writes about a model that scores pairs of texts.

How a logit becomes a score is in a field of config.json: `sbert_ce_default_activation_function` in folders
of releases before 4.0, `activation_fn` in the object `sentence_transformers` since then. Later releases write
modules.json, and `activation_fn` into config_sentence_transformers.json, which then takes precedence.

This module also tells whether texts may be ranked by the vectors of a folder that is no cross-encoder.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.contract import ScoreFunction
from model.errors import CheckpointError
from model.files import present, read_json, shown

_ENCODERS = ("Model", "Encoder", "ForMaskedLM", "ForPreTraining")
"""The endings of architectures whose vectors are of sentences, or of the words that make them up.

Sentence encoders are often saved under the name of the task that they were pretrained for.
"""

_GENERAL = "config_sentence_transformers.json"
_ONE_LABEL: dict[str, ScoreFunction | None] = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "identity",
}
_SEVERAL_LABELS: dict[str, ScoreFunction | None] = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.Softmax": "softmax",
    "torch.nn.modules.linear.Identity": None,
}
"""With several labels, Identity is what sentence-transformers writes where no function was chosen."""


_LOGITS = "causal_logits"


@dataclass(frozen=True, slots=True)
class LogitScore:
    """The tokens whose next-word logits make a score: the first one's, minus any second one's."""

    file: Path
    tokens: dict[str, int]
    """Their ids, by the fields that name them: one or two."""


def read_logit_score(folder: Path) -> LogitScore:
    """Read the module LogitScore of sentence-transformers; raises CheckpointError."""
    file = folder / "config.json"
    config = read_json(file)
    given = config.get("module_input_name", _LOGITS)
    if given != _LOGITS:
        raise CheckpointError(
            f"{file}: module_input_name is {shown(given)}; only {_LOGITS} is served: set it to {_LOGITS}."
        )
    tokens = {name: config.get(name) for name in ("true_token_id", "false_token_id")}
    if tokens["false_token_id"] is None:
        del tokens["false_token_id"]
    for name, number in tokens.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise CheckpointError(f"{file}: {name} is {shown(number)}; it must be a token id.")
    return LogitScore(file, tokens)


def is_cross_encoder(folder: Path, config: Mapping[str, Any]) -> bool:
    """Return whether a folder or its config.json says that it is a cross-encoder; raises CheckpointError."""
    return _general(folder).get("model_type") == "CrossEncoder" or any(_functions(folder, config))


def read_activation(folder: Path, config: Mapping[str, Any], labels: int) -> ScoreFunction | None:
    """Read how logits become scores; None if neither the folder nor its config.json says.

    Raises CheckpointError for any other function.
    """
    known = _ONE_LABEL if labels == 1 else _SEVERAL_LABELS
    for field, function in _functions(folder, config):
        if not isinstance(function, str) or function not in known:
            several = "one label" if labels == 1 else "several labels"
            raise CheckpointError(
                f"{field} is {shown(function)}; for a model with {several} it must be {' or '.join(known)}."
            )
        return known[function]
    return None


def _functions(folder: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield each field that names a function, with what it names; the first one counts."""
    general, nested = _general(folder), config.get("sentence_transformers")
    if general.get("model_type") != "CrossEncoder":
        general = {}
    nested = nested if isinstance(nested, dict) else {}
    named = {
        f"{_GENERAL}: activation_fn": general.get("activation_fn"),
        "sentence_transformers.activation_fn": nested.get("activation_fn"),
        "sbert_ce_default_activation_function": config.get("sbert_ce_default_activation_function"),
    }
    yield from ((field, function) for field, function in named.items() if function is not None)


def _general(folder: Path) -> Mapping[str, Any]:
    """Read the file beside modules.json; without modules.json sentence-transformers ignores it."""
    if not present(folder / "modules.json"):
        return {}
    config: Mapping[str, Any] = read_json(folder / _GENERAL, optional=True)
    return config


def why_not_comparable(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Return why texts cannot be ranked by a folder's vectors, as the end of a sentence; None if they can.

    A folder with modules.json makes sentence vectors, whatever its transformer is called.
    """
    listed = config.get("architectures")
    if present(folder / "modules.json") or not isinstance(listed, list) or not listed:
        return None
    if not str(listed[0]).endswith(_ENCODERS):
        return (
            f"its architecture in config.json, {shown(listed[0])}, is not a sentence encoder; to compare "
            "its vectors anyway, add the modules.json of sentence-transformers"
        )
    labels = config.get("id2label")
    if isinstance(labels, dict) and len(labels) == 1:
        return (
            "config.json names one label, as for a cross-encoder, but its architecture is "
            f"{shown(listed[0])}: use the original files, whose architecture ends in "
            "ForSequenceClassification"
        )
    return None


def hidden_classifier(architectures: object) -> str:
    """Return the reason for a folder whose weights have a classifier that its config.json does not name."""
    return (
        f"its weights have a classifier, but architectures in config.json is {shown(architectures)}: set it "
        "to the class with this classifier, whose name ends in ForSequenceClassification"
    )
