"""Leaves tokens out of encodings."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from model.contract import Encoding


def without_special(encoding: Encoding) -> Encoding:
    """Leave out the special tokens; `original_length` and `truncated` remain those of the whole input."""
    return _only(encoding, [i for i, special in enumerate(encoding.special) if not special])


def without_token(encoding: Encoding, number: int) -> Encoding:
    """Leave out every token of this id; `original_length` and `truncated` remain those of the whole input."""
    kept = [i for i, one in enumerate(encoding.token_ids) if one != number]
    prompt_length = sum(i < encoding.prompt_length for i in kept)
    return replace(_only(encoding, kept), prompt_length=prompt_length)


def shorten(encoding: Encoding, limit: int, *, left: bool = False) -> Encoding:
    """Cut a text at its end, or at its start (`left`), to at most `limit` tokens; special tokens remain.

    In a pair, the longer text is cut first, as at the model's limit.
    """
    if (surplus := len(encoding) - limit) <= 0:
        return encoding
    texts = _texts(encoding)
    dropped = set[int]()
    for positions, room in zip(texts, _rooms([*map(len, texts)], surplus), strict=True):
        dropped |= {*(positions[: len(positions) - room] if left else positions[room:])}
    kept = [i for i in range(len(encoding)) if i not in dropped]
    prompt_length = sum(i < encoding.prompt_length for i in kept)
    return replace(_only(encoding, kept), truncated=True, prompt_length=prompt_length)


def _texts(encoding: Encoding) -> list[list[int]]:
    """Return the positions of the tokens of each text: special tokens stand between the texts of a pair."""
    runs = groupby(range(len(encoding)), encoding.special.__getitem__)
    return [list(run) for special, run in runs if not special]


def _rooms(lengths: Sequence[int], surplus: int) -> Sequence[int]:
    """Return how many tokens are left of each text: the longer one of two is cut first."""
    left = max(0, sum(lengths) - surplus)
    if len(lengths) != 2:
        return [left] * len(lengths)
    short = min(*lengths, left // 2)
    return (short, left - short) if lengths[0] <= lengths[1] else (left - short, short)


def _only(encoding: Encoding, kept: Sequence[int]) -> Encoding:
    """Leave out all tokens but those at the positions `kept`."""
    return replace(
        encoding,
        token_ids=[encoding.token_ids[i] for i in kept],
        segment_ids=[encoding.segment_ids[i] for i in kept],
        tokens=[encoding.tokens[i] for i in kept],
        offsets=[encoding.offsets[i] for i in kept],
        word_ids=[encoding.word_ids[i] for i in kept],
        special=[encoding.special[i] for i in kept],
    )
