"""Reads the fields of a config.json, each with the bounds within which it can be built."""

import math
from collections.abc import Mapping
from typing import Any

from model.errors import CheckpointError
from model.files import shown

# Several times what the largest published encoders have: beyond, a number is a slip or an attack, and what it
# asks for would take all memory, or the product of two of them would not fit into 64 bits.
MOST = {
    "vocab_size": 2**24,
    "hidden_size": 2**17,
    "num_hidden_layers": 2**10,
    "num_attention_heads": 2**12,
    "intermediate_size": 2**20,
    "max_position_embeddings": 2**24,
    "type_vocab_size": 2**16,
}
"""The largest value of each field that is a size."""


def whole(
    config: Mapping[str, Any],
    name: str,
    *,
    like: str | None = None,
    least: int = 1,
    default: int | None = None,
) -> int:
    """Read a field that is a size, from `least` to MOST; raises CheckpointError, or KeyError without it.

    A `default` stands for the field where it is left out; `like` is what MOST calls one of another name.
    """
    value = config[name] if default is None else config.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise CheckpointError(f"{name} is {shown(value)}; it must be a whole number.")
    if value < least:
        raise CheckpointError(f"{name} is {shown(value)}; it must be at least {least}.")
    if value > (most := MOST[like or name]):
        raise CheckpointError(f"{name} is {shown(value)}; it must be at most {most}.")
    return value


def epsilon(config: Mapping[str, Any], name: str, *, default: float) -> float:
    """Read what is added to a variance, a number from 0 to 1; raises CheckpointError."""
    value = config.get(name, default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or math.isnan(value) or not 0 <= value <= 1:
        raise CheckpointError(f"{name} is {shown(value)}; it must be a number from 0 to 1.")
    return float(value)


def switch(config: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Read a field that is true or false; raises CheckpointError."""
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise CheckpointError(f"{name} is {shown(value)}; it must be true or false.")
    return value
