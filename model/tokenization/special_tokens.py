"""Reads which tokens of an older tokenizer are special, from its settings and the lists beside them."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from model.errors import CheckpointError
from model.files import read_json, shown

_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LISTS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_MOST = 10_000
_LONGEST = 1000
_CHARACTERS = 2**20
"""The most that all added tokens may have; searching texts for them takes 70 bytes for each character."""
_OWN = "use files from the same model, or save the tokenizer again with transformers"


@dataclass(frozen=True)
class Defaults:
    """The special tokens of a class of tokenizers, by role such as `cls_token`.

    The class cannot work without the `required` ones; the `greedy` ones absorb the spaces before them.
    """

    by_role: Mapping[str, str]
    required: tuple[str, ...]
    greedy: tuple[str, ...] = ()


@dataclass(frozen=True)
class SpecialTokens:
    """Special tokens by role, and all `added` tokens in order: those found in texts before all else.

    `ids` are the ids that the folder gives to added tokens. `needed` maps the tokens that must be in the
    vocabulary to the field that names them.
    """

    file: Path
    by_role: Mapping[str, str]
    added: Mapping[str, AddedToken]
    ids: Mapping[str, int]
    needed: Mapping[str, str]

    def __getitem__(self, role: str) -> str:
        return self.by_role[role]

    def check(self, file: Path, vocabulary: Mapping[str, int]) -> None:
        """Check that a vocabulary has the tokens that it must have; raises CheckpointError."""
        for token, field in self.needed.items():
            if token not in vocabulary:
                raise CheckpointError(
                    f"{file} does not have the token {shown(token)}, which is the {field} of {self.file}: "
                    f"{_OWN}."
                )

    def add_to(self, tokenizer: Tokenizer, present: Container[str] = ()) -> None:
        """Add the tokens to a tokenizer that has its vocabulary; raises CheckpointError if their ids differ.

        Tokens without an id of their own are left out if they are `present`, or not in the vocabulary.
        """
        tokenizer.add_tokens(
            [
                token
                for name, token in self.added.items()
                if name in self.ids or (name not in present and tokenizer.token_to_id(name) is not None)
            ]
        )
        for name, number in self.ids.items():
            if (actual := tokenizer.token_to_id(name)) != number:
                raise CheckpointError(
                    f"{self.file}: the added token {shown(name)} has the id {number}, but the vocabulary "
                    f"gives it the id {actual}: {_OWN}."
                )


def read_special_tokens(
    folder: Path,
    settings: Mapping[str, Any],
    defaults: Defaults,
    read: Mapping[int, AddedToken] | None = None,
) -> SpecialTokens:
    """Read the special tokens of a folder; `settings` is its tokenizer_config.json. Raises CheckpointError.

    `read` are the added tokens of its tokenizer.json, which count like those of added_tokens.json.

    As in transformers, the files special_tokens_map.json and added_tokens.json count only if
    tokenizer_config.json does not describe the added tokens itself.
    """
    file, fields = folder / "tokenizer_config.json", dict(settings)
    described = settings.get("added_tokens_decoder")
    if described is None and (more := read_json(folder / "special_tokens_map.json", optional=True)):
        file, fields = folder / "special_tokens_map.json", fields | more
    roles: dict[str, AddedToken] = {}
    for role in _ROLES:
        value = fields.get(role, defaults.by_role.get(role))
        if value is not None:
            roles[role] = _token(file, role, value, greedy=role in defaults.greedy)
        elif role in defaults.required:
            raise CheckpointError(f"{file}: {role} is null, but the tokenizer needs one: {_OWN}.")
    names = {token.content for token in roles.values()}
    added, ids = _described(file, described, names) if described is not None else _listed(folder, names)
    if described is None and read is not None:
        added |= {token.content: token for token in read.values()}
        ids |= {token.content: number for number, token in read.items()}
    needed = {token.content: role for role, token in roles.items() if role in (*fields, *defaults.required)}
    for field, value in _others(file, fields):
        token = _token(file, field, value)
        added.setdefault(token.content, token)
        needed.setdefault(token.content, field)
    if (characters := sum(map(len, added))) > _CHARACTERS:
        raise CheckpointError(
            f"{file}: the added tokens have {characters} characters in all; the limit is {_CHARACTERS}: "
            f"{_OWN}."
        )
    # A token with an id of its own need not be in the vocabulary, except if the tokenizer is built with it.
    always = {roles[role].content for role in defaults.required}
    return SpecialTokens(
        file,
        {role: token.content for role, token in roles.items()},
        {token.content: token for token in roles.values()} | added,
        ids,
        {token: field for token, field in needed.items() if token in always or token not in ids},
    )


def _described(
    file: Path, tokens: Any, special: Container[str]
) -> tuple[dict[str, AddedToken], dict[str, int]]:
    """Read added_tokens_decoder, which maps ids to tokens; all the `special` ones are marked as such."""
    added, ids = {}, {}
    if (
        not isinstance(tokens, dict)
        or len(tokens) > _MOST
        or not all(n.isdecimal() and len(n) < 10 for n in tokens)
    ):
        raise CheckpointError(
            f"{file}: added_tokens_decoder is {shown(tokens)}; it must map ids to at most {_MOST} tokens."
        )
    for number, described in sorted(tokens.items(), key=lambda item: int(item[0])):
        token = _token(file, "added_tokens_decoder", described, special=False)
        token.special = token.special or token.content in special
        added[token.content], ids[token.content] = token, int(number)
    return added, ids


def _listed(folder: Path, special: Container[str]) -> tuple[dict[str, AddedToken], dict[str, int]]:
    """Read added_tokens.json, which maps tokens to ids."""
    file = folder / "added_tokens.json"
    ids = read_json(file, optional=True)
    plain = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**31 for n in ids.values())
    if not plain or len(ids) > _MOST:
        raise CheckpointError(f"{file} is {shown(ids)}; it must map at most {_MOST} tokens to ids.")
    added = {}
    for name in sorted(ids, key=lambda name: ids[name]):
        added[name] = _token(file, "a token", name, special=name in special)
    return added, {name: ids[name] for name in added}


def _others(file: Path, fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each special token without a role, after the field that names it."""
    for field in _LISTS:
        yield from ((field, value) for value in _list(file, field, fields.get(field)))
    for field, value in fields.items():
        if field.endswith("_token") and field not in _ROLES and isinstance(value, str | dict):
            yield field, value


def _list(file: Path, field: str, value: Any) -> list[Any]:
    """Read a list of tokens, or an object that gives each a name."""
    if value is None:
        return []
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list) or len(value) > _MOST:
        raise CheckpointError(
            f"{file}: {field} is {shown(value)}; it must be a list of at most {_MOST} tokens."
        )
    return value


def _token(file: Path, field: str, value: Any, *, greedy: bool = False, special: bool = True) -> AddedToken:
    """Read a token: its characters, or an object with flags; `greedy` only applies without flags."""
    flags: dict[str, bool] = {"lstrip": greedy}
    content = value
    if isinstance(value, dict):
        content, flags = value.get("content"), {name: value[name] for name in _FLAGS if name in value}
    if not isinstance(content, str) or not 0 < len(content) <= _LONGEST or not _is_valid(content):
        raise CheckpointError(
            f"{file}: {field} is {shown(value)}; it must be a token of 1 to {_LONGEST} characters, or an "
            "object with one as its content."
        )
    if any(not isinstance(flag, bool) for flag in flags.values()):
        raise CheckpointError(f"{file}: the flags of {field} are {shown(flags)}; they must be true or false.")
    return AddedToken(content, **(flags | {"special": True} if special else flags))


def _is_valid(text: str) -> bool:
    """Return whether a text can be encoded: JSON can hold half a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


# -------------------------------------------- defaults of classes, where a folder names no others

BERT = Defaults(
    {
        "unk_token": "[UNK]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
    },
    required=("unk_token", "sep_token", "cls_token"),
)
ROBERTA = Defaults(
    {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "sep_token": "</s>",
        "pad_token": "<pad>",
        "cls_token": "<s>",
        "mask_token": "<mask>",
    },
    required=("sep_token", "cls_token"),
)
CODES = Defaults(ROBERTA.by_role, required=tuple(ROBERTA.by_role))
MPNET = Defaults(
    {**ROBERTA.by_role, "unk_token": "[UNK]"},
    required=("unk_token", "sep_token", "cls_token"),
    greedy=("mask_token",),
)
ESM = Defaults(
    {
        "unk_token": "<unk>",
        "cls_token": "<cls>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
        "eos_token": "<eos>",
    },
    required=("unk_token", "cls_token", "eos_token"),
)
_FAIRSEQ = ("bos_token", "eos_token", "unk_token", "pad_token", "mask_token")
XLM_ROBERTA = Defaults(ROBERTA.by_role, required=_FAIRSEQ)
CAMEMBERT = Defaults(ROBERTA.by_role, required=_FAIRSEQ, greedy=("mask_token",))
T5 = Defaults(
    {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}, required=("eos_token", "unk_token")
)
ALBERT = Defaults(
    {**BERT.by_role, "bos_token": "[CLS]", "eos_token": "[SEP]", "unk_token": "<unk>", "pad_token": "<pad>"},
    required=("unk_token", "sep_token", "cls_token"),
)
DEBERTA = Defaults(
    {**BERT.by_role, "bos_token": "[CLS]", "eos_token": "[SEP]"},
    required=("unk_token", "sep_token", "cls_token"),
)
_END = "<|endoftext|>"
GPT2 = Defaults({"unk_token": _END, "bos_token": _END, "eos_token": _END}, required=())
LLAMA = Defaults({"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}, required=())
GEMMA = Defaults(
    {
        "unk_token": "<unk>",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
    },
    required=(),
)
QWEN2 = Defaults({"unk_token": _END, "eos_token": _END, "pad_token": _END}, required=())
