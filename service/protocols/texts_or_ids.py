"""Inputs that are texts, token ids, which run as they are sent, or a mixture of both."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from pydantic import PlainValidator, ValidationInfo, WithJsonSchema

from model.contract import Encoding, Role
from model.errors import InputTooLong
from model.tokenization.tokenizer import Truncation
from service.memory_limits import TOKEN_BYTES
from service.protocols.decoding import DECODED
from service.protocols.exchange import Exchange
from service.protocols.fields import IDS, TEXT, Listed, check_total, invalid, whole_numbers
from service.tasks.tokens import check_known, encoding_of

TextOrIds = str | Sequence[int]
"""A text, or the token ids of one."""


def texts_or_ids(value: object, info: ValidationInfo) -> Listed[TextOrIds]:
    """Read a text, the ids of one, or a list of either; raises for anything else."""
    field = str(info.field_name)
    if isinstance(value, str):
        return Listed([value], flat=True)
    if not isinstance(value, list):
        raise invalid(field, "must be a string, a list of token ids, or a list of either")
    if not value or isinstance(value[0], int | float):
        return Listed([whole_numbers(value, field)], flat=True)
    read, total = list[TextOrIds](), 0
    for i, one in enumerate(value):
        if not isinstance(one, str | list):
            raise invalid(f"{field}.{i}", "must be a string or a list of token ids")
        read.append(one if isinstance(one, str) else whole_numbers(one, f"{field}.{i}"))
        total += 0 if isinstance(one, str) else len(one)
    check_total(total, field)
    return Listed(read, flat=False)


TEXTS_OR_IDS = {"anyOf": [TEXT, IDS, {"type": "array", "items": {"anyOf": [TEXT, IDS]}}]}
TextsOrIds = Annotated[Listed[TextOrIds], PlainValidator(texts_or_ids), WithJsonSchema(TEXTS_OR_IDS)]


async def tokenize_inputs(
    exchange: Exchange,
    listed: Listed[TextOrIds],
    truncation: Truncation,
    prompt: str,
    field: str,
    role: Role | None = None,
) -> list[Encoding]:
    """Tokenize texts, and take ids as they are; with a prompt, ids are turned into text to put it before.

    `field` is the request's field with the inputs, and `role` is the role of its texts. Raises OutOfRange for
    an id that no token has, and InputTooLong.
    """
    place = partial(listed.place, field)
    texts = {i: one for i, one in enumerate(listed.inputs) if isinstance(one, str)}
    ids = {i: one for i, one in enumerate(listed.inputs) if not isinstance(one, str)}
    if prompt and ids:
        texts |= await _as_texts(exchange, ids, place)
        ids = {}
    found: dict[int, Encoding] = {}
    if ids:
        taken = await _encode_ids(exchange, [*ids.values()], truncation, [*map(place, ids)])
        found |= dict(zip(ids, taken, strict=True))
    if texts:
        encoded = await exchange.tokenize([*texts.values()], truncation, prompt, place, role=role)
        found |= dict(zip(texts, encoded, strict=True))
    return [found[i] for i in range(len(found))]


async def _encode_ids(
    exchange: Exchange, lists: Sequence[Sequence[int]], truncation: Truncation, places: Sequence[str]
) -> list[Encoding]:
    """Make encodings of lists of token ids, without adding special tokens; `places` are their fields.

    Raises OutOfRange for an id that no token has, and InputTooLong.
    """
    decoder, limit = exchange.engine.decoder, exchange.engine.info.max_length
    limit = min(limit, truncation.limit or limit)

    def check() -> None:
        for ids, place in zip(lists, places, strict=True):
            check_known(decoder, ids, f"{place}.{{}}".format)
            if len(ids) > limit and not truncation.allowed:
                raise InputTooLong(field=place, actual=len(ids), limit=limit, advice=exchange.cutting)

    await exchange.off_loop(check, sum(map(len, lists)))
    tokens = sum(min(len(ids), limit) for ids in lists)
    exchange.state.memory.take(exchange.context.permit, TOKEN_BYTES * tokens)
    record = exchange.context.record
    record.stages.begin("tokenize")
    encodings = await exchange.off_loop(
        lambda: [encoding_of(ids, limit, truncation, decoder) for ids in lists], tokens
    )
    record.tokens = (record.tokens or 0) + tokens
    return encodings


async def _as_texts(
    exchange: Exchange, ids: dict[int, Sequence[int]], place: Callable[[int], str]
) -> dict[int, str]:
    """Return the texts of lists of ids, without special tokens; raises OutOfRange."""
    decoder = exchange.engine.decoder

    def read() -> list[str]:
        for i, one in ids.items():
            check_known(decoder, one, f"{place(i)}.{{}}".format)
        return decoder.decode([*ids.values()], skip_special_tokens=True)

    texts = await exchange.off_loop(read, DECODED * sum(map(len, ids.values())))
    return dict(zip(ids, texts, strict=True))
