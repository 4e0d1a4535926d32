"""Inputs that are texts or token ids, which run as they are sent, and mixtures of them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Generic, TypeVar, cast

from pydantic import PlainValidator, ValidationInfo, WithJsonSchema

from model.contract import Encoding
from model.errors import InputTooLong
from model.tokenization.tokenizer import Truncation
from service.http.request_body import SEVERAL, check_count
from service.memory_limits import TOKEN_BYTES
from service.problems import Problem
from service.protocols.exchange import Exchange
from service.protocols.fields import MAX_IDS, first_other, invalid
from service.settings import Settings
from service.tasks.tokens import check_known, encoding_of

T = TypeVar("T")

TextOrIds = str | Sequence[int]
"""A text, or the token ids of one."""

# A token is decoded in the time in which so many are planned.
_DECODED = 8


class Listed(Generic[T]):
    """The inputs of a request; `flat` says that there is one, sent without a list around it."""

    # Not a dataclass, which pydantic would add to the API's schema.
    def __init__(self, inputs: Sequence[T], *, flat: bool) -> None:
        self.inputs, self.flat = inputs, flat

    def __len__(self) -> int:
        return len(self.inputs)

    def place(self, field: str, index: int) -> str:
        """Name the place of an input in the request, whose inputs are in `field`."""
        return field if self.flat else f"{field}.{index}"


def texts_or_ids(value: object, info: ValidationInfo) -> Listed[TextOrIds]:
    """Read a text, the ids of one, or a list of either; raises for anything else."""
    field = str(info.field_name)
    if isinstance(value, str):
        return Listed([value], flat=True)
    if not isinstance(value, list):
        raise invalid(field, "must be a string, a list of token ids, or a list of either")
    if not value or isinstance(value[0], int | float):
        return Listed([_ids(value, field)], flat=True)
    read, total = list[TextOrIds](), 0
    for i, one in enumerate(value):
        if not isinstance(one, str | list):
            raise invalid(f"{field}.{i}", "must be a string or a list of token ids")
        read.append(one if isinstance(one, str) else _ids(one, f"{field}.{i}"))
        total += 0 if isinstance(one, str) else len(one)
    if total > MAX_IDS:
        raise invalid(field, f"has {total} ids and the limit is {MAX_IDS}")
    return Listed(read, flat=False)


def _ids(value: list[Any], field: str) -> Sequence[int]:
    numbers = value[: first_other(value, int)]
    least = min(numbers, default=0)
    if least >= 0 and len(numbers) == len(value):
        return cast(Sequence[int], value)
    wrong = len(numbers) if least >= 0 else next(i for i, one in enumerate(numbers) if one < 0)
    raise invalid(f"{field}.{wrong}", "must be a token id, a whole number of at least 0")


_TEXT = {"type": "string"}
_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}}
TEXTS_OR_IDS = {"anyOf": [_TEXT, _IDS, {"type": "array", "items": {"anyOf": [_TEXT, _IDS]}}]}
TextsOrIds = Annotated[Listed[TextOrIds], PlainValidator(texts_or_ids), WithJsonSchema(TEXTS_OR_IDS)]


def check_inputs(
    inputs: Listed[TextOrIds], count: int, settings: Settings, field: str, way_out: str = SEVERAL
) -> None:
    """Raise the problem of a list of `count` items, in `field`, that is too long."""
    if not inputs.flat:
        check_count(count, settings, field, way_out)
    elif count > MAX_IDS:
        detail = f"{field} has {count} ids and the limit is {MAX_IDS}: send fewer."
        raise Problem("invalid-request", detail, members={"field": field, "limit": MAX_IDS, "actual": count})


async def tokenize_inputs(
    exchange: Exchange, listed: Listed[TextOrIds], truncation: Truncation, prompt: str, field: str
) -> list[Encoding]:
    """Tokenize texts, and take ids as they are; with a prompt, ids are turned into text to put it before.

    `field` has the inputs. Raises OutOfRange for an id that no token has, and InputTooLong.
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
        encoded = await exchange.tokenize([*texts.values()], truncation, prompt, place)
        found |= dict(zip(texts, encoded, strict=True))
    return [found[i] for i in range(len(found))]


async def _encode_ids(
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

    texts = await exchange.off_loop(read, _DECODED * sum(map(len, ids.values())))
    return dict(zip(ids, texts, strict=True))
