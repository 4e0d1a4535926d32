"""Inputs that are token ids instead of texts: they run as they are sent."""

from collections.abc import Callable, Sequence

from model.contract import Encoding
from model.errors import InputTooLong, OutOfRange
from model.tokenization.decoding import Decoder
from model.tokenization.tokenizer import Truncation
from service.memory_limits import TOKEN_BYTES
from service.protocols.exchange import Exchange

# Python steps to name a token, which takes half a microsecond; to check an id takes a tenth of that.
_STEPS_PER_ID = 5


async def encode_ids(
    exchange: Exchange, lists: Sequence[Sequence[int]], truncation: Truncation, places: Sequence[str]
) -> list[Encoding]:
    """Make encodings of lists of token ids, without adding special tokens; `places` are their fields.

    Raises OutOfRange for an id that no token has, and InputTooLong.
    """
    limit, decoder = exchange.engine.info.max_length, exchange.engine.decoder

    def check() -> None:
        for ids, place in zip(lists, places, strict=True):
            check_known(decoder, ids, f"{place}.{{}}".format)
            if len(ids) > limit and not truncation.allowed:
                raise InputTooLong(field=place, actual=len(ids), limit=limit, advice=exchange.cutting)

    await exchange.off_loop(check, steps=sum(map(len, lists)))
    tokens = sum(min(len(ids), limit) for ids in lists)
    exchange.state.memory.take(exchange.context.permit, TOKEN_BYTES * tokens)
    record = exchange.context.record
    record.stages.begin("tokenize")
    encodings = await exchange.off_loop(
        lambda: [_encoding(ids, limit, truncation, decoder) for ids in lists], steps=_STEPS_PER_ID * tokens
    )
    record.tokens = (record.tokens or 0) + tokens
    return encodings


def _encoding(ids: Sequence[int], limit: int, truncation: Truncation, decoder: Decoder) -> Encoding:
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
