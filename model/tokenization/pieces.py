"""Makes the tokenizers that came from SentencePiece.

Those of XLM-RoBERTa, CamemBERT, T5, ALBERT and DeBERTa are unigrams, built from its files. Each orders the
pieces in its own way, so ids differ from those in the file. Those of Llama and Gemma merge pairs of
characters, or bytes where one has no token; they have a tokenizer.json, around whose model their steps go.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from model.errors import CheckpointError
from model.fields import switch
from model.files import shown
from model.tokenization.file import parts
from model.tokenization.sentencepiece import CONTROL, USER_DEFINED, SentencePiece, read_sentencepiece
from model.tokenization.special_tokens import SpecialTokens

Settings = Mapping[str, Any]
Scores = list[tuple[str, float]]
_MOST_EXTRA = 10_000
_SPACE = "▁"


def build_xlm_roberta(folder: Path, settings: Settings, tokens: SpecialTokens) -> Tokenizer | None:
    """Put fairseq's four special tokens before the pieces, in place of the file's three."""
    file = folder / "sentencepiece.bpe.model"
    if (model := read_sentencepiece(file)) is None:
        return None
    first: Scores = [(tokens[f"{role}_token"], 0.0) for role in ("bos", "pad", "eos", "unk")]
    scores = [*first, *_scores(model)[3:], (tokens["mask_token"], 0.0)]
    return _build(file, model, scores, 3, settings, tokens)


def build_camembert(folder: Path, settings: Settings, tokens: SpecialTokens) -> Tokenizer | None:
    """Put fairseq's special tokens before the pieces, among them three that are not used."""
    file = folder / "sentencepiece.bpe.model"
    if (model := read_sentencepiece(file)) is None:
        return None
    pad, unknown = tokens["pad_token"], tokens["unk_token"]
    first: Scores = [("<s>NOTUSED", 0.0), (pad, 0.0), ("</s>NOTUSED", 0.0), (unknown, 0.0)]
    scores = [*first, ("<unk>NOTUSED", -100.0), *_scores(model)[1:], (tokens["mask_token"], 0.0)]
    return _build(file, model, scores, 3, settings, tokens)


def build_t5(folder: Path, settings: Settings, tokens: SpecialTokens) -> Tokenizer | None:
    """Add the tokens that stand for gaps, the last one first."""
    file = folder / "spiece.model"
    if (model := read_sentencepiece(file)) is None:
        return None
    extra = settings.get("extra_ids", 100)
    if not isinstance(extra, int) or isinstance(extra, bool) or not 0 <= extra <= _MOST_EXTRA:
        raise CheckpointError(f"extra_ids is {shown(extra)}; it must be a whole number up to {_MOST_EXTRA}.")
    gaps = [f"<extra_id_{number}>" for number in reversed(range(extra))]
    scores = [*_scores(model), *((gap, 0.0) for gap in gaps)]
    tokenizer = _build(file, model, scores, 2, {}, tokens)
    tokenizer.add_tokens([AddedToken(gap, special=True) for gap in gaps])
    return tokenizer


def build_albert(folder: Path, settings: Settings, tokens: SpecialTokens) -> Tokenizer | None:
    """Take the pieces as they are, after unifying quotation marks, accents and case."""
    file = folder / "spiece.model"
    if (model := read_sentencepiece(file)) is None:
        return None
    tokenizer = _build(file, model, _scores(model), 1, settings, tokens)
    steps: list[normalizers.Normalizer] = [normalizers.Replace(pair, '"') for pair in ("``", "''")]
    if not switch(settings, "keep_accents", default=False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if switch(settings, "do_lower_case", default=True):
        steps.append(normalizers.Lowercase())
    present = [tokenizer.normalizer] if tokenizer.normalizer is not None else []
    tokenizer.normalizer = normalizers.Sequence([*steps, *present])
    return tokenizer


def build_deberta(folder: Path, settings: Settings, tokens: SpecialTokens) -> Tokenizer | None:
    """Take the pieces as they are, and add the mask, which is not one of them, after them."""
    file = folder / "spm.model"
    if settings.get("vocab_type", "spm") != "spm" or (model := read_sentencepiece(file)) is None:
        return None
    scores = _scores(model)
    unknown = next((n for n, (token, _) in enumerate(scores) if token == tokens["unk_token"]), 0)
    tokenizer = _build(file, model, scores, unknown, settings, tokens)
    steps: list[normalizers.Normalizer] = [normalizers.Strip()]
    if switch(settings, "do_lower_case", default=False):
        steps.insert(0, normalizers.Lowercase())
    # SentencePiece maps characters as the file says; transformers 5 does not, and only composes accents.
    present = [tokenizer.normalizer] if tokenizer.normalizer is not None else []
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([*steps, *present, spaces])
    before: list[pre_tokenizers.PreTokenizer] = []
    if switch(settings, "split_by_punct", default=False):
        before.append(pre_tokenizers.Punctuation("isolated"))
    space = "always" if switch(settings, "add_prefix_space", default=True) else "never"
    words = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=space)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*before, words])
    if "mask_token" in tokens.by_role:
        tokenizer.add_tokens([tokens.added[tokens["mask_token"]]])
    return tokenizer


def _scores(model: SentencePiece) -> Scores:
    return [(piece.text, piece.score) for piece in model.pieces]


def _build(
    file: Path, model: SentencePiece, scores: Scores, unknown: int, settings: Settings, tokens: SpecialTokens
) -> Tokenizer:
    """Build a tokenizer of scored pieces; piece number `unknown` stands for unknown characters."""
    vocabulary = {token: number for number, (token, _) in enumerate(scores)}
    if len(vocabulary) < len(scores):
        twice = next(t for number, (t, _) in enumerate(scores) if vocabulary[t] != number)
        raise CheckpointError(
            f"{file} has the piece {shown(twice)} twice: replace it with the model's own file."
        )
    tokens.check(file, vocabulary)
    if vocabulary[tokens["unk_token"]] != unknown:
        actual = vocabulary[tokens["unk_token"]]
        raise CheckpointError(
            f"{file}: the piece {shown(tokens['unk_token'])} has the id {actual}; for this kind of model, "
            f"the id must be {unknown}: replace it with the model's own file."
        )
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=unknown, byte_fallback=False))
    if model.characters:
        tokenizer.normalizer = normalizers.Precompiled(model.characters)
    space = "always" if switch(settings, "add_prefix_space", default=True) else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=space)]
    )
    tokenizer.add_tokens(
        [
            AddedToken(piece.text, normalized=False, special=piece.kind == CONTROL)
            for piece in model.pieces
            if piece.kind in (CONTROL, USER_DEFINED)
            and piece.text in vocabulary
            and piece.text not in tokens.added
        ]
    )
    return tokenizer


def dress_llama(tokenizer: Tokenizer, settings: Settings) -> None:
    """Put a space before a text, and with `legacy` also after each special token in it.

    Raises CheckpointError for a setting that is not a boolean.
    """
    _fall_back(tokenizer)
    before = settings.get("add_prefix_space") is None or switch(settings, "add_prefix_space", default=True)
    scheme = "always" if switch(settings, "legacy", default=False) else "first"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        _SPACE, prepend_scheme=scheme if before else "never", split=False
    )


def dress_gemma(tokenizer: Tokenizer, settings: Settings) -> None:
    """Cut texts after spaces; no space is put before a text."""
    _fall_back(tokenizer)
    unknown = settings.get("unk_token") or "<unk>"
    tokenizer.model.unk_token = unknown["content"] if isinstance(unknown, dict) else unknown
    tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")


def splits_bytes(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer cuts or joins bytes, as Llama 3 does."""
    steps = (one for one in (tokenizer.pre_tokenizer, tokenizer.decoder) if one is not None)
    return any(
        part.get("type") == "ByteLevel" for one in steps for part in parts(json.loads(one.__getstate__()))
    )


def _fall_back(tokenizer: Tokenizer) -> None:
    tokenizer.model.fuse_unk = tokenizer.model.byte_fallback = True
