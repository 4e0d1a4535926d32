"""Encodings of which some tokens are left out."""

from collections.abc import Sequence
from dataclasses import replace

from model.contract import Encoding
from model.errors import InputTooLong


def without_special(encoding: Encoding) -> Encoding:
    """Leave out the special tokens; `original_length` and `truncated` remain those of the whole input."""
    return _only(encoding, [i for i, special in enumerate(encoding.special) if not special])


def shorten_all(encodings: Sequence[Encoding], limit: int, *, allowed: bool, left: bool) -> list[Encoding]:
    """Cut texts to a limit below the model's; raises InputTooLong if they must not be cut."""
    for index, encoding in enumerate(encodings):
        if len(encoding) > limit and not allowed:
            raise InputTooLong(field=f"inputs.{index}", actual=len(encoding), limit=limit)
    return [shorten(encoding, limit, left=left) for encoding in encodings]


def shorten(encoding: Encoding, limit: int, *, left: bool = False) -> Encoding:
    """Cut a text at its end, or at its start (`left`), to at most `limit` tokens; special tokens remain."""
    if (surplus := len(encoding) - limit) <= 0:
        return encoding
    ordinary = [i for i, special in enumerate(encoding.special) if not special]
    dropped = {*(ordinary[:surplus] if left else ordinary[-surplus:])}
    kept = [i for i in range(len(encoding)) if i not in dropped]
    prompt_length = sum(i < encoding.prompt_length for i in kept)
    return replace(_only(encoding, kept), truncated=True, prompt_length=prompt_length)


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
