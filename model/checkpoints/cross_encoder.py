"""What sentence-transformers' CrossEncoder writes about a model that scores pairs of texts.

How a logit becomes a score is in a field of config.json: `sbert_ce_default_activation_function` in folders
of releases before 4.0, `activation_fn` in the object `sentence_transformers` since then. Later releases write
modules.json, and `activation_fn` into config_sentence_transformers.json, which then goes first.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.contract import ScoreFunction
from model.errors import CheckpointError
from model.files import present, read_json, shown

_GENERAL = "config_sentence_transformers.json"
_ACTIVATIONS: dict[str, ScoreFunction] = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "identity",
}


def is_cross_encoder(folder: Path) -> bool:
    """Return whether a folder with modules.json says that it is one; raises CheckpointError."""
    return _general(folder).get("model_type") == "CrossEncoder"


def read_activation(folder: Path, config: Mapping[str, Any]) -> ScoreFunction | None:
    """Read how the only logit becomes a score; None if neither the folder nor its config.json says.

    Raises CheckpointError for any other function.
    """
    general = _general(folder) if is_cross_encoder(folder) else {}
    nested = config.get("sentence_transformers")
    nested = nested if isinstance(nested, dict) else {}
    named = {
        f"{_GENERAL}: activation_fn": general.get("activation_fn"),
        "sentence_transformers.activation_fn": nested.get("activation_fn"),
        "sbert_ce_default_activation_function": config.get("sbert_ce_default_activation_function"),
    }
    for field, function in named.items():
        if function is None:
            continue
        if not isinstance(function, str) or function not in _ACTIVATIONS:
            raise CheckpointError(
                f"{field} is {shown(function)}; for a model with one label it must be "
                f"{' or '.join(_ACTIVATIONS)}."
            )
        return _ACTIVATIONS[function]
    return None


def _general(folder: Path) -> Mapping[str, Any]:
    """Read the file beside modules.json; without modules.json sentence-transformers ignores it."""
    if not present(folder / "modules.json"):
        return {}
    config: Mapping[str, Any] = read_json(folder / _GENERAL, optional=True)
    return config
