"""Reads how a model for late interaction tokenizes queries and documents, from folders of three forms.

PyLate keeps its settings in config_sentence_transformers.json, beside a Dense module for the vectors.
Stanford's ColBERT keeps them in artifact.metadata, and the linear layer among the weights of the encoder.
A MultiVectorEncoder of sentence-transformers has them beside its transformer and in its MultiVectorMask.
"""

import math
import string
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from model.choices import Interaction, TokenPooling
from model.contract import Role
from model.encoder.config import EncoderConfig
from model.errors import CheckpointError
from model.fields import switch_of
from model.files import read_json, shown
from model.keys.token_roles import named_tokens
from model.modules.listing import MASK, TOKEN_POOLING
from model.tokenization.roles import RoleRules

STANFORD = "HF_ColBERT"
"""The architecture that config.json names in a folder in Stanford's form."""
_PYLATE = (
    "query_prefix",
    "document_prefix",
    "skiplist_words",
    "do_query_expansion",
    "attend_to_expansion_tokens",
)
_SIMILARITIES = ("maxsim", "meanmaxsim")
_EMPTY_SCORE = -1e9
"""The MaxSim that sentence-transformers gives to a text without vectors, which ranks it last."""
_STRATEGIES = ("fixed", "min")
_FEWEST = 3
"""How many tokens an empty query has before it is filled up: the first, the marker and the last."""
_MOST_WORDS = 10_000
_LONGEST = 2**24
_LONGEST_QUERY = 4096
"""The limit of query lengths, in tokens: every query may be filled up to that length."""


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


def read_multi_vector_roles(
    file: Path, transformer: Path, general: Mapping[str, Any], sentence: Path, paths: Mapping[str, Path]
) -> dict[Role, RoleRules]:
    """Read the settings of a MultiVectorEncoder of sentence-transformers; raises CheckpointError.

    `general`, the content of `file`, has the prompts, and the file `sentence` the lengths. `paths` are the
    folders of the modules, by kind: their files say which tokens have vectors.
    """
    if general.get("truncate_dim") is not None:
        raise CheckpointError(
            f"{file}: truncate_dim is {shown(general['truncate_dim'])}; sentence-transformers does not "
            "truncate token vectors: set truncate_dim to null."
        )
    for name in (*_PYLATE, "query_length", "document_length"):
        if general.get(name):
            raise CheckpointError(
                f"{file}: {name} is {shown(general[name])}; for a model with the module MultiVectorMask, it "
                "has no effect in this file: save the model again with sentence-transformers 6."
            )
    masking = paths[MASK] / "config.json"
    config = read_json(masking)
    words, tasks = _words(masking, config, "skiplist_words"), _words(masking, config, "skiplist_tasks")
    if config.get("skiplist_tasks") is None:
        tasks = ("document",)
    kept = _kept(masking, config)
    pooling, pooled = _read_token_pooling(paths.get(TOKEN_POOLING))
    given = read_json(sentence, optional=True)
    lengths = {
        role: None if given.get(name) is None else _length(sentence, given, name, 1)
        for role, name in (("query", "query_length"), ("document", "document_length"))
    }
    prompts = general.get("prompts") or {}
    rules: dict[Role, RoleRules] = {
        role: RoleRules(
            lengths[role] or _LONGEST,
            skipped=words if role in tasks else (),
            prompt=str(prompts.get(role) or ""),
            kept=kept if role == "document" else None,
            pooling=pooling if role in pooled else None,
        )
        for role in get_args(Role)
    }
    if (expansion := given.get("query_expansion")) is not None:
        expanded = _expanded(sentence, transformer, expansion, rules["query"], lengths["query"])
        rules["query"] = expanded
    return rules


def read_interaction(file: Path, general: Mapping[str, Any], roles: Mapping[Role, RoleRules]) -> Interaction:
    """Read from `general`, the content of `file`, how a MultiVectorEncoder scores; raises CheckpointError."""
    named = general.get("similarity_fn_name")
    if named not in (None, *_SIMILARITIES):
        raise CheckpointError(
            f"{file}: similarity_fn_name is {shown(named)}; it must be one of {', '.join(_SIMILARITIES)}, or "
            "null."
        )
    pools = any(rules.pooling for rules in roles.values())
    return Interaction(mean=named == "meanmaxsim", empty=_EMPTY_SCORE, pools=pools)


def _kept(file: Path, config: Mapping[str, Any]) -> frozenset[int] | None:
    """Read the ids of the tokens that get vectors in documents, None if all do."""
    value = config.get("keep_only_token_ids")
    if value in (None, []):
        return None
    if not isinstance(value, list) or len(value) > _MOST_WORDS or not all(type(one) is int for one in value):
        raise CheckpointError(
            f"{file}: keep_only_token_ids is {shown(value)}; it must be a list of at most {_MOST_WORDS} "
            "token ids, or null."
        )
    return frozenset(value)


def _read_token_pooling(folder: Path | None) -> tuple[TokenPooling | None, tuple[str, ...]]:
    """Read how vectors of tokens are merged into fewer, and in which roles; None without such a module."""
    if folder is None:
        return None, ()
    file = folder / "config.json"
    config = read_json(file)
    factor, protected = config.get("pool_factor", 1), config.get("num_protected_tokens", 1)
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not 1 <= factor < math.inf:
        raise CheckpointError(f"{file}: pool_factor is {shown(factor)}; it must be a number of at least 1.")
    if not isinstance(protected, int) or isinstance(protected, bool) or protected < 0:
        raise CheckpointError(
            f"{file}: num_protected_tokens is {shown(protected)}; it must be a whole number of at least 0."
        )
    normalize = switch_of(file, config, "normalize_embeddings", default=False)
    tasks = ("document",) if config.get("tasks") is None else _words(file, config, "tasks")
    return (TokenPooling(factor, protected, normalize) if factor > 1 else None), tasks


def _expanded(
    file: Path, transformer: Path, expansion: Any, rules: RoleRules, limit: int | None
) -> RoleRules:
    """Return `rules` with queries filled up as a file's `query_expansion` says; raises CheckpointError."""
    known = isinstance(expansion, dict) and not expansion.keys() - {"strategy", "attend", "token", "length"}
    if not known or expansion.get("strategy") not in _STRATEGIES:
        raise CheckpointError(
            f"{file}: query_expansion is {shown(expansion)}; it must have strategy (fixed or min) and "
            "length, and may have attend and token: save the model again with sentence-transformers."
        )
    length = _length(file, expansion, "length", 0, _LONGEST_QUERY)
    if limit is not None and limit < length:
        raise CheckpointError(
            f"{file}: query_length is {limit}, but query_expansion pads queries to {length} tokens: remove "
            "query_length."
        )
    token = expansion.get("token")
    return replace(
        rules,
        length=length if expansion["strategy"] == "fixed" else rules.length,
        expansion=_mask(transformer) if token is None else _text(file, expansion, "token", ""),
        attended=_switch(file, expansion, "attend", default=False),
        filled=length,
    )


def check_no_roles(file: Path) -> None:
    """Raise CheckpointError if a model without roles has lengths of its own for queries and documents."""
    config = read_json(file, optional=True)
    for name in ("query_length", "document_length", "query_expansion"):
        if config.get(name) is not None:
            raise CheckpointError(
                f"{file}: {name} is {shown(config[name])}; only PyLate models and models with the module "
                "MultiVectorMask have this setting: set it to null, or use such a model."
            )


def _words(file: Path, config: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Read a word or a list of words; empty if there are none."""
    value = config.get(name)
    value = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(value, list) or len(value) > _MOST_WORDS or not all(isinstance(w, str) for w in value):
        raise CheckpointError(
            f"{file}: {name} is {shown(value)}; it must be a list of at most {_MOST_WORDS} words."
        )
    return tuple(value)


def check_roles(
    file: Path, config: EncoderConfig, roles: Mapping[Role, RoleRules], *, masked_embeddings: bool
) -> None:
    """Raise CheckpointError if an encoder cannot leave the tokens that fill up queries unattended.

    In some families, steps other than attention also depend on which tokens count. With a window, a token far
    from the text would have nothing to attend to.
    """
    query = roles["query"]
    if not query.hides_expansion:
        return
    windows = [layer.window for layer in config.layers if layer.window]
    others = masked_embeddings or config.token_dropout is not None or config.disentangled is not None
    if others or any(layer.convolution for layer in config.layers):
        raise CheckpointError(
            f"{file}: models of this family cannot ignore the tokens that pad a query: use a model with "
            "attend_to_expansion_tokens true or do_query_expansion false."
        )
    filled = query.filled or query.length
    if windows and filled - _FEWEST > min(windows):
        raise CheckpointError(
            f"{file}: queries are padded to {filled} tokens, the model ignores the padding, and its "
            f"attention reaches only {min(windows)} tokens on either side: query_length must be at most "
            f"{min(windows) + _FEWEST}, unless attend_to_expansion_tokens is true."
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
