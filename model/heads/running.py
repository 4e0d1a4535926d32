"""Runs the heads that sequences want, on their last hidden states, for every backend."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from model.arrays import Operations
from model.contract import ChunksWant, FloatArray, LogitsWant, Want
from model.heads.chunks import chunk_vectors
from model.heads.logits import predict
from model.heads.predictor import Predictor

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Heads:
    """What a model has above its encoder: layers after the pooling, and a predictor in arrays of `ops`."""

    ops: Operations
    dense: Sequence[Callable[[FloatArray], FloatArray]]
    predictor: Predictor | None = None


def head_outputs(
    wants: Sequence[Want], last_state: Callable[[int], FloatArray], heads: Heads
) -> dict[int, Arrays]:
    """Compute the heads of a batch: index of a sequence that wants some -> its arrays, by name.

    `last_state(i)` reads the last hidden state of sequence i, float32 (N, C).
    """
    wanting = [i for i, want in enumerate(wants) if want.heads]
    if not wanting:
        return {}
    states = {i: last_state(i) for i in wanting}
    outputs: dict[int, Arrays] = defaultdict(dict)
    classified: list[int] = []
    for i in wanting:
        for head in wants[i].heads:
            match head:
                case ChunksWant():
                    outputs[i]["chunks"] = chunk_vectors(states[i], head, heads.dense)
                case LogitsWant():
                    classified.append(i)
                case _:
                    raise NotImplementedError(f"no head computes {type(head).__name__}")
    if classified:
        if heads.predictor is None:
            raise ValueError("the model predicts nothing")
        logits = predict(heads.predictor, [states[i] for i in classified], heads.ops)
        for i, arrays in zip(classified, logits, strict=True):
            outputs[i] |= arrays
    return outputs
