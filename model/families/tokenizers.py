"""Finds the tokenizer class of a folder: the one that it names, or that of its family."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.errors import CheckpointError
from model.families.family import Family
from model.files import shown

_NO_SEGMENTS = frozenset(
    f"{name}Tokenizer"
    for name in (
        *("DistilBert", "MPNet", "Roberta", "XLMRoberta", "Camembert", "T5", "Esm", "Bertweet", "Phobert"),
    )
)
"""Classes that give all tokens of a pair the first segment, unless model_input_names says otherwise."""
_OTHER_RULES = frozenset(
    f"{name}Tokenizer"
    for name in (
        *("BertJapanese", "BioGpt", "BlenderbotSmall", "ByT5", "CTRL", "Canine", "Cpm", "CpmAnt"),
        *("FSMT", "Flaubert", "GPTNeoXJapanese", "M2M100", "Marian", "MyT5", "Perceiver"),
        *("ProphetNet", "RoCBert", "Tapas", "XLM"),
    )
)
"""Classes that transformers implements in code of their own, which ignores a tokenizer.json."""


def find_tokenizer_class(
    folder: Path, config: Mapping[str, Any], settings: Mapping[str, Any], family: Family | None
) -> str:
    """Return the name of a folder's tokenizer class, "" if it is unknown or has code of its own.

    `settings`, from tokenizer_config.json, precede `config`, from config.json, which precedes the family.
    Raises CheckpointError for a class that splits words by rules that a tokenizer.json cannot have.
    """
    file, name = "config.json", config.get("tokenizer_class") or (family.tokenizer if family else "")
    if settings.get("tokenizer_class"):
        file, name = "tokenizer_config.json", settings["tokenizer_class"]
    if isinstance(name, str) and name in _OTHER_RULES:
        raise CheckpointError(
            f"{folder / file}: tokenizer_class is {shown(name)}, which splits words by rules that are not "
            "supported: use a model whose tokenizer.json is its whole tokenizer."
        )
    return name.removesuffix("Fast") if isinstance(name, str) and "auto_map" not in settings else ""


def has_segments(name: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer class gives a pair's texts different segments; raises CheckpointError."""
    inputs = settings.get("model_input_names")
    if inputs is None:
        return name not in _NO_SEGMENTS
    if not isinstance(inputs, list):
        raise CheckpointError(f"model_input_names is {shown(inputs)}; it must be a list of names.")
    return "token_type_ids" in inputs
