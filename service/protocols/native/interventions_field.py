"""The field `interventions`: what a request changes in the run of its texts."""

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, PlainValidator, WithJsonSchema

from model.encoder.interventions import InterventionKind
from service.echo import cut
from service.http.json_body import MAX_INDICES, REST
from service.protocols.fields import invalid, whole_number, whole_numbers
from service.tasks.indices import Chosen
from service.tasks.interventions import Change, ChangedStates, HiddenKeys, ScaledHeads

MAX_INTERVENTIONS = 64
"""The most of them in one request."""
_LARGEST = 1e12  # in a vector: the product of two sums of 64 such vectors still fits into float32
_KINDS: tuple[InterventionKind, ...] = get_args(InterventionKind)
_FIELDS: Mapping[InterventionKind, tuple[str, ...]] = {
    "heads": ("layer", "heads", "scale", "mean"),
    "edges": ("layers", "heads", "queries", "keys"),
    "states": ("layer", "tokens", "vector", "add"),
}


def _interventions(value: object) -> Sequence[Change]:
    if not isinstance(value, list) or not value:
        raise invalid(
            "interventions",
            'must be a list of at least one object, such as [{"kind": "heads", "layer": 0, "heads": [3]}]',
        )
    if len(value) > MAX_INTERVENTIONS:
        raise invalid("interventions", f"has {len(value)} items and the limit is {MAX_INTERVENTIONS}: {REST}")
    return tuple(_change(f"interventions.{number}", one) for number, one in enumerate(value))


def _change(place: str, value: object) -> Change:
    if not isinstance(value, dict):
        raise invalid(place, 'must be an object, such as {"kind": "heads", "layer": 0, "heads": [3]}')
    kind = next((kind for kind in _KINDS if kind == value.get("kind")), None)
    if kind is None:
        raise invalid(f"{place}.kind", 'must be "heads", "edges" or "states"')
    known = _FIELDS[kind]
    if unknown := value.keys() - {"kind", *known}:
        raise invalid(
            f"{place}.{cut(min(unknown))}",
            f'is not a field of the kind "{kind}": choose from {", ".join(known)}',
        )
    match kind:
        case "heads":
            return _heads(place, value)
        case "edges":
            lists = (_chosen(value, place, name) for name in known)
            return HiddenKeys(*lists)
        case "states":
            return _states(place, value)


def _heads(place: str, value: Mapping[str, Any]) -> ScaledHeads:
    mean = _switch(value, place, "mean")
    if mean and "scale" in value:
        raise invalid(f"{place}.scale", 'has no effect with "mean": true: leave one of them out')
    scale = value.get("scale", 0)
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not math.isfinite(scale):
        raise invalid(f"{place}.scale", "must be a number")
    if scale == 1 and not mean:
        raise invalid(f"{place}.scale", "is 1, which has no effect: choose another, or leave it out for 0")
    if abs(scale) > np.finfo(np.float32).max:
        raise invalid(f"{place}.scale", "must be a number that float32 can hold")
    return ScaledHeads(_layer(value, place), _chosen(value, place, "heads"), float(scale), mean)


def _states(place: str, value: Mapping[str, Any]) -> ChangedStates:
    add = _switch(value, place, "add")
    if "vector" not in value:
        raise invalid(f"{place}.vector", "is required")
    vector = _vector(value["vector"], f"{place}.vector")
    if not np.isfinite(vector).all():
        raise invalid(
            f"{place}.vector", "has a component that is not a finite float32 number: send finite numbers"
        )
    if np.abs(vector).max() > _LARGEST:
        raise invalid(
            f"{place}.vector",
            "has a component beyond 1e12, which would overflow in products: scale the vector down",
        )
    if add and not vector.any():
        raise invalid(f"{place}.vector", 'is zero, which has no effect with "add": true: leave it out')
    return ChangedStates(_layer(value, place), _chosen(value, place, "tokens"), vector, add)


def _vector(value: object, place: str) -> NDArray[np.float32]:
    wrong = invalid(place, "must be a list of numbers, or little-endian float32 numbers in base64")
    if isinstance(value, str):
        try:
            content = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise wrong from None
        if not content or len(content) % 4:
            raise wrong
        return np.frombuffer(content, "<f4").astype(np.float32)
    if not isinstance(value, list) or not value or not set(map(type, value)) <= {int, float}:
        raise wrong
    with np.errstate(over="ignore"):
        return np.array(value, np.float64).astype(np.float32)


def _layer(value: Mapping[str, Any], place: str) -> int:
    if "layer" not in value:
        raise invalid(f"{place}.layer", "is required")
    return whole_number(value["layer"], f"{place}.layer")


def _switch(value: Mapping[str, Any], place: str, name: str) -> bool:
    found = value.get(name, False)
    if not isinstance(found, bool):
        raise invalid(f"{place}.{name}", "must be true or false")
    return found


def _chosen(value: Mapping[str, Any], place: str, name: str) -> Chosen:
    field = f"{place}.{name}"
    if name not in value:
        raise invalid(field, 'is required: "all", or a list of at least one integer')
    chosen = value[name]
    if chosen == "all":
        return "all"
    if not isinstance(chosen, list) or not chosen:
        raise invalid(field, 'must be "all" or a list of at least one integer, such as [0]')
    if len(chosen) > MAX_INDICES:
        raise invalid(field, f"has {len(chosen)} items and the limit is {MAX_INDICES}")
    return tuple(whole_numbers(chosen, field))


_INTEGER = {"type": "integer"}
_SWITCH = {"type": "boolean", "default": False}
_CHOSEN = {
    "anyOf": [
        {"type": "string", "const": "all"},
        {"type": "array", "items": _INTEGER, "minItems": 1, "maxItems": MAX_INDICES},
    ]
}
_VECTOR = {
    "anyOf": [
        {"type": "array", "items": {"type": "number"}, "minItems": 1},
        {"type": "string", "description": "Little-endian float32 numbers in base64."},
    ]
}
_TYPES: dict[str, dict[str, Any]] = {
    "layer": _INTEGER,
    "scale": {"type": "number", "default": 0},
    "vector": _VECTOR,
    "mean": _SWITCH,
    "add": _SWITCH,
}
_OPTIONAL = ("scale", "mean", "add")
_SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "maxItems": MAX_INTERVENTIONS,
    "items": {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "kind": {"type": "string", "const": kind},
                    **{name: _TYPES.get(name, _CHOSEN) for name in known},
                },
                "required": ["kind", *(name for name in known if name not in _OPTIONAL)],
                "additionalProperties": False,
            }
            for kind, known in _FIELDS.items()
        ]
    },
}


# The value is a `Sequence[Change]`; if it were annotated so, the API's schema would list the types of that.
_Interventions = Annotated[Any, PlainValidator(_interventions), WithJsonSchema(_SCHEMA)]


class WithInterventions(BaseModel):
    """The field of a route whose texts may run with interventions."""

    interventions: _Interventions | None = Field(
        None,
        description="Changes to the run of every text; everything in the response comes from the changed "
        "run. `heads` multiplies the outputs of heads of a layer by `scale` (0 by default: ablation, Michel "
        "et al. 2019), or with `mean` replaces them by their mean over the tokens. `edges` hides `keys` from "
        "`queries` (attention knockout, Geva et al. 2023). `states` sets the hidden state `layer` (0 is the "
        "embedding output) of `tokens` to `vector`, or with `add` adds it. `/explain` takes only `heads`.",
    )
