"""The fields of the explorer's links and their values; `explorer/src/state/fields.ts` has the same."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeAlias

_TEXT, _NAME = 1_000_000, 500
"""Characters, as JavaScript counts them."""
_LARGEST_INDEX, _LONGEST_LIST = 99_999, 2_000
_SINGLE_VIEWS = (
    *("text", "heads", "fingerprints", "lines", "matrix", "flow"),
    *("neuron", "pairs", "table", "lens", "why"),
)
VIEWS = (*_SINGLE_VIEWS, "compare", "dataset")
_SWITCH = ("off", "on")
_SHOWN = 60
"""Characters of a value that a message quotes."""

Check: TypeAlias = Callable[[Any], Any]
"""Returns a value as JSON has it; raises ValueError, which says what it must be."""


def _text(value: Any, characters: int = _NAME) -> str:
    if not isinstance(value, str) or len(value.encode("utf-16-le", "surrogatepass")) // 2 > characters:
        raise ValueError(f"a string of at most {characters:,} characters")
    if re.search("[\ud800-\udfff]", value):
        raise ValueError("a string without half characters (lone surrogates)")
    return value


def _one_of(value: Any, values: Sequence[str]) -> str:
    if value not in values:
        raise ValueError(f"one of {', '.join(values)}")
    return str(value)


def _number(value: Any, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"a number from {least} to {most}")
    return value


def _whole(value: Any, least: int, most: int) -> int:
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not whole or not least <= int(value) <= most:
        raise ValueError(f"a whole number from {least} to {most:,}")
    return int(value)


def _list(value: Any, item: Check, told: str) -> list[Any]:
    message = f"a list of at most {_LONGEST_LIST:,} {told}, each from 0 to {_LARGEST_INDEX:,}"
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence) or len(value) > _LONGEST_LIST:
        raise ValueError(message)
    try:
        return [item(one) for one in value]
    except (TypeError, ValueError):
        raise ValueError(message) from None


def _index(value: Any) -> int:
    return _whole(value, 0, _LARGEST_INDEX)


def _head(value: Any) -> list[int]:
    layer, head = value
    return [_index(layer), _index(head)]


def _state_of_token(value: Any) -> list[int]:
    try:
        return _head(value)
    except (TypeError, ValueError):
        raise ValueError(f"a pair (hidden state, position), each from 0 to {_LARGEST_INDEX:,}") from None


_long = partial(_text, characters=_TEXT)
_heads = partial(_list, item=_head, told="pairs (layer, head)")
_switch = partial(_one_of, values=_SWITCH)

FIELDS: Mapping[str, Check] = {
    "text": _long,
    "pair": _long,
    "model": _text,
    "prompt": _text,
    "heads": _heads,
    "pinned": partial(_list, item=_index, told="positions of tokens"),
    "view": partial(_one_of, values=VIEWS),
    "weights": partial(_one_of, values=("probability", "value_norm", "score", "rollout")),
    "level": partial(_one_of, values=("token", "word")),
    "special": partial(_one_of, values=("keep", "drop", "renormalize")),
    "direction": partial(_one_of, values=("from", "to")),
    "edge": _switch,
    "cells": _text,
    "sort": _text,
    "besideText": _long,
    "besidePair": _long,
    "besideModel": _text,
    "besideView": partial(_one_of, values=(*_SINGLE_VIEWS, "difference")),
    "besideHead": partial(_one_of, values=("same", "own", "similar")),
    "besideHeads": _heads,
    "besideAlign": partial(_one_of, values=("auto", "words")),
    "colours": partial(_one_of, values=("auto", "viridis", "cividis", "magma")),
    "scale": partial(_one_of, values=("linear", "sqrt", "log")),
    "mass": partial(_number, least=0, most=1),
    "linesOf": partial(_one_of, values=("all", "aa", "ab", "ba", "bb")),
    "edges": partial(_whole, least=1, most=40),
    "sinks": partial(_one_of, values=("keep", "drop")),
    "flowHeads": partial(_one_of, values=("all", "chosen")),
    "ablated": _heads,
    "lens": _state_of_token,
    "method": partial(_one_of, values=("auto", "parts", "occlusion", "gradient")),
    "unit": partial(_one_of, values=("word", "token", "sentence")),
    "label": _text,
    "labelled": partial(_whole, least=-1, most=_LARGEST_INDEX),
    "effects": _switch,
    "theme": partial(_one_of, values=("auto", "light", "dark")),
}


def checked(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields as JSON has them, without those that are None, which is initial.

    Raises ValueError for a field that links do not have, and for a value that its field does not have.
    """
    for name in state:
        _check_name(name)
    return {name: _checked(name, value) for name, value in state.items() if value is not None}


def _check_name(name: str) -> None:
    if name in FIELDS:
        return
    near = get_close_matches(name, FIELDS, 1)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(FIELDS)}."
    raise ValueError(f"The explorer's state has no field {name!r}: {hint}")


def _checked(name: str, value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is {value}: pass a finite number.")
    try:
        return FIELDS[name](value)
    except ValueError as error:
        raise ValueError(f"{name} is {repr(value)[:_SHOWN]}: pass {error}.") from None
