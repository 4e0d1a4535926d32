"""Tokens of texts, and texts of token ids."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from model.contract import Encoding
from model.errors import OutOfRange
from model.tokenization.decoding import Decoder
from model.tokenization.tokenizer import Truncation


def without_special(encoding: Encoding) -> Encoding:
    """Leave out the special tokens; `original_length` and `truncated` remain those of the whole input."""
    return _only(encoding, [i for i, special in enumerate(encoding.special) if not special])


def shorten(encoding: Encoding, limit: int) -> Encoding:
    """Cut a text at its end to at most `limit` tokens, as the tokenizer does: special tokens remain."""
    if (surplus := len(encoding) - limit) <= 0:
        return encoding
    dropped = {*[i for i, special in enumerate(encoding.special) if not special][-surplus:]}
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


def encoding_of(ids: Sequence[int], limit: int, truncation: Truncation, decoder: Decoder) -> Encoding:
    """Make the encoding of token ids that run as they are, at most `limit` of them."""
    kept = list(ids[-limit:] if truncation.side == "left" else ids[:limit])
    return Encoding(
        token_ids=kept,
        segment_ids=[0] * len(kept),
        tokens=[decoder.name(index) for index in kept],
        offsets=[(0, 0)] * len(kept),
        word_ids=[None] * len(kept),
        special=[False] * len(kept),
        truncated=len(kept) < len(ids),
        original_length=len(ids),
    )


def check_known(decoder: Decoder, ids: Sequence[int], place: Callable[[int], str]) -> None:
    """Raise OutOfRange for the first id that no token has; `place` names the field of a position."""
    position = decoder.find_unknown(ids)
    if position is not None:
        raise OutOfRange(
            f"{place(position)} is {ids[position]}, which is no token of this model: its tokenizer's ids are "
            f"0 to {decoder.size - 1}.",
            field=place(position),
            actual=ids[position],
            allowed=(0, decoder.size - 1),
        )
