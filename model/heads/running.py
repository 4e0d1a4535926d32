"""Runs the heads that sequences want, on their last hidden states, for every backend."""

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from model.contract import ChunksWant, FloatArray, HeadWant, Want
from model.heads.chunks import chunk_vectors

Arrays = dict[str, NDArray[Any]]


def head_outputs(
    wants: Sequence[Want],
    last_state: Callable[[int], FloatArray],
    dense: Sequence[Callable[[FloatArray], FloatArray]],
) -> dict[int, Arrays]:
    """Compute the heads of a batch: index of a sequence that wants some -> its arrays, by name.

    `last_state(i)` reads the last hidden state of sequence i, float32 (N, C). `dense` are the model's layers
    after the pooling.
    """
    outputs: dict[int, Arrays] = {}
    for i, want in enumerate(wants):
        if want.heads:
            hidden = last_state(i)
            outputs[i] = {
                name: x for head in want.heads for name, x in _run_head(head, hidden, dense).items()
            }
    return outputs


def _run_head(
    want: HeadWant, hidden: FloatArray, dense: Sequence[Callable[[FloatArray], FloatArray]]
) -> Arrays:
    match want:
        case ChunksWant():
            return {"chunks": chunk_vectors(hidden, want, dense)}
        case _:
            raise NotImplementedError(f"no head computes {type(want).__name__}")
