"""Reads how a model for late interaction tokenizes queries and documents, from folders of either form.

PyLate keeps its settings in config_sentence_transformers.json, beside a Dense module for the vectors.
Stanford's ColBERT keeps them in artifact.metadata, and the linear layer among the weights of the encoder.
"""

import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.contract import Role
from model.encoder.config import EncoderConfig
from model.errors import CheckpointError
from model.fields import switch_of
from model.files import read_json, shown
from model.keys.token_roles import named_tokens
from model.tokenization.roles import RoleRules

STANFORD = "HF_ColBERT"
"""The architecture that config.json of a folder in Stanford's form names."""
_PYLATE = (
    "query_prefix",
    "document_prefix",
    "skiplist_words",
    "do_query_expansion",
    "attend_to_expansion_tokens",
)
_FEWEST = 3
"""The tokens of an empty query before those that fill it up: the first, the marker and the last."""
_MOST_WORDS = 10_000
_LONGEST = 2**24
_LONGEST_QUERY = 4096
"""Tokens of a query: every query may be filled up to its length."""


def read_pylate_roles(folder: Path, transformer: Path) -> dict[Role, RoleRules]:
    """Read the settings of a folder in PyLate's form, with its defaults; empty for other folders.

    Raises CheckpointError.
    """
    file = folder / "config_sentence_transformers.json"
    config = read_json(file, optional=True)
    if config.get("model_type") != "ColBERT" and not any(name in config for name in _PYLATE):
        return {}
    words = config.get("skiplist_words")
    words = list(string.punctuation) if words is None else words
    if not isinstance(words, list) or len(words) > _MOST_WORDS or not all(isinstance(w, str) for w in words):
        raise CheckpointError(
            f"{file}: skiplist_words is {shown(words)}; it must be a list of at most {_MOST_WORDS} words."
        )
    expands = _switch(file, config, "do_query_expansion", default=True)
    query = RoleRules(
        _length(file, config, "query_length", 32, _LONGEST_QUERY),
        _text(file, config, "query_prefix", "[Q] "),
        _mask(transformer) if expands else None,
        _switch(file, config, "attend_to_expansion_tokens", default=False),
    )
    document = RoleRules(
        _length(file, config, "document_length", 180),
        _text(file, config, "document_prefix", "[D] "),
        skipped=tuple(words),
    )
    return {"query": query, "document": document}


def read_stanford_roles(folder: Path) -> dict[Role, RoleRules]:
    """Read the settings of a folder in Stanford's form, with its defaults; empty for other folders.

    Raises CheckpointError.
    """
    architectures = read_json(folder / "config.json", optional=True).get("architectures")
    if not isinstance(architectures, list) or STANFORD not in architectures:
        return {}
    file = folder / "artifact.metadata"
    config = read_json(file, optional=True)
    query = RoleRules(
        _length(file, config, "query_maxlen", 32, _LONGEST_QUERY),
        _text(file, config, "query_token_id", "[unused0]"),
        _mask(folder),
        _switch(file, config, "attend_to_mask_tokens", default=False),
    )
    document = RoleRules(
        _length(file, config, "doc_maxlen", 220),
        _text(file, config, "doc_token_id", "[unused1]"),
        skipped=tuple(string.punctuation) if _switch(file, config, "mask_punctuation", default=True) else (),
    )
    return {"query": query, "document": document}


def check_roles(
    file: Path, config: EncoderConfig, roles: Mapping[Role, RoleRules], *, masked_embeddings: bool
) -> None:
    """Raise CheckpointError if an encoder cannot leave the tokens that fill up queries unattended.

    Some families compute more than attention from which tokens count. With a window, a token that is far from
    the text would have nothing to attend to.
    """
    query = roles["query"]
    if not query.hides_expansion:
        return
    windows = [layer.window for layer in config.layers if layer.window]
    others = masked_embeddings or config.token_dropout is not None or config.disentangled is not None
    if others or any(layer.convolution for layer in config.layers):
        raise CheckpointError(
            f"{file}: queries of this family cannot be filled up with tokens that are not attended to; only "
            "models with attend_to_expansion_tokens true, or do_query_expansion false, are served."
        )
    if windows and query.length - _FEWEST > min(windows):
        raise CheckpointError(
            f"{file}: queries are filled up to {query.length} tokens that are not attended to, and the model "
            f"attends to {min(windows)} tokens on either side: only query_length up to "
            f"{min(windows) + _FEWEST} is served, unless attend_to_expansion_tokens is true."
        )


def _mask(folder: Path) -> str:
    """Return the token that queries are filled up with: the tokenizer's mask, or else its end of text."""
    return next(iter(named_tokens(folder, ("mask_token", "eos_token"))), "[MASK]")


def _length(file: Path, config: Mapping[str, Any], name: str, default: int, most: int = _LONGEST) -> int:
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise CheckpointError(
            f"{file}: {name} is {shown(value)}; it must be a whole number of tokens from 1 to {most}."
        )
    return value


def _text(file: Path, config: Mapping[str, Any], name: str, default: str) -> str:
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, str):
        raise CheckpointError(f"{file}: {name} is {shown(value)}; it must be a token, or empty for none.")
    return value


def _switch(file: Path, config: Mapping[str, Any], name: str, *, default: bool) -> bool:
    if config.get(name) is None:
        return default
    return switch_of(file, config, name, default=default)
