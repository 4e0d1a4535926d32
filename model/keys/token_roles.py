"""Finds the tokens that a tokenizer's settings give roles, such as that of masked words."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from model.files import read_json

_MASKS = ("[MASK]", "<mask>", "<|mask|>")
_PADDINGS = ("[PAD]", "<pad>", "<|pad|>")
"""The mask or padding of a tokenizer whose folder names none: the first of these special tokens it has."""
_UNWEIGHTED = {
    "cls_token": ("[CLS]", "<s>"),
    "eos_token": ("</s>",),
    "pad_token": _PADDINGS,
    "unk_token": ("[UNK]", "<unk>"),
}
"""The roles of tokens that stand for no word, and the usual names of these tokens."""


def named_tokens(folder: Path, roles: Iterable[str]) -> list[str]:
    """Return the tokens that a folder's files give roles such as `mask_token`, in the order of the roles."""
    named: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        named |= read_json(folder / name, optional=True)
    found = (named.get(role) for role in roles)
    tokens = (token.get("content") if isinstance(token, dict) else token for token in found)
    return [token for token in tokens if isinstance(token, str) and token]


def find_mask(folder: Path, tokenizer: Tokenizer) -> int | None:
    """Return the id of the token that stands for any word, None if the tokenizer has none."""
    return _find(folder, tokenizer, "mask_token", _MASKS)


def find_padding(folder: Path, tokenizer: Tokenizer) -> int | None:
    """Return the id of the token that texts are filled up with, None if the tokenizer has none."""
    return _find(folder, tokenizer, "pad_token", _PADDINGS)


def find_unweighted(folder: Path, tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of the tokens that sparse vectors of tokens leave out, as in FlagEmbedding."""
    found = (_find(folder, tokenizer, role, usual) for role, usual in _UNWEIGHTED.items())
    return frozenset(number for number in found if number is not None)


def _find(folder: Path, tokenizer: Tokenizer, role: str, usual: Iterable[str]) -> int | None:
    special = {token.content: index for index, token in tokenizer.get_added_tokens_decoder().items()}
    for name in named_tokens(folder, [role]):
        found: int | None = tokenizer.token_to_id(name)
        return found
    return next((special[name] for name in usual if name in special), None)
