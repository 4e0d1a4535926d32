"""Indices of layers, heads, tokens and hidden states, and pairs of them; negative ones count from the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from model.contract import ModelInfo
from service.tasks.errors import ENCODER, TABLE, Names, OptionError

Chosen = Literal["all"] | Sequence[int]
Edge = tuple[int, int]
"""A query and a key, by their positions."""


def choose(
    chosen: Chosen, count: int, *, what: str, option: str, input_: str | None = None
) -> tuple[int, ...]:
    """Return the chosen indices of `count` as `resolve` does, or all of them."""
    if chosen == "all":
        return tuple(range(count))
    return resolve(chosen, count, what=what, option=option, input_=input_)


def resolve(
    indices: Sequence[int], count: int, *, what: str, option: str, input_: str | None = None
) -> tuple[int, ...]:
    """Convert indices to non-negative ones, keeping order and duplicates; raises OptionError.

    `what` names what is chosen from `count` of them. The error's field is `input_`, the input that has them,
    if that is given, or else the wrong item of `option`.
    """
    # There may be thousands: each step looks at all of them at once.
    least = min(indices)
    if least < -count or max(indices) >= count:
        position, index = next(one for one in enumerate(indices) if not -count <= one[1] < count)
        raise _outside(index, count, what, f"{option}.{position}", input_)
    return tuple(indices) if least >= 0 else tuple(index % count for index in indices)


def check_index(index: int, count: int, what: str, option: str) -> None:
    """Raise OptionError for a single index that `resolve` would refuse."""
    if not -count <= index < count:
        raise _outside(index, count, what, option)


def _outside(index: int, count: int, what: str, place: str, input_: str | None = None) -> OptionError:
    """Make the error of an index, which the request has at `place`, outside the `count` of `what`."""

    def say(name: Names) -> str:
        available = f"there are {count}" if input_ is None else f"{name(input_)} has {count}"
        return f"{name(place)} is {index} and {available} {what}: choose from {-count} to {count - 1}."

    return OptionError(say, option=input_ or place, actual=index, allowed=[-count, count - 1])


def dropped(place: str, position: int, count: int, input_: str) -> OptionError:
    """Make the error of a position of a dropped special token, which the request has at `place`."""
    return OptionError(
        lambda name: (
            f"{name(place)} is {position}, which in {name(input_)} is a special token, dropped by "
            '"special_tokens": "drop": choose another position, or keep special tokens.'
        ),
        option=input_,
        actual=position,
        allowed=[-count, count - 1],
    )


def choose_layers(chosen: Chosen, info: ModelInfo, option: str) -> tuple[int, ...]:
    """Return the chosen layers as `resolve` does, or all that attend; raises OptionError for any other."""
    if chosen == "all":
        return info.attention_layers
    layers = resolve(chosen, info.layers, what="layers", option=option)
    for place, layer in enumerate(layers if len(info.attention_layers) < info.layers else ()):
        check_attends(layer, info, f"{option}.{place}", chosen[place])
    return layers


def check_attends(layer: int, info: ModelInfo, place: str, actual: int) -> None:
    """Raise OptionError if a layer, which the request has at `place` as `actual`, does not attend."""
    if layer not in info.attention_layers:
        attending = ", ".join(map(str, info.attention_layers))
        raise OptionError(
            lambda name: (
                f"{name(place)} is {actual}, a layer with a convolution instead of attention: choose from "
                f"the attention layers, {attending}."
            ),
            option=place,
            actual=actual,
            allowed=[*info.attention_layers],
        )


def check_exposes(info: ModelInfo, what: str, option: str) -> None:
    """Raise OptionError if a model returns only its last hidden state or sentence vectors."""
    if not info.layers:
        raise OptionError(
            lambda _: f"{TABLE}: it has no {what}; {ENCODER}.", option=option, kind="unsupported"
        )
    if not info.exposes_attention:
        returns = "its last hidden state" if info.exposes_tokens else "the vectors of texts"
        raise OptionError(
            lambda _: (
                f"This model runs as an ONNX graph that returns {returns} but no {what}: export the model's "
                "weights with `headlight export MODEL FOLDER`, and serve FOLDER."
            ),
            option=option,
            kind="unsupported",
        )


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges of attention, a list for each input; `flat` means one list, sent without a list around it."""

    lists: Sequence[Sequence[Sequence[int]]]
    flat: bool = False

    def check(self, inputs: int) -> None:
        """Raise OptionError if there is not a list of edges for each of the `inputs`."""
        lists = len(self.lists)
        if lists == inputs:
            return
        has = "is a list of edges for one input" if self.flat else f"has lists of edges for {lists} inputs"
        raise OptionError(
            lambda name: (
                f"{name('edges')} {has}, but there are {inputs} {name('inputs')}: send a list of edges for "
                "each, such as [[[1, 2]], [[0, 3], [0, 4]]] for two."
            ),
            option="edges",
            actual=lists,
            allowed=inputs,
        )

    def resolve(self, index: int, special: Sequence[bool], level: str, *, keep: bool) -> tuple[Edge, ...]:
        """Return the edges of an input by positions that are not negative; raises OptionError.

        `special` marks the special ones of its `level`, tokens or words, whose edges need `keep`.
        """
        edges, count = self.lists[index], len(special)
        numbers = list(chain.from_iterable(edges))
        least = min(numbers, default=0)
        if least < -count or max(numbers, default=-1) >= count:
            wrong = next(i for i, number in enumerate(numbers) if not -count <= number < count)
            place = self._place(index, wrong)
            raise _outside(numbers[wrong], count, f"{level}s", place, f"inputs.{index}")
        positions = numbers if least >= 0 else [number % count for number in numbers]
        if not keep and any(special[i] for i in positions):
            wrong = next(place for place, i in enumerate(positions) if special[i])
            raise dropped(self._place(index, wrong), numbers[wrong], count, f"inputs.{index}")
        return tuple(zip(positions[::2], positions[1::2], strict=True))

    def _place(self, index: int, number: int) -> str:
        """Name the place of a position in the request; `number` counts those of an input."""
        edge, end = divmod(number, 2)
        return f"edges.{edge}.{end}" if self.flat else f"edges.{index}.{edge}.{end}"
