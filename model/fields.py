"""Reads the fields of a config.json and checks each against its bounds."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.errors import CheckpointError
from model.files import shown

# Several times the largest published encoders. A larger number is a mistake or an attack: it would exhaust
# memory, or the product of two such numbers would overflow 64 bits.
MOST = {
    "vocab_size": 2**24,
    "hidden_size": 2**17,
    "num_hidden_layers": 2**10,
    "num_attention_heads": 2**12,
    "intermediate_size": 2**20,
    "max_position_embeddings": 2**24,
    "type_vocab_size": 2**16,
}
"""The largest value of each size field."""


def whole(
    config: Mapping[str, Any],
    name: str,
    *,
    like: str | None = None,
    least: int = 1,
    default: int | None = None,
) -> int:
    """Read a size field, from `least` to its MOST; raises CheckpointError, or KeyError if it is missing.

    `default` is used if the field is missing. `like` is the key in MOST of a field with another name.
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
    """Read the epsilon of a layer norm, a number from 0 to 1; raises CheckpointError."""
    value = config.get(name, default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or math.isnan(value) or not 0 <= value <= 1:
        raise CheckpointError(f"{name} is {shown(value)}; it must be a number from 0 to 1.")
    return float(value)


def switch(config: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Read a boolean field; raises CheckpointError."""
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise CheckpointError(f"{name} is {shown(value)}; it must be true or false.")
    return value


def switch_of(file: Path, config: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Do what `switch` does, but name the file in the error."""
    try:
        return switch(config, name, default=default)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from error
