"""What in two texts makes them similar: which score is explained, how, and of which parts it is the sum."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from numpy.typing import NDArray

from model.contract import Encoding, Output, Pooling, Similarity, Want
from model.tokenization.decoding import json_bytes
from model.tokenization.tokenizer import Text, Truncation
from service.tasks.errors import OptionError
from service.tasks.results import Expected, Item, columns
from service.tasks.units import Unit, Units, describe

Method = Literal["parts"]

OF_VECTORS = ("function", "pooling", "dimensions", "prompt_name", "prompt")
"""Options that only similarities of sentence vectors have."""

# The names of an item's further fields, with their values.
_FIELD_BYTES = 400


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """What to explain, and how; None stands for the model's own choice."""

    inputs: Sequence[Text]
    method: Method = "parts"
    unit: Unit = "word"
    function: Similarity | None = None
    pooling: Pooling | None = None
    dimensions: int | None = None
    task: str | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    truncation: Truncation = field(default_factory=Truncation)

    def check_unused(self, on: str, *options: str) -> None:
        """Raise OptionError for options that are given and have no effect on something."""
        given = next((option for option in options if getattr(self, option) is not None), None)
        if given is not None:
            raise OptionError(
                lambda name: f"{name(given)} has no effect on {on}: leave it out.", option=given
            )


@dataclass(frozen=True, slots=True)
class Explanation:
    """The plan of one item: the sequences that run for it, and what is made of their outputs."""

    encodings: Sequence[Encoding]
    wants: Sequence[Want]
    columns: Mapping[str, Any]
    expected: Expected
    found: Callable[[Sequence[Output]], tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]]
    """Makes the other columns and the arrays of the item."""

    def item(self, outputs: Sequence[Output]) -> Item:
        """Build the item."""
        more, arrays = self.found(outputs)
        return Item({**self.columns, **more}, arrays)


def item_columns(index: int, several: Sequence[Units], *, bias: bool = False) -> dict[str, Any]:
    """Return the columns of the tokens of one text, or of both one after the other, and their units."""
    return columns(index, joined(several)) | {"units": describe(several, bias=bias)}


def expect(
    several: Sequence[Units], units: Mapping[str, Any], arrays: Mapping[str, tuple[int, ...]], held_bytes: int
) -> Expected:
    """Bound an item with these units and arrays, which holds `held_bytes` until it is made."""
    texts = units["text"]
    text_bytes = 3 * len(texts) + json_bytes("".join(texts)) + _FIELD_BYTES
    # An offset is a list of two numbers.
    return Expected(arrays, joined(several), 7 * len(texts), text_bytes, held_bytes)


def joined(several: Sequence[Units]) -> Encoding:
    """Put the tokens of several texts one after the other; of one alone they are its own."""
    if len(several) == 1:
        return several[0].encoding
    every = [units.encoding for units in several]

    def column(name: str) -> list[Any]:
        return list(chain.from_iterable(getattr(encoding, name) for encoding in every))

    return Encoding(
        token_ids=column("token_ids"),
        segment_ids=[number for number, encoding in enumerate(every) for _ in range(len(encoding))],
        tokens=column("tokens"),
        offsets=column("offsets"),
        word_ids=column("word_ids"),
        special=column("special"),
        truncated=any(encoding.truncated for encoding in every),
        original_length=sum(encoding.original_length for encoding in every),
    )


def units_of(options: ExplainOptions, index: int, encodings: Sequence[Encoding]) -> list[Units]:
    """Find the units of one input, whose two texts may be apart."""
    given = options.inputs[index]
    if len(encodings) == 1 or isinstance(given, str):
        return [Units.of(encodings[0], given, options.unit)]
    texts = zip(given, encodings, strict=True)
    return [Units.of(one, text, options.unit, number) for number, (text, one) in enumerate(texts)]
