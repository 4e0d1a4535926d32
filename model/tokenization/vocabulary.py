"""Reads the vocabulary files of older tokenizers: vocab.txt, vocab.json and merges.txt."""

from collections.abc import Mapping
from pathlib import Path

from model.errors import CheckpointError
from model.files import read_bytes, read_json, shown

_BYTES = 16 * 2**20
"""The largest vocab.txt or merges.txt that is read; real ones reach a few megabytes."""
_MOST_TOKENS = 2**21
_LONGEST = 1000
_OWN = "replace it with the model's own file"


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
                f"from 0: {_OWN}."
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
                f"{path}: line {number} is {shown(line)}; it must be two tokens of vocab.json that make a "
                f"third, with a space between them: {_OWN}."
            )
        merges.append((pair[0], pair[1]))
    return merges


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
