"""Reads the rotary positions in a `config.json`, in its older and newer forms."""

import math
from collections.abc import Mapping
from typing import Any

from model.encoder.parts import Rotary
from model.errors import CheckpointError
from model.families.reading.options import plain
from model.files import shown

_SUPPORTED = ("default", "linear", "llama3")


def read_rotary(config: Mapping[str, Any], head_size: int, default_base: float) -> Rotary:
    """Read a head's rotary positions; raises CheckpointError for a scaling that is not supported.

    transformers 5 writes `rope_parameters`; before it there were `rope_theta` and `rope_scaling`.
    """
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(given, dict):
        raise CheckpointError(f"rope_parameters is {shown(given)}; it must be an object.")
    base = given.get("rope_theta") or config.get("rope_theta") or default_base
    fraction = given.get("partial_rotary_factor", 1.0)
    kind = given.get("rope_type", given.get("type", "default"))
    size = int(head_size * positive({"partial_rotary_factor": fraction}, "partial_rotary_factor"))
    rotary = Rotary.of(size, positive({"rope_theta": base}, "rope_theta"))
    match kind:
        case "default":
            return rotary
        case "linear":
            factor = positive(given, "factor")
            return Rotary(tuple(frequency / factor for frequency in rotary.frequencies))
        case "llama3":
            given = {"original_max_position_embeddings": config.get("max_position_embeddings"), **given}
            return Rotary(tuple(_llama3(frequency, given) for frequency in rotary.frequencies))
        case _:
            raise CheckpointError(
                f'rope_type "{plain(kind)}" is not supported; the supported ones are {", ".join(_SUPPORTED)}.'
            )


def _llama3(frequency: float, given: Mapping[str, Any]) -> float:
    """Scale low frequencies, keep high ones, and interpolate between (the code of Llama 3.1)."""
    factor, low, high, length = (
        positive(given, name)
        for name in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    turns = length * frequency / (2 * math.pi)  # over the original length
    if turns < low:
        return frequency / factor
    if turns > high:
        return frequency
    share = (turns - low) / (high - low)
    return (1 - share) * frequency / factor + share * frequency


def positive(given: Mapping[str, Any], name: str) -> float:
    """Read a number above 0; raises CheckpointError."""
    value: Any = given.get(name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:
        raise CheckpointError(f"{name} is {shown(value)}; it must be a number above 0.")
    return float(value)
