"""Makes the tokenizer of a folder as its class does, from a tokenizer.json or from its vocabulary alone.

The class is the one in tokenizer_config.json, in config.json, or of the model's family. Its settings override
what a tokenizer.json says. A class that is not in the table below takes a tokenizer.json as it is; without
one, its vocabulary is not guessed at. Results are the same as transformers'.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from model.errors import CheckpointError
from model.fields import switch
from model.files import present, reason, shown
from model.tokenization import special_tokens as tokens_of
from model.tokenization.file import check_agreement, read_tokenizer
from model.tokenization.pieces import (
    build_albert,
    build_camembert,
    build_deberta,
    build_t5,
    build_xlm_roberta,
    dress_gemma,
    dress_llama,
    splits_bytes,
)
from model.tokenization.special_tokens import Defaults, SpecialTokens, read_special_tokens
from model.tokenization.vocabulary import SPACES, build_codes, read_lines, read_merges, read_vocabulary

log = logging.getLogger(__name__)

Settings = Mapping[str, Any]
_OWN = "use files from the same model, or save the tokenizer again with transformers"
_SETTINGS = "tokenizer_config.json"


@dataclass(frozen=True)
class _Kind:
    """A class of tokenizers: its files and special tokens, how to build one, what it puts around texts."""

    files: tuple[str, ...]
    defaults: Defaults
    build: Callable[[Path, Settings, SpecialTokens], Tokenizer | None] | None
    """None: it is only used with a tokenizer.json."""
    surround: Callable[[Tokenizer, Settings, SpecialTokens], processors.PostProcessor] | None
    """None: it puts around texts what the tokenizer.json says."""
    model: type[models.Model] | None = None
    """The model of a tokenizer.json that it puts its own steps around; None: it keeps the file's steps."""
    dress: Callable[[Tokenizer, Settings], None] | None = None
    """Puts its own steps around that model."""
    checks: tuple[str, ...] = ()
    """Settings that must agree with the steps of a tokenizer.json."""
    keeps_bytes: bool = False
    """Whether a tokenizer.json whose steps work on bytes is taken as it is."""
    keeps_files: bool = False
    """Whether its files take precedence over a tokenizer.json."""


def find_tokenizer(
    folder: Path, name: str, settings: Settings, *, keeps: bool = False
) -> tuple[Path, Tokenizer] | None:
    """Read or build the tokenizer of a folder; None if it has no tokenizer.json and no known vocabulary.

    `name` is its class, "" if that is not known, and `settings` is its tokenizer_config.json. With `keeps`, a
    tokenizer.json takes precedence over the class. Also returns the file that the tokenizer comes from.
    Raises CheckpointError for files that are broken or do not fit together.
    """
    file, kind = folder / "tokenizer.json", _KINDS.get(name)
    own = kind is not None and kind.keeps_files and all(present(folder / one) for one in kind.files)
    if own or not present(file):
        return _build(folder, name, settings)
    tokenizer = read_tokenizer(file)
    with _naming(folder):
        return file, _adapt(tokenizer, folder, "" if keeps else name, settings)


def _adapt(tokenizer: Tokenizer, folder: Path, name: str, settings: Settings) -> Tokenizer:
    """Give a tokenizer from a file the steps and the tokens that its class and the settings ask for."""
    kind = _KINDS.get(name)
    read: dict[int, AddedToken] = tokenizer.get_added_tokens_decoder()
    tokens = read_special_tokens(folder, settings, kind.defaults if kind else Defaults({}, ()), read)
    if kind is None or kind.dress is None or not _has_steps(kind, tokenizer, tokens):
        check_agreement(tokenizer, settings, kind.checks if kind else ())
        tokens.add_to(tokenizer, present={token.content for token in read.values()})
        return tokenizer
    dressed = Tokenizer(tokenizer.model)
    if isinstance(tokenizer.model, models.WordPiece):
        tokenizer.model.unk_token = tokens["unk_token"]
    elif isinstance(tokenizer.model, models.BPE):
        _reset_pairs(tokenizer.model)
    kind.dress(dressed, settings)
    dressed.decoder = tokenizer.decoder
    if tokenizer.truncation is not None:
        dressed.enable_truncation(**tokenizer.truncation)
    tokens.add_to(dressed)
    if kind.surround is not None:
        dressed.post_processor = kind.surround(dressed, settings, tokens)
    elif tokenizer.post_processor is not None:
        dressed.post_processor = tokenizer.post_processor
    return dressed


def _has_steps(kind: _Kind, tokenizer: Tokenizer, tokens: SpecialTokens) -> bool:
    """Return whether a class puts its own steps around the model of a tokenizer.json."""
    if kind.model is None or not isinstance(tokenizer.model, kind.model):
        return False
    if kind.keeps_bytes and splits_bytes(tokenizer):
        return False
    # Without the class's special tokens, the model is of another class, which the folder does not name.
    return all(tokenizer.token_to_id(tokens[role]) is not None for role in kind.defaults.required)


def _build(folder: Path, name: str, settings: Settings) -> tuple[Path, Tokenizer] | None:
    """Build the tokenizer of a class from its vocabulary; None if its kind or its files are unknown."""
    file = folder / _SETTINGS
    kind = _KINDS.get(name)
    if kind is None or kind.build is None or kind.surround is None:
        return None
    if not all(present(folder / name) for name in kind.files):
        return None
    for field in ("add_bos_token", "add_eos_token"):
        if settings.get(field):
            raise CheckpointError(
                f"{file}: {field} is {shown(settings[field])}, which is not supported: save the tokenizer "
                "again with transformers."
            )
    tokens = read_special_tokens(folder, settings, kind.defaults)
    try:
        with _naming(folder):
            tokenizer = kind.build(folder, settings, tokens)
            if tokenizer is None:
                return None
            tokens.add_to(tokenizer)
            tokenizer.post_processor = kind.surround(tokenizer, settings, tokens)
    except (KeyboardInterrupt, SystemExit, CheckpointError):
        raise
    except BaseException as error:  # the library raises bare Exception, and its panics not even that
        files = " and ".join(str(folder / name) for name in kind.files)
        raise CheckpointError(f"no tokenizer can be made from {files}: {reason(error)}; {_OWN}.") from error
    log.info("%s has no tokenizer.json: built a %s from %s", folder, name, " and ".join(kind.files))
    return folder / kind.files[0], tokenizer


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Make errors that name no file of a folder name its settings file."""
    try:
        yield
    except CheckpointError as error:
        named = str(error).startswith(str(folder))
        raise error if named else CheckpointError(f"{folder / _SETTINGS}: {error}") from error


# ---------------------------------------------------------------------------------------- WordPiece


def _build_word_pieces(folder: Path, settings: Settings, tokens: SpecialTokens) -> Tokenizer:
    """Build BERT's tokenizer: words of letters, each split into the longest pieces in the vocabulary."""
    for field, plain in (("do_basic_tokenize", (True,)), ("never_split", (None, []))):
        if field in settings and settings[field] not in plain:
            raise CheckpointError(
                f"{field} is {shown(settings[field])}, which is not supported: save the tokenizer again with "
                "transformers."
            )
    vocabulary = read_lines(folder / "vocab.txt")
    tokens.check(folder / "vocab.txt", vocabulary)
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=tokens["unk_token"]))
    _dress_word_pieces(tokenizer, settings)
    return tokenizer


def _dress_word_pieces(tokenizer: Tokenizer, settings: Settings) -> None:
    accents = settings.get("strip_accents")
    if accents is not None:
        accents = switch(settings, "strip_accents", default=False)
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=switch(settings, "tokenize_chinese_chars", default=True),
        strip_accents=accents,
        lowercase=switch(settings, "do_lower_case", default=True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()


def _surround_bert(tokenizer: Tokenizer, _: Settings, tokens: SpecialTokens) -> processors.PostProcessor:
    cls, sep = tokens["cls_token"], tokens["sep_token"]
    return _template(tokenizer, (cls, sep), [cls, "$A", sep], [cls, "$A", sep, "$B:1", f"{sep}:1"])


def _template(
    tokenizer: Tokenizer, special: tuple[str, ...], single: list[str], pair: list[str]
) -> processors.PostProcessor:
    numbered = [_numbered(tokenizer, token) for token in dict.fromkeys(special)]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=numbered)


def _numbered(tokenizer: Tokenizer, token: str) -> tuple[str, int]:
    number = tokenizer.token_to_id(token)
    if number is None:
        raise CheckpointError(f"the vocabulary does not have the token {shown(token)}: {_OWN}.")
    return token, number


# ------------------------------------------------------------------------------- byte-level pairs


def _build_roberta(folder: Path, settings: Settings, tokens: SpecialTokens) -> Tokenizer:
    """Build RoBERTa's tokenizer: pairs of bytes, where a space belongs to the word after it."""
    vocabulary = read_vocabulary(folder / "vocab.json")
    tokens.check(folder / "vocab.json", vocabulary)
    missing = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - vocabulary.keys())
    if missing:
        raise CheckpointError(
            f"{folder / 'vocab.json'} has no token for {len(missing)} of the 256 bytes, such as "
            f"{shown(missing[0])}, so texts would lose them: {_OWN}."
        )
    merges = read_merges(folder / "merges.txt", vocabulary)
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False)
    )
    _dress_bytes(tokenizer, settings)
    return tokenizer


def _dress_bytes(tokenizer: Tokenizer, settings: Settings) -> None:
    """Cut words as GPT-2 and RoBERTa do."""
    space = switch(settings, "add_prefix_space", default=False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)


_QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def _dress_qwen2(tokenizer: Tokenizer, settings: Settings) -> None:
    """Compose characters and cut words as Qwen2 does."""
    space = settings.get("add_prefix_space") is not None and switch(
        settings, "add_prefix_space", default=False
    )
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=False),
        ]
    )


def _reset_pairs(model: models.BPE) -> None:
    """Reset what a tokenizer.json sets besides the pairs themselves, as these classes do."""
    model.dropout = model.unk_token = None
    model.fuse_unk = model.byte_fallback = model.ignore_merges = False


def _surround_roberta(
    tokenizer: Tokenizer, settings: Settings, tokens: SpecialTokens
) -> processors.PostProcessor:
    sep, cls = (_numbered(tokenizer, tokens[role]) for role in ("sep_token", "cls_token"))
    space = switch(settings, "add_prefix_space", default=False)
    return processors.RobertaProcessing(sep, cls, switch(settings, "trim_offsets", default=True), space)


def _surround_mpnet(tokenizer: Tokenizer, _: Settings, tokens: SpecialTokens) -> processors.PostProcessor:
    return _surround_roberta(tokenizer, {}, tokens)


# ---------------------------------------------------------------------------------- letters, as in ESM


def _build_esm(folder: Path, _: Settings, tokens: SpecialTokens) -> Tokenizer:
    """Build ESM's tokenizer: it finds tokens of the vocabulary anywhere in a text, the longest first.

    What remains between them is unknown: one token for each run without whitespace.
    """
    file = folder / "vocab.txt"
    vocabulary = read_lines(file, most=_MOST_LETTERS)
    tokens.check(file, vocabulary)
    longest_first = sorted(vocabulary, key=len, reverse=True)
    found = Regex("|".join(re.sub(r"([^\w])", r"\\\1", token) for token in longest_first))
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=tokens["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(found, "isolated"), pre_tokenizers.Split(Regex(SPACES), "removed")]
    )
    return tokenizer


def _surround_esm(tokenizer: Tokenizer, _: Settings, tokens: SpecialTokens) -> processors.PostProcessor:
    cls, eos = tokens["cls_token"], tokens["eos_token"]
    return _template(tokenizer, (cls, eos), [cls, "$A", eos], [cls, "$A", eos, "$B", eos])


_MOST_LETTERS = 1000
"""The largest vocabulary of letters: each text is searched for all of them. ESM's has 33."""


# ---------------------------------------------------- codes of fairseq, and SentencePiece


def _surround_codes(tokenizer: Tokenizer, _: Settings, tokens: SpecialTokens) -> processors.PostProcessor:
    cls, sep = tokens["cls_token"], tokens["sep_token"]
    return _template(tokenizer, (cls, sep), [cls, "$A", sep], [cls, "$A", sep, sep, "$B", sep])


def _surround_fairseq(tokenizer: Tokenizer, _: Settings, tokens: SpecialTokens) -> processors.PostProcessor:
    bos, eos = tokens["bos_token"], tokens["eos_token"]
    return _template(tokenizer, (bos, eos), [bos, "$A", eos], [bos, "$A", eos, eos, "$B", eos])


def _surround_t5(tokenizer: Tokenizer, _: Settings, tokens: SpecialTokens) -> processors.PostProcessor:
    eos = tokens["eos_token"]
    return _template(tokenizer, (eos,), ["$A", eos], ["$A", eos, "$B", eos])


# ------------------------------------------------------------------------------------------- table

_WORD_PIECES = _Kind(
    ("vocab.txt",), tokens_of.BERT, _build_word_pieces, _surround_bert, models.WordPiece, _dress_word_pieces
)
_CODES = _Kind(("vocab.txt", "bpe.codes"), tokens_of.CODES, build_codes, _surround_codes, keeps_files=True)
_KINDS = {
    "BertTokenizer": _WORD_PIECES,
    "DistilBertTokenizer": _WORD_PIECES,
    "ElectraTokenizer": _WORD_PIECES,
    "MPNetTokenizer": _Kind(
        ("vocab.txt",),
        tokens_of.MPNET,
        _build_word_pieces,
        _surround_mpnet,
        models.WordPiece,
        _dress_word_pieces,
    ),
    "RobertaTokenizer": _Kind(
        ("vocab.json", "merges.txt"),
        tokens_of.ROBERTA,
        _build_roberta,
        _surround_roberta,
        models.BPE,
        _dress_bytes,
    ),
    "GPT2Tokenizer": _Kind((), tokens_of.GPT2, None, None, models.BPE, _dress_bytes),
    "Qwen2Tokenizer": _Kind((), tokens_of.QWEN2, None, None, models.BPE, _dress_qwen2),
    "LlamaTokenizer": _Kind((), tokens_of.LLAMA, None, None, models.BPE, dress_llama, keeps_bytes=True),
    "GemmaTokenizer": _Kind((), tokens_of.GEMMA, None, None, models.BPE, dress_gemma),
    "EsmTokenizer": _Kind(("vocab.txt",), tokens_of.ESM, _build_esm, _surround_esm),
    "BertweetTokenizer": _CODES,
    "PhobertTokenizer": _CODES,
    "XLMRobertaTokenizer": _Kind(
        ("sentencepiece.bpe.model",),
        tokens_of.XLM_ROBERTA,
        build_xlm_roberta,
        _surround_fairseq,
        checks=("add_prefix_space",),
    ),
    "CamembertTokenizer": _Kind(
        ("sentencepiece.bpe.model",),
        tokens_of.CAMEMBERT,
        build_camembert,
        _surround_fairseq,
        checks=("add_prefix_space",),
    ),
    "T5Tokenizer": _Kind(("spiece.model",), tokens_of.T5, build_t5, _surround_t5),
    "AlbertTokenizer": _Kind(
        ("spiece.model",),
        tokens_of.ALBERT,
        build_albert,
        _surround_bert,
        checks=("do_lower_case", "keep_accents", "add_prefix_space"),
    ),
    "RemBertTokenizer": _Kind(
        (), tokens_of.ALBERT, None, None, checks=("do_lower_case", "keep_accents", "add_prefix_space")
    ),
    "DebertaV2Tokenizer": _Kind(
        ("spm.model",),
        tokens_of.DEBERTA,
        build_deberta,
        _surround_bert,
        checks=("do_lower_case", "split_by_punct", "add_prefix_space"),
    ),
}
"""Keyed by the name in tokenizer_config.json, without the Fast that may follow it."""
