"""Reads the vocabulary files of older tokenizers: vocab.txt, vocab.json and merges.txt.

fairseq's files, those of BERTweet and PhoBERT, number only the pieces that words end up as; the library also
numbers those that they are merged from.
"""

from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from model.errors import CheckpointError
from model.files import read_bytes, read_json, shown
from model.tokenization.special_tokens import SpecialTokens

_BYTES = 16 * 2**20
"""The largest vocab.txt or merges.txt that is read; real ones reach a few megabytes."""
_MOST_TOKENS = 2**21
_LONGEST = 1000
_OWN = "replace it with the model's own file"
# What Python's `str.split` splits at, which is more than the library's own splitting at whitespace.
SPACES = r"[\t-\r\x1c- \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+"
_END, _GOES_ON = "</w>", "@@"
_UNLISTED = 2 * _MOST_TOKENS
"""The first id of pieces that words are merged from but that are not tokens.

It is not larger, because the library counts up to the largest id when it saves a tokenizer.
"""


def read_lines(path: Path, *, most: int = _MOST_TOKENS) -> dict[str, int]:
    """Read a vocab.txt: a token on each line, whose number is the token's id; raises CheckpointError.

    Whitespace after a token is not part of it. Empty lines count, but no text contains their token.
    """
    vocabulary: dict[str, int] = {}
    for number, line in enumerate(_decoded(path).split("\n")):
        token = line.rstrip()
        if not token:
            continue
        _check_token(path, token)
        if vocabulary.setdefault(token, number) != number:
            raise CheckpointError(
                f"{path} has the token {shown(token)} on the lines {vocabulary[token] + 1} and {number + 1}: "
                f"{_OWN}."
            )
        if len(vocabulary) > most:
            raise CheckpointError(f"{path} has more than {most} tokens, which is the limit: {_OWN}.")
    if not vocabulary:
        raise CheckpointError(f"{path} has no tokens: {_OWN}.")
    return vocabulary


def read_vocabulary(path: Path) -> dict[str, int]:
    """Read a vocab.json, which maps tokens to their ids; raises CheckpointError."""
    vocabulary: dict[str, int] = read_json(path)
    owners: dict[int, str] = {}
    for token, number in vocabulary.items():
        _check_token(path, token)
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**31:
            raise CheckpointError(
                f"{path}: the id of the token {shown(token)} is {shown(number)}; it must be a whole number "
                f"from 0 to {2**31 - 1}: {_OWN}."
            )
        if (owner := owners.setdefault(number, token)) != token:
            raise CheckpointError(
                f"{path}: the tokens {shown(owner)} and {shown(token)} both have the id {number}: {_OWN}."
            )
    return vocabulary


def read_merges(path: Path, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Read a merges.txt: two tokens on each line, which become one that exists; raises CheckpointError."""
    merges = []
    for number, line in enumerate(_decoded(path).split("\n"), start=1):
        if line.startswith("#version") or not line.strip("\r"):
            continue
        pair = line.rstrip("\r").split(" ")
        if len(pair) != 2 or any(token not in vocabulary for token in (*pair, "".join(pair))):
            raise CheckpointError(
                f"{path}: line {number} is {shown(line)}; it must be two tokens of vocab.json, separated by "
                f"a space, that together make a third: {_OWN}."
            )
        merges.append((pair[0], pair[1]))
    return merges


def _read_counted(path: Path, first: Iterable[str]) -> dict[str, int]:
    """Read a vocab.txt of fairseq: a token and its count on each line, numbered after the `first` ones.

    Raises CheckpointError.
    """
    vocabulary = {token: number for number, token in enumerate(first)}
    for number, line in enumerate(_decoded(path).removesuffix("\n").split("\n"), start=1):
        token, _, _ = line.strip().rpartition(" ")
        if not token or token in vocabulary or len(vocabulary) > _MOST_TOKENS:
            raise CheckpointError(
                f"{path}: line {number} is {shown(line)}; it must be a token that is on no other line, and "
                f"its count; at most {_MOST_TOKENS} lines are allowed: {_OWN}."
            )
        _check_token(path, token)
        vocabulary[token] = len(vocabulary)
    return vocabulary


def _read_codes(path: Path) -> list[tuple[str, str]]:
    """Read a bpe.codes: two pieces that become one, and their count, on each line; raises CheckpointError."""
    codes = []
    for number, line in enumerate(_decoded(path).split("\n")[:-1], start=1):
        pair = line.split()[:-1]
        if len(pair) != 2:
            raise CheckpointError(
                f"{path}: line {number} is {shown(line)}; it must be two pieces and their count: {_OWN}."
            )
        _check_token(path, "".join(pair))
        codes.append((pair[0], pair[1]))
    return codes


def build_codes(folder: Path, settings: Mapping[str, Any], tokens: SpecialTokens) -> Tokenizer:
    """Build the tokenizer of fairseq's files: a word is what is between spaces, and a line break after it.

    Raises CheckpointError.
    """
    if settings.get("normalization"):
        raise CheckpointError(
            f"normalization is {shown(settings['normalization'])}, but its rules for tweets are not "
            "supported: set it to false, and send texts that are already normalized."
        )
    file = folder / "vocab.txt"
    roles = ("bos_token", "pad_token", "eos_token", "unk_token")
    vocabulary = _read_counted(file, (tokens[role] for role in roles))
    mask = tokens["mask_token"]
    vocabulary.setdefault(mask, tokens.ids.get(mask, len(vocabulary)))
    tokens.check(file, vocabulary)
    vocabulary = {**tokens.ids, **vocabulary}
    if (largest := max(vocabulary.values())) > _MOST_TOKENS:
        raise CheckpointError(
            f"{tokens.file}: the id {largest} of an added token is more than {_MOST_TOKENS}, which is the "
            f"limit: {_OWN}."
        )
    model = _join(vocabulary, _read_codes(folder / "bpe.codes"), set(tokens.added), tokens["unk_token"])
    tokenizer = Tokenizer(model)
    words = Regex(SPACES.replace("[", "[^", 1) + r"\n?")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(words, "removed", invert=True)
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    return tokenizer


def _join(
    vocabulary: Mapping[str, int], codes: list[tuple[str, str]], special: Set[str], unknown: str
) -> models.BPE:
    """Join a vocabulary, where tokens within words end in "@@", and codes, where words end in "</w>".

    Pieces that are not tokens get ids from `_UNLISTED` on, as each piece needs one; see `unlisted`.
    """
    pieces = {_piece(token, special): number for token, number in vocabulary.items()}
    count = 0
    for first, second in codes:
        for piece in (first, second, first + second):
            if piece not in pieces:
                pieces[piece] = _UNLISTED + count
                count += 1
    return models.BPE(pieces, codes, unk_token=unknown, end_of_word_suffix=_END, fuse_unk=False)


def _piece(token: str, special: Set[str]) -> str:
    """Return the piece that a token names."""
    if token in special:
        return token
    within = token.endswith(_GOES_ON) and token != _GOES_ON
    return token.removesuffix(_GOES_ON) if within else token + _END


def unlisted(tokenizer: Tokenizer) -> dict[int, int]:
    """Map the ids of pieces that are not tokens to those of tokens with their names, or of the unknown one.

    A word may end in the mark of tokens within words: "a@@" is both "a" within a word, and "a@@" at its end.
    """
    model = tokenizer.model
    if not isinstance(model, models.BPE) or model.end_of_word_suffix != _END:
        return {}
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    unknown = pieces.get(model.unk_token or "")
    others = {piece: number for piece, number in pieces.items() if number >= _UNLISTED}
    if unknown is None or not others:
        return {}
    names = {_name(piece): number for piece, number in pieces.items() if number < _UNLISTED}
    return {number: names.get(_name(piece), unknown) for piece, number in others.items()}


def _name(piece: str) -> str:
    return piece.removesuffix(_END) if piece.endswith(_END) else piece + _GOES_ON


def _decoded(path: Path) -> str:
    try:
        return read_bytes(path, _BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 at byte {error.start}: {_OWN}.") from error


def _check_token(path: Path, token: str) -> None:
    if len(token) > _LONGEST:
        raise CheckpointError(
            f"{path}: the token {shown(token)} has {len(token)} characters; the limit is {_LONGEST}: {_OWN}."
        )
    if any("\ud800" <= character <= "\udfff" for character in token):
        raise CheckpointError(f"{path}: the token {shown(token)} is not valid Unicode: {_OWN}.")
