"""Tokens of texts, and texts of token ids."""

from collections.abc import Callable, Sequence

from model.contract import Encoding
from model.errors import OutOfRange
from model.tokenization.decoding import Decoder
from model.tokenization.tokenizer import Truncation


def encoding_of(ids: Sequence[int], limit: int, truncation: Truncation, decoder: Decoder) -> Encoding:
    """Make the encoding of token ids that run as they are, at most `limit` of them.

    If there are more, the special tokens at both ends are kept, as those of a text are.
    """
    kept = list(ids) if len(ids) <= limit else _cut(ids, limit, decoder, left=truncation.side == "left")
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


def _cut(ids: Sequence[int], limit: int, decoder: Decoder, *, left: bool) -> list[int]:
    first, last = (decoder.is_special(end) for end in (ids[0], ids[-1]))
    if left and first and limit > 1:
        return [ids[0], *ids[1 - limit :]]
    if not left and last and limit > 1:
        return [*ids[: limit - 1], ids[-1]]
    return list(ids[-limit:] if left else ids[:limit])


def check_known(decoder: Decoder, ids: Sequence[int], place: Callable[[int], str]) -> None:
    """Raise OutOfRange for the first id that no token has; `place` names the field of a position."""
    position = decoder.find_unknown(ids)
    if position is not None:
        raise OutOfRange(
            f"{place(position)} is {ids[position]}, which is not a token id of this model: its tokenizer's "
            f"ids are 0 to {decoder.size - 1}.",
            field=place(position),
            actual=ids[position],
            allowed=(0, decoder.size - 1),
        )
