"""The field `weights`: how much each kind of vectors counts in a score."""

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from model.heads.hybrid_scores import HybridWeights
from service.protocols.fields import invalid

# Far above what any weighting needs, and far below where sums lose small numbers.
_LARGEST = 1_000_000


def _weights(value: object) -> HybridWeights:
    if not isinstance(value, list) or len(value) != 3:
        raise invalid(
            "weights",
            "must be a list of three numbers, for the sentence vectors, the sparse vectors and the vectors "
            "of tokens, such as [0.4, 0.2, 0.4]",
        )
    for i, weight in enumerate(value):
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not is_number or not 0 <= weight <= _LARGEST:
            raise invalid(f"weights.{i}", f"must be a number from 0 to {_LARGEST}")
    if not any(value):
        raise invalid("weights", "must not all be 0: give one kind of vectors a weight above 0")
    return HybridWeights(*map(float, value))


_NUMBER = {"type": "number", "minimum": 0, "maximum": _LARGEST}
Weights = Annotated[
    Any,
    PlainValidator(_weights),
    WithJsonSchema({"type": "array", "items": _NUMBER, "minItems": 3, "maxItems": 3}),
]
