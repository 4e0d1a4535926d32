"""The tokenizer of a folder, as a model's folder is read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from model.families.table import find_family
from model.families.tokenizers import find_tokenizer_class
from model.files import read_json
from model.tokenization.building import find_tokenizer


def build_tokenizer(folder: Path, model_type: str) -> tuple[Path, Tokenizer] | None:
    """Find the tokenizer of a folder whose config.json says nothing but `model_type`."""
    settings = read_json(folder / "tokenizer_config.json", optional=True)
    return find(folder, {"model_type": model_type}, settings)


def find(folder: Path, config: dict[str, Any], settings: dict[str, Any]) -> tuple[Path, Tokenizer] | None:
    """Find the tokenizer of a folder with this config.json and tokenizer_config.json."""
    family = find_family(config)
    name = find_tokenizer_class(folder, config, settings, family)
    return find_tokenizer(folder, name, settings, keeps=family is not None and family.keeps_tokenizer)


def train_byte_pairs(texts: Sequence[str], size: int) -> Tokenizer:
    """Train pairs of bytes in the form of RoBERTa, at most `size` tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
