"""What requests have in common, and the types of fields that the native routes do not have."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    StrictBool,
    ValidationInfo,
    WithJsonSchema,
)

from model.tokenization.tokenizer import Side, Text, Truncation
from service.protocols.decoding import check_counts
from service.protocols.fields import IDS, TEXT, Listed, first_other, id_lists, invalid
from service.protocols.lenient import Asked, Fields
from service.protocols.tei.errors import EmptyInput


def _capitalized(value: object) -> object:
    return value.capitalize() if isinstance(value, str) and value in ("left", "right") else value


class Truncated(Fields):
    """How texts are truncated."""

    truncate: StrictBool = Field(
        default=True,
        description="Truncate texts longer than the model's limit; `false` refuses them with a 422.",
    )
    # The schema has only one spelling of each: a client generated from it has one member for both.
    truncation_direction: Annotated[Literal["Left", "Right"], BeforeValidator(_capitalized)] = Field(
        "Right", description="The side from which tokens are removed; in lower case, too."
    )

    @property
    def side(self) -> Side | None:
        """The side from which tokens are removed; None, for the model's own, if the request names none."""
        if "truncation_direction" not in self.model_fields_set:
            return None
        return "left" if self.truncation_direction == "Left" else "right"

    @property
    def truncation(self) -> Truncation:
        """How texts are truncated."""
        return Truncation(allowed=self.truncate, side=self.side)


PROMPT_NAME: Any = Field(
    None, description="One of the model's prompts, put before each text; its default prompt by default."
)


class WithInputs(Asked, Truncated):
    """Inputs, none of which may be empty."""

    inputs: Any

    def check(self, count: int, limit: int) -> None:
        """Raise a problem if too many inputs (`count`) were sent, or if one is empty."""
        check_counts(self.inputs, count, limit, "inputs")
        if not all(map(_length, self.inputs.inputs)):
            raise EmptyInput("`inputs`", "inputs")

    @property
    def characters(self) -> int:
        """The number in the response's header: of Unicode code points, and of token ids."""
        return sum(map(_length, self.inputs.inputs))


def _length(one: Text | Sequence[int]) -> int:
    return sum(map(len, one)) if isinstance(one, tuple) else len(one)


def _texts_or_pairs(value: object) -> Listed[Text]:
    """Read a text, a pair as a list of two texts, or a list of lists of one or two texts."""
    if isinstance(value, str):
        return Listed([value], flat=True)
    if not isinstance(value, list) or not value:
        raise invalid("inputs", "must be a string, a list of two strings, or a list of such lists")
    if isinstance(value[0], str):
        return Listed([_text_or_pair(value, "inputs")], flat=True)
    return Listed([_text_or_pair(one, f"inputs.{i}") for i, one in enumerate(value)], flat=False)


def _text_or_pair(value: object, field: str) -> Text:
    match value:
        case [str(text)]:
            return text
        case [str(first), str(second)]:
            return first, second
    raise invalid(field, "must be a list of one string, or of the two strings of a pair")


def _strings(value: object, info: ValidationInfo) -> Sequence[str]:
    """Read a list of texts, which may be empty here: another check refuses that, with its own error."""
    field = str(info.field_name)
    if isinstance(value, str) and field == "inputs":
        return [value]
    if not isinstance(value, list):
        raise invalid(field, "must be a list of strings")
    if (wrong := first_other(value, str)) is not None:
        raise invalid(f"{field}.{wrong}", "must be a string")
    return value


def _decoded_ids(value: object, info: ValidationInfo) -> Listed[Sequence[int]]:
    """Read lists of ids as `/decode` does; an empty list passes here, for a check with its own error."""
    return Listed([[]], flat=True) if value == [] else id_lists(value, info)


_TEXTS = {"type": "array", "items": TEXT}
_ONE_OR_TWO = {**_TEXTS, "minItems": 1, "maxItems": 2}
TextsOrPairs = Annotated[
    Listed[Text],
    PlainValidator(_texts_or_pairs),
    WithJsonSchema({"anyOf": [TEXT, _ONE_OR_TWO, {"type": "array", "items": _ONE_OR_TWO, "minItems": 1}]}),
]
Strings = Annotated[Sequence[str], PlainValidator(_strings), WithJsonSchema(_TEXTS)]
TextOrTexts = Annotated[Sequence[str], PlainValidator(_strings), WithJsonSchema({"anyOf": [TEXT, _TEXTS]})]
DecodedIds = Annotated[
    Listed[Sequence[int]],
    PlainValidator(_decoded_ids),
    WithJsonSchema({"anyOf": [IDS, {"type": "array", "items": IDS}]}),
]
