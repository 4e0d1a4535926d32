"""The tokenizer of a folder, as a model's folder is read."""

from pathlib import Path

from tokenizers import Tokenizer

from model.files import read_json
from model.tokenization.building import find_tokenizer


def build_tokenizer(folder: Path, model_type: str) -> tuple[Path, Tokenizer] | None:
    """Find the tokenizer of a folder whose config.json says nothing but `model_type`."""
    settings = read_json(folder / "tokenizer_config.json", optional=True)
    return find_tokenizer(folder, {"model_type": model_type}, settings)
