"""Graphs of other exporters, which return the last hidden state, the sentence vector, or both."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.checkpoints.folder import ModelFolder
from model.errors import CheckpointError
from model.onnx import names as graph
from model.onnx.session import Graph

_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


def check_foreign(opened: Graph, folder: ModelFolder) -> None:
    """Check a graph of another exporter; raises CheckpointError."""
    known = {graph.INPUT_IDS, graph.ATTENTION_MASK, graph.TOKEN_TYPE_IDS}
    needed = {graph.INPUT_IDS, graph.ATTENTION_MASK}
    states = [name for name in graph.LAST_HIDDEN_STATE if name in opened.outputs]
    given = states or graph.SENTENCE in opened.outputs
    if not needed <= set(opened.inputs) <= known or not given:
        raise CheckpointError(
            f"{opened.path} takes {', '.join(opened.inputs)} and returns {', '.join(opened.outputs)}; a text "
            f"encoder must take {', '.join(sorted(needed))} and return {graph.LAST_HIDDEN_STATE[0]} or "
            f"{graph.SENTENCE}: export the model with `headlight export`."
        )
    if others := [f"{name} as {x.type}" for name, x in opened.inputs.items() if x.type not in _INTEGERS]:
        raise CheckpointError(
            f"{opened.path} takes {', '.join(others)}; inputs must be int64 or int32: export the model with "
            "`headlight export`."
        )
    if not states:
        return
    (size,) = opened.outputs[states[0]].shape[-1:] or [None]  # graphs may omit shapes
    if isinstance(size, int) and size != folder.config.hidden_size:
        raise CheckpointError(
            f"{opened.path} returns hidden states with {size} components, but "
            f"{folder.layout.transformer / 'config.json'} says {folder.config.hidden_size}: the two files "
            "do not belong together; export the model again."
        )


def feed(opened: Graph, tokens: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
    """Return the inputs that a graph takes, in its type of integers."""
    return {
        name: array.astype(_INTEGERS[opened.inputs[name].type], copy=False)
        for name, array in tokens.items()
        if name in opened.inputs
    }
