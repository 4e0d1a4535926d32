"""What an explanation is made of: options, the sequences that run for an input, its units and its item."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from model.contract import Encoding, Output, Pooling, Similarity, Want
from model.tokenization.decoding import json_bytes
from model.tokenization.tokenizer import Text, Truncation
from service.tasks.errors import OptionError
from service.tasks.explanations.targets import TargetOption
from service.tasks.explanations.units import Unit, Units, joined
from service.tasks.interventions import Change
from service.tasks.results import Expected, Item, columns, covered

Method = Literal["parts", "occlusion", "heads", "gradient"]
Replacement = Literal["mask", "remove"]
"""What a unit is replaced by: the token that stands for any word, or nothing."""

OF_VECTORS = ("function", "pooling", "dimensions", "prompt_name", "prompt")
"""Options that only similarities of sentence vectors have."""

# Bytes of an item's further fields, with their names; those of faithfulness take half of it.
_FIELD_BYTES = 1000


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """What to explain, and how; None stands for the model's own choice."""

    inputs: Sequence[Text]
    target: TargetOption | None = None
    method: Method | None = None
    unit: Unit | None = None
    """Words if None."""
    replacement: Replacement | None = None
    steps: int | None = None
    """How many points of integrated gradients; 32 if None."""
    faithfulness: bool = False
    interventions: Sequence[Change] | None = None
    """What is changed in all runs: only heads, since leaving out units may shift positions."""
    function: Similarity | None = None
    pooling: Pooling | None = None
    dimensions: int | None = None
    task: str | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    truncation: Truncation = field(default_factory=Truncation)

    def check_unused(self, on: str, *options: str) -> None:
        """Raise OptionError if one of `options` is given, though it has no effect on what `on` names."""
        given = next((option for option in options if getattr(self, option) is not None), None)
        if given is not None:
            raise OptionError(
                lambda name: f"{name(given)} has no effect on {on}: leave it out.", option=given
            )


Arrays = Mapping[str, NDArray[Any]]
Found = tuple[Mapping[str, Any], Arrays]
"""Further columns of an item, and its arrays."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The plan of one item: the sequences that run for it, and what is made of their outputs."""

    encodings: Sequence[Encoding]
    wants: Sequence[Want]
    columns: Mapping[str, Any]
    expected: Expected
    find: Callable[[Sequence[Output]], Found]

    def item(self, outputs: Sequence[Output]) -> Item:
        """Build the item."""
        more, arrays = self.find(outputs)
        return Item({**self.columns, **more}, arrays)


class ExplainPlan(Protocol):
    """How the inputs of a request are explained."""

    @property
    def method(self) -> Method:
        """The method."""

    @property
    def each(self) -> str:
        """What the units are that are left out one at a time, each in a run of its own."""

    def further(self, several: Sequence[Units], /) -> tuple[int, int]:
        """Count the sequences that run besides those of an input itself, and their tokens."""

    def explain(self, index: int, several: Sequence[Units], /) -> Explanation:
        """Plan one input; raises OptionError."""

    def effects(self, several: Sequence[Units], arrays: Arrays, /) -> NDArray[np.float32]:
        """Return what each unit of the texts adds, given the arrays of the item."""


def item_columns(index: int, several: Sequence[Units], units: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of the tokens of one text, or of both one after the other, and their units."""
    return text_columns(index, several) | {"units": units}


def text_columns(index: int, several: Sequence[Units]) -> dict[str, Any]:
    """Return the columns of the tokens; for two texts, `covered` has what was read of each, as for a pair."""
    found = columns(index, joined(several))
    if len(several) > 1 and found["truncated"]:
        found["covered"] = [span for units in several for span in covered(units.encoding)]
    return found


def expect(
    several: Sequence[Units],
    units: Mapping[str, Any] | None,
    arrays: Mapping[str, tuple[int, ...]],
    held_bytes: int,
    label_bytes: int = 0,
) -> Expected:
    """Bound an item with these units, arrays and label, which holds `held_bytes` until it is made."""
    texts = [] if units is None else units["text"]
    text_bytes = 3 * len(texts) + json_bytes("".join(texts)) + _FIELD_BYTES + label_bytes
    # An offset is a list of two numbers.
    return Expected(arrays, joined(several), 7 * len(texts), text_bytes, held_bytes)


def units_of(options: ExplainOptions, index: int, encodings: Sequence[Encoding]) -> list[Units]:
    """Find the units of one input, whose two texts may be separate sequences."""
    given = options.inputs[index]
    if len(encodings) == 1 or isinstance(given, str):
        return [Units.of(encodings[0], given, options.unit or "word")]
    texts = zip(given, encodings, strict=True)
    return [Units.of(one, text, options.unit or "word", number) for number, (text, one) in enumerate(texts)]
