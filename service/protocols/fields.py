"""The fields of requests and their types: each is checked with an error that names the field."""

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from model.tokenization.tokenizer import Text
from service.http.json_body import MAX_INDICES, MAX_VALUES, REST

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

OptionsT = TypeVar("OptionsT", bound="DataclassInstance")
T_co = TypeVar("T_co", covariant=True)

Indices = tuple[int, ...]
MAX_IDS = MAX_VALUES
"""The most token ids in one request, whose body is then parsed as it is."""


def invalid(field: str | None, message: str) -> PydanticCustomError:
    """Make the error of `field`, or if None of the field being read; `message` follows the field's name."""
    return PydanticCustomError("invalid", "{message}", {"field": field, "message": message})


# How many unknown fields are described one by one.
_UNKNOWN = 10


class Options(BaseModel):
    """An object of a request: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _limit_fields(cls, value: object) -> object:
        """Refuse an object with far too many fields in a single error, not with one for each field."""
        fields = cls.__pydantic_fields__
        if isinstance(value, dict) and len(value) > len(fields) + _UNKNOWN:
            raise invalid(None, f"has {len(value)} fields, and there are {len(fields)}: {', '.join(fields)}")
        return value

    def fill(self, options: type[OptionsT], **others: Any) -> OptionsT:
        """Make the options of a task from the fields of the same names, and from `others`."""
        names = _shared(type(self), options)
        return options(**{name: getattr(self, name) for name in names if name not in others}, **others)

    def is_overridden(self, field: str) -> bool:
        """Whether a field was set to a value other than its default; setting the default never matters."""
        if field not in self.model_fields_set:
            return False
        return bool(getattr(self, field) != type(self).model_fields[field].default)


@cache
def _shared(schema: type[BaseModel], options: "type[DataclassInstance]") -> tuple[str, ...]:
    """List the names that a schema and the options of a task have in common."""
    names = (one.name for one in fields(options))
    return tuple(name for name in names if name in schema.model_fields or hasattr(schema, name))


def _whole(value: object, info: ValidationInfo) -> int:
    """Accept whole numbers (6 and 6.0), but no booleans or strings."""
    return whole_number(value, str(info.field_name))


def whole_number(value: object, field: str) -> int:
    """Check the value of a field as `WholeNumber` does."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise invalid(field, "must be an integer")
    return int(value)


def _indices(value: object, info: ValidationInfo) -> Indices:
    field = str(info.field_name)
    if not isinstance(value, list) or not value:
        raise invalid(field, "must be a list of at least one integer")
    if len(value) > MAX_INDICES:
        raise invalid(field, f"has {len(value)} items and the limit is {MAX_INDICES}: {REST}")
    return tuple(whole_numbers(value, field))


def _all_or_indices(value: object, info: ValidationInfo) -> Literal["all"] | Indices:
    if value == "all":
        return "all"
    if isinstance(value, str) or not isinstance(value, list):
        raise invalid(str(info.field_name), 'must be "all" or a list of at least one integer, such as [0]')
    return _indices(value, info)


def texts_or_pairs(value: object) -> Sequence[Text]:
    """Parse one text, texts, or pairs. A list of two strings is two texts: a pair is always nested."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise invalid("inputs", "must be a string, or a non-empty list of strings or of [text, text_pair]")
    texts, pairs = [], []
    for i, item in enumerate(value):
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, list) and len(item) == 2 and all(isinstance(text, str) for text in item):
            pairs.append((item[0], item[1]))
        else:
            raise invalid(f"inputs.{i}", "must be a string or a pair of two strings, [text, text_pair]")
        if texts and pairs:
            raise invalid(
                f"inputs.{i}",
                "is not of the same kind as inputs.0: texts and pairs cannot be mixed in one request",
            )
    return texts or pairs


def text_list(value: object, field: str, more: str = "") -> list[str]:
    """Read a list of at least one text; `more` says, for errors, what an item may be besides a string."""
    if not isinstance(value, list) or not value:
        raise invalid(field, "must be a non-empty list of strings")
    if (wrong := first_other(value, str)) is not None:
        raise invalid(f"{field}.{wrong}", f"must be a string{more}")
    return value


def text_of(one: object) -> object:
    """Return the `text` of an object if that is a string; return anything else as it is."""
    return one["text"] if isinstance(one, dict) and isinstance(one.get("text"), str) else one


def _non_empty_text(value: object, info: ValidationInfo) -> str:
    field = str(info.field_name)
    if not isinstance(value, str):
        raise invalid(field, "must be a string")
    if not value:
        raise invalid(field, "is empty: send a text of at least one character")
    return value


class Listed(Generic[T_co]):
    """The inputs of a request; `flat` says that there is one, sent without a list around it."""

    # Not a dataclass, which pydantic would add to the API's schema.
    def __init__(self, inputs: Sequence[T_co], *, flat: bool) -> None:
        self.inputs, self.flat = inputs, flat

    def __len__(self) -> int:
        return len(self.inputs)

    def place(self, field: str, index: int) -> str:
        """Return the place of an input in the request, such as `inputs.3` for the `field` "inputs"."""
        return field if self.flat else f"{field}.{index}"


def id_lists(value: object, info: ValidationInfo) -> Listed[Sequence[int]]:
    """Read the ids of one text, or a list of such lists; raises PydanticCustomError."""
    field = str(info.field_name)
    if not isinstance(value, list) or not value:
        raise invalid(field, "must be a non-empty list of integers, or of lists of integers")
    if not isinstance(value[0], list):
        return Listed([whole_numbers(value, field)], flat=True)
    if set(map(type, value)) == {list} and set(map(type, chain.from_iterable(value))) <= {int}:
        lists = value
    else:
        lists = [_integers(ids, f"{field}.{i}", field) for i, ids in enumerate(value)]
    check_total(sum(map(len, lists)), field)
    return Listed(lists, flat=False)


def _integers(value: object, place: str, field: str) -> Sequence[int]:
    if not isinstance(value, list):
        raise invalid(place, f"must be a list of integers, as {field}.0 is")
    return whole_numbers(value, place)


def check_total(ids: int, field: str) -> None:
    """Raise an error if the lists of a field have more token ids in all than a request may have."""
    if ids > MAX_IDS:
        raise invalid(field, f"has {ids} ids and the limit is {MAX_IDS}: split them into several requests")


def whole_numbers(value: list[object], field: str) -> Sequence[int]:
    """Check each item of a list as `WholeNumber` does, in a tenth of the time: there may be thousands."""
    if set(map(type, value)) <= {int}:
        return cast(Sequence[int], value)
    numbers = cast(list[float], value[: first_other(value, int, float)])
    whole = list(map(float.is_integer, map(float, numbers)))
    if len(numbers) == len(value) and all(whole):
        return list(map(int, numbers))
    raise invalid(f"{field}.{[*whole, False].index(False)}", "must be an integer")


def first_other(value: list[object], *kinds: type) -> int | None:
    """Return the position of the first item that is of none of these types, None if there is none."""
    types = list(map(type, value))
    return min(map(types.index, set(types).difference(kinds)), default=None)


def at_most(count: int) -> BeforeValidator:
    """Refuse a list of more items before it is read: pydantic would first check all items."""

    def check(value: object) -> object:
        if isinstance(value, list) and len(value) > count:
            context = {"field_type": "List", "max_length": count, "actual_length": len(value)}
            raise PydanticKnownError("too_long", context)
        return value

    return BeforeValidator(check)


_INTEGERS = {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": MAX_INDICES}
TEXT = {"type": "string"}
_PAIR = {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2}
_INPUTS = {
    "anyOf": [
        TEXT,
        {"type": "array", "items": TEXT, "minItems": 1},
        {"type": "array", "items": _PAIR, "minItems": 1},
    ],
    "examples": ["Hello, world!", ["One text.", "Another text."], [["A text.", "Its pair."]]],
}

WholeNumber = Annotated[int, BeforeValidator(_whole)]
# Field comes first: after the validator, its bound would be enforced but missing from the schema.
PositiveNumber = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
StepCount = Annotated[int, Field(ge=1, le=256), BeforeValidator(_whole)]
CellCount = Annotated[int, Field(ge=1, le=256), BeforeValidator(_whole)]


def _most_tokens(value: object, info: ValidationInfo) -> int:
    """Read a limit of tokens; -1 is the model's."""
    field = str(info.field_name)
    limit = whole_number(value, field)
    if limit != -1 and limit < 1:
        raise invalid(field, f"is {limit}: choose at least 1, or -1 for the model's limit")
    return limit


MostTokens = Annotated[
    int,
    PlainValidator(_most_tokens),
    WithJsonSchema({"anyOf": [{"const": -1, "type": "integer"}, {"type": "integer", "minimum": 1}]}),
]
IndexList = Annotated[Indices, PlainValidator(_indices), WithJsonSchema(_INTEGERS)]
AllOrIndices = Annotated[
    Literal["all"] | Indices,
    PlainValidator(_all_or_indices),
    WithJsonSchema({"anyOf": [{"const": "all", "type": "string"}, _INTEGERS]}),
]
Inputs = Annotated[Sequence[Text], PlainValidator(texts_or_pairs), WithJsonSchema(_INPUTS)]
IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}}
TokenIds = Annotated[
    Listed[Sequence[int]],
    PlainValidator(id_lists),
    WithJsonSchema({"anyOf": [{**IDS, "minItems": 1}, {"type": "array", "items": IDS, "minItems": 1}]}),
]
NonEmptyText = Annotated[
    str, BeforeValidator(_non_empty_text), WithJsonSchema({"type": "string", "minLength": 1})
]
TextList = Annotated[
    list[str],
    PlainValidator(lambda value, info: text_list(value, str(info.field_name))),
    WithJsonSchema({"type": "array", "items": TEXT, "minItems": 1}),
]
