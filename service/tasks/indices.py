"""Indices of layers, heads, tokens and hidden states, of which negative ones count from the end."""

from collections.abc import Callable, Sequence
from typing import Literal

from model.contract import ModelInfo
from service.tasks.errors import Names, OptionError

Chosen = Literal["all"] | Sequence[int]


def choose(
    chosen: Chosen, count: int, *, option: str, available: Callable[[Names], str], input_: str | None = None
) -> tuple[int, ...]:
    """Return the chosen indices of `count` as `resolve` does, or all of them."""
    if chosen == "all":
        return tuple(range(count))
    return resolve(chosen, count, option=option, available=available, input_=input_)


def resolve(
    indices: Sequence[int],
    count: int,
    *,
    option: str,
    available: Callable[[Names], str],
    input_: str | None = None,
) -> tuple[int, ...]:
    """Convert indices to non-negative ones, keeping order and duplicates; raises OptionError.

    The error takes from `available` how many indices there are. Its field is `input_` if that is given, or
    else the wrong item of `option`.
    """
    # There may be thousands: each step looks at all of them at once.
    least = min(indices)
    if least < -count or max(indices) >= count:
        position, index = next(one for one in enumerate(indices) if not -count <= one[1] < count)
        place = f"{option}.{position}"
        raise outside(place, index, count, available, input_ or place)
    return tuple(indices) if least >= 0 else tuple(index % count for index in indices)


def outside(
    place: str, index: int, count: int, available: Callable[[Names], str], option: str | None = None
) -> OptionError:
    """Make the error of an index outside `count`, which the request has at `place`."""
    return OptionError(
        lambda name: f"{name(place)} is {index} and {available(name)}: choose from {-count} to {count - 1}.",
        option=option or place,
        actual=index,
        allowed=[-count, count - 1],
    )


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
    layers = resolve(
        chosen, info.layers, option=option, available=lambda _: f"there are {info.layers} layers"
    )
    for place, layer in enumerate(layers if len(info.attention_layers) < info.layers else ()):
        check_attends(layer, info, f"{option}.{place}", chosen[place])
    return layers


def check_attends(layer: int, info: ModelInfo, place: str, actual: int) -> None:
    """Raise OptionError if a layer, which the request has at `place` as `actual`, does not attend."""
    if layer not in info.attention_layers:
        attending = ", ".join(map(str, info.attention_layers))
        raise OptionError(
            lambda name: (
                f"{name(place)} is {actual}, a layer with a convolution in the place of attention: choose "
                f"from those that attend, {attending}."
            ),
            option=place,
            actual=actual,
            allowed=[*info.attention_layers],
        )
