"""Converts an encoder's config to JSON and back, field by field under the same names.

Both directions follow the types of the fields, so that new fields are saved and checked, too.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from model.encoder.config import EncoderConfig
from model.errors import CheckpointError
from model.fields import MOST
from model.files import shown

_T = TypeVar("_T")

# The largest values of whole numbers; other fields count tokens, and are bounded as `vocab_size` is.
_MOST = {
    **dict.fromkeys(("hidden_size", "embedding_size", "head_dim"), MOST["hidden_size"]),
    **dict.fromkeys(("num_heads", "num_kv_heads", "experts", "chosen"), MOST["num_attention_heads"]),
    **dict.fromkeys(("segments", "buckets", "table_rows", "max_distance"), MOST["type_vocab_size"]),
    "num_layers": MOST["num_hidden_layers"],
    "intermediate_size": MOST["intermediate_size"],
}


_LONGEST = 200
"""The most characters of a name."""


def write_config(config: EncoderConfig) -> dict[str, Any]:
    """List every field as a value of JSON, nested configs as objects."""
    fields_: dict[str, Any] = json.loads(json.dumps(asdict(config), allow_nan=False))
    return fields_


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read the fields of an encoder's config, apart from `model_type`.

    Raises CheckpointError for an unknown field, a value of another type and an encoder that cannot be built,
    and KeyError for a missing field.
    """
    return _read_fields(EncoderConfig, {k: v for k, v in config.items() if k != "model_type"}, "")


def _read_fields(kind: type[_T], config: Mapping[str, Any], prefix: str) -> _T:
    """Read the fields of a config of this kind; `prefix` precedes their names in errors."""
    types = get_type_hints(kind)
    if unknown := sorted(config.keys() - types.keys()):
        raise CheckpointError(
            f"{prefix}{shown(unknown[0]).strip(chr(39))} is not a field that this release of headlight "
            "knows: remove it, or use the release that wrote it."
        )
    needed = [f.name for f in fields(kind) if f.default is MISSING]  # type: ignore[arg-type]
    for name in needed:
        if name not in config:
            raise KeyError(f"{prefix}{name}")
    return kind(**{name: _read(types[name], value, name, prefix) for name, value in config.items()})


def _read(kind: Any, value: Any, name: str, prefix: str) -> Any:
    """Read a value of any type that fields of configs have; raises CheckpointError."""
    where, options = f"{prefix}{name}", get_args(kind)
    if NoneType in options:
        (other,) = (option for option in options if option is not NoneType)
        return None if value is None else _read(other, value, name, prefix)
    if get_origin(kind) is Literal:
        _check(value in options, where, value, f"one of {', '.join(map(str, options))}")
        return value
    if get_origin(kind) is tuple:
        most = MOST["hidden_size"]
        _check(isinstance(value, list) and len(value) <= most, where, value, f"a list of at most {most}")
        return tuple(_read(options[0], one, f"{name}[{i}]", prefix) for i, one in enumerate(value))
    if is_dataclass(kind):
        _check(isinstance(value, dict), where, value, "an object")
        return _read_fields(kind, value, f"{where}.")  # type: ignore[arg-type]
    return _read_plain(kind, value, name, where)


def _read_plain(kind: Any, value: Any, name: str, where: str) -> bool | int | float | str:
    """Read a switch, a name or a number."""
    if kind is bool:
        _check(isinstance(value, bool), where, value, "true or false")
        return bool(value)
    if kind is str:
        _check(
            isinstance(value, str) and len(value) <= _LONGEST, where, value, f"a text of at most {_LONGEST}"
        )
        return str(value)
    if kind not in (int, float):
        raise TypeError(f"{where} has the type {kind}, which no config has had before")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        most = _MOST.get(name, MOST["vocab_size"])
        whole = number and isinstance(value, int) and 0 <= value <= most
        _check(whole, where, value, f"a whole number from 0 to {most}")
        return int(value)
    _check(number and abs(value) < 2**64 and math.isfinite(value), where, value, "a finite number")
    return float(value)


def _check(allowed: bool, where: str, value: Any, expected: str) -> None:
    if not allowed:
        raise CheckpointError(f"{where} is {shown(value)}; it must be {expected}.")
