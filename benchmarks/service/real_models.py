"""Checkpoints of real sizes with random weights, and texts of exact lengths for them."""

import json
import random
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from model.checkpoints.source import EMBEDDED, resolve

_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-base": ("Bert", {}),
    "bert-large": ("Bert", _LARGE),
    "modernbert-base": ("ModernBert", {}),
}
"""Name -> how its classes in `transformers` begin, and what its config has besides their defaults."""
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
_SPECIAL = 2
# Of the numbers of words of texts, log-normal: a median of 55, and one in twenty of more than 280.
_MU, _SIGMA, _SHORTEST = 4.0, 1.0, 3


def write_real(place: Path, name: str) -> Path:
    """Write a model with the embedded model's tokenizer, unless it is there; returns its folder."""
    import transformers  # noqa: PLC0415 - takes seconds, and is needed once

    folder = place / name
    if (folder / "config.json").exists():
        return folder
    source, (prefix, options) = resolve(EMBEDDED), MODELS[name]
    folder.mkdir(parents=True, exist_ok=True)
    for file in _TOKENIZER:
        if (source / file).exists():
            shutil.copy(source / file, folder)
    settings = folder / "tokenizer_config.json"
    special = {"pad_token_id": 0, "bos_token_id": 101, "eos_token_id": 102}
    special |= {"cls_token_id": 101, "sep_token_id": 102} if prefix == "ModernBert" else {}
    config = getattr(transformers, f"{prefix}Config")(vocab_size=30_522, **special, **options)
    longest = {"model_max_length": config.max_position_embeddings}
    settings.write_text(
        json.dumps(json.loads(settings.read_text(encoding="utf-8")) | longest), encoding="utf-8"
    )
    torch.manual_seed(0)
    getattr(transformers, f"{prefix}Model")(config).eval().save_pretrained(folder)
    return folder


def longest_of(folder: Path) -> int:
    """Return the tokens that a model reads."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return int(config["max_position_embeddings"])


@cache
def _words(tokenizer: Path) -> Sequence[str]:
    """Return the words of the vocabulary that are one token each, wherever they stand."""
    vocabulary = Tokenizer.from_file(str(tokenizer)).get_vocab()
    return sorted(word for word in vocabulary if word.isascii() and word.isalpha() and len(word) > 2)


def text_of(folder: Path, tokens: int, seed: int = 0) -> str:
    """Make a text of exactly this number of tokens, special ones included."""
    chosen = random.Random(seed).choices(_words(folder / "tokenizer.json"), k=tokens - _SPECIAL)  # noqa: S311
    return " ".join(chosen)


def mixed_texts(folder: Path, count: int, longest: int) -> list[str]:
    """Make texts of log-normal lengths, as documents and their parts have, of at most `longest` tokens."""
    words = np.random.default_rng(0).lognormal(_MU, _SIGMA, count)
    lengths = np.clip(np.rint(words), _SHORTEST, longest - _SPECIAL).astype(int) + _SPECIAL
    return [text_of(folder, int(tokens), seed) for seed, tokens in enumerate(lengths)]
