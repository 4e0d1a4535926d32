"""Reads the folder of a table of token vectors: model2vec's, or one of sentence-transformers."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from model.checkpoints.dense import read_steps
from model.checkpoints.folder import ModelFolder, account, try_tokenizer
from model.checkpoints.layout import Layout, read_layout
from model.encoder.config import EncoderConfig
from model.errors import CheckpointError
from model.fields import switch_of
from model.files import present, read_json, shown
from model.heads.dense import First, UnitLength
from model.static.table import MODEL2VEC, TokenTable, read_table
from model.static.tokenizer import StaticTokenizer, median_length, unknown_token
from model.templates.tokenizer import without_special_tokens
from model.tokenization.file import read_tokenizer

_LENGTH = 512
"""How many tokens of a text model2vec reads, unless config.json says otherwise."""
_NO_LIMIT = 2**22
"""More tokens than a request can have: the limit of tables that read whole texts."""


def is_static(path: Path) -> bool:
    """Return whether a folder has a table of token vectors; False for a broken one, which loading reports."""
    try:
        return path.is_dir() and read_layout(path).static
    except CheckpointError:
        return False


def read_static(path: Path, *, strict: bool = False) -> tuple[ModelFolder, TokenTable]:
    """Read a folder; raises CheckpointError. `strict` is as in `read_folder`.

    A table named `embeddings` is model2vec's, and its texts are read as model2vec does; any other is read as
    in sentence-transformers.
    """
    layout = read_layout(path)
    if layout.roles:
        raise CheckpointError(
            f"{path} says that it is a late-interaction model, but modules.json lists StaticEmbedding, "
            "which gives a token the same vector in every text: use files from the same model."
        )
    folder = layout.transformer
    account(path, layout, config=False, strict=strict)
    file = folder / "tokenizer.json"
    if not present(file):
        raise CheckpointError(
            f"{folder} has no tokenizer.json, which a table of token vectors needs: fetch the model again, "
            "or save it again with model2vec or sentence-transformers."
        )
    saved = read_tokenizer(file)
    vocabulary = saved.get_vocab_size()
    table = read_table(folder, vocabulary)
    own = table.name == MODEL2VEC
    config = read_json(folder / "config.json", optional=True) if own else {}
    saved_length = (saved.truncation or {}).get("max_length")
    limit = _max_length(folder / "config.json", config) if own else _checked(file, saved_length)
    if own:
        layout = _with_norm(path, folder / "config.json", config, layout)
    tokenizer = StaticTokenizer.limited(
        without_special_tokens(saved),
        file,
        max_length=limit or _NO_LIMIT,
        side="right" if own else None,
        segments=False,
    )
    if tokenizer.vocab_size > table.tokens:
        raise CheckpointError(
            f"{path}: the tokenizer has ids up to {tokenizer.vocab_size - 1}, but the table has vectors for "
            f"only {table.tokens} tokens: use the tokenizer and the weights of the same model."
        )
    if own:
        tokenizer.dropped = unknown_token(saved)
        tokenizer.most_characters = None if limit is None else limit * median_length(saved)
    # Of an encoder's config it has only the sizes.
    sizes = EncoderConfig(table.tokens, table.size, 1, 1, 1, positions="none")
    dense = read_steps(layout.steps, table.size)
    if layout.truncate_dim is not None:  # as in `read_folder`
        dense = (*dense, *([UnitLength()] if layout.normalize else ()), First(layout.truncate_dim))
        layout = replace(layout, normalize=False)
    try_tokenizer(file, tokenizer, layout, sizes)
    family = "model2vec" if own else "static"
    return ModelFolder(path, family, config, sizes, tokenizer, dense, layout), table


def _max_length(file: Path, config: Mapping[str, Any]) -> int | None:
    """Read how many tokens of a text model2vec reads, None for all; raises CheckpointError."""
    value = config.get("max_length", _LENGTH)
    return _checked(file, value)


def _checked(file: Path, value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _NO_LIMIT:
        raise CheckpointError(
            f"{file}: max_length is {shown(value)}; it must be a whole number of tokens from 1 to "
            f"{_NO_LIMIT}, or null for whole texts."
        )
    return value


def _with_norm(path: Path, file: Path, config: Mapping[str, Any], layout: Layout) -> Layout:
    """Have vectors normalised as model2vec's config says; raises CheckpointError if modules.json differs."""
    normalize = switch_of(file, config, "normalize", default=False)
    modules = path / "modules.json"
    if not present(modules):
        return replace(layout, normalize=normalize)
    if layout.normalize != normalize and not layout.steps:
        raise CheckpointError(
            f"{file}: normalize is {str(normalize).lower()}, but {modules} lists "
            f"{'a' if layout.normalize else 'no'} Normalize: model2vec and sentence-transformers would make "
            "different vectors; make the two files agree."
        )
    return layout
