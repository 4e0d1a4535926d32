"""The tokenizer of a folder, as a model's folder is read."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from model.families.tokenizers import find_tokenizer_class, keeps_tokenizer
from model.files import read_json
from model.tokenization.building import find_tokenizer


def build_tokenizer(folder: Path, model_type: str) -> tuple[Path, Tokenizer] | None:
    """Find the tokenizer of a folder whose config.json says nothing but `model_type`."""
    settings = read_json(folder / "tokenizer_config.json", optional=True)
    return find(folder, {"model_type": model_type}, settings)


def find(folder: Path, config: dict[str, Any], settings: dict[str, Any]) -> tuple[Path, Tokenizer] | None:
    """Find the tokenizer of a folder with this config.json and tokenizer_config.json."""
    name = find_tokenizer_class(folder, config, settings)
    return find_tokenizer(folder, name, settings, keeps=keeps_tokenizer(config))
