"""Graphs of other exporters, which return the last hidden state, and perhaps the sentence vector."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.arrays import NUMPY
from model.checkpoints.folder import ModelFolder
from model.checkpoints.layout import MODES
from model.contract import FloatArray, SentenceWant
from model.errors import CheckpointError
from model.files import present
from model.heads.pooling import Bags
from model.heads.vectors import finish
from model.onnx import names as graph
from model.onnx.session import Graph

_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_TEXTS = ("The weather is lovely today.", "a", "He drove to the stadium, where nobody was!")
_NEAR = 1e-3
"""Of the length of a vector: graphs of eight bits or float16 round, and other poolings are further off."""


def check_foreign(opened: Graph, folder: ModelFolder) -> None:
    """Check a graph of another exporter; raises CheckpointError."""
    known = {graph.INPUT_IDS, graph.ATTENTION_MASK, graph.TOKEN_TYPE_IDS}
    needed = {graph.INPUT_IDS, graph.ATTENTION_MASK}
    given = [name for name in graph.LAST_HIDDEN_STATE if name in opened.outputs]
    if not needed <= set(opened.inputs) <= known or not given:
        raise CheckpointError(
            f"{opened.path} takes {', '.join(opened.inputs)} and returns {', '.join(opened.outputs)}; a text "
            f"encoder must take {', '.join(sorted(needed))} and return {graph.LAST_HIDDEN_STATE[0]}: export "
            "the model with `headlight export`."
        )
    if others := [f"{name} as {x.type}" for name, x in opened.inputs.items() if x.type not in _INTEGERS]:
        raise CheckpointError(
            f"{opened.path} takes {', '.join(others)}; tokens are int64 or int32: export the model with "
            "`headlight export`."
        )
    (size,) = opened.outputs[given[0]].shape[-1:] or [None]  # graphs may omit shapes
    if isinstance(size, int) and size != folder.config.hidden_size:
        raise CheckpointError(
            f"{opened.path} returns hidden states with {size} components, but "
            f"{folder.layout.transformer / 'config.json'} says {folder.config.hidden_size}: the two files do "
            "not belong together, export the model again."
        )


def feed(opened: Graph, tokens: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
    """Return the inputs that a graph takes, in its type of integers."""
    return {
        name: array.astype(_INTEGERS[opened.inputs[name].type], copy=False)
        for name, array in tokens.items()
        if name in opened.inputs
    }


def with_own_pooling(opened: Graph, folder: ModelFolder) -> ModelFolder:
    """Return the folder with the pooling of a graph that pools by itself, if the folder names none.

    It is found by running texts: the one pooling of the hidden states that gives the graph's vectors. Raises
    CheckpointError if there is none.
    """
    if graph.SENTENCE not in opened.outputs or present(folder.path / "modules.json"):
        return folder
    pairs = [_run(opened, folder, text) for text in _TEXTS]
    for mode, normalize in product(MODES.values(), (False, True)):
        want = SentenceWant((mode,), (0,), normalize)
        if all(_is_near(_pooled(states, want), vector) for states, vector in pairs):
            return replace(folder, layout=replace(folder.layout, pooling=(mode,), normalize=normalize))
    raise CheckpointError(
        f"{opened.path} returns {graph.SENTENCE}, which is none of the poolings {', '.join(MODES)} of its "
        f"hidden states: add the modules.json of sentence-transformers to {folder.path}, with its folders."
    )


def _run(opened: Graph, folder: ModelFolder, text: str) -> tuple[FloatArray, FloatArray]:
    """Return the hidden states (N, C) and the sentence vector (E,) of a text."""
    (encoding,) = folder.tokenizer.encode([text])
    ids = np.array([encoding.token_ids], np.int64)
    tokens = {
        graph.INPUT_IDS: ids,
        graph.ATTENTION_MASK: np.ones_like(ids),
        graph.TOKEN_TYPE_IDS: np.zeros_like(ids),
    }
    states = next(name for name in graph.LAST_HIDDEN_STATE if name in opened.outputs)
    found = opened.run(feed(opened, tokens), [states, graph.SENTENCE])
    hidden, vector = (found[name][0].astype(np.float32) for name in (states, graph.SENTENCE))
    return hidden, vector


def _pooled(states: FloatArray, want: SentenceWant) -> FloatArray:
    pooled = Bags([0], [len(states)], 0, NUMPY).pool(lambda _: states, want)
    vector: FloatArray = finish(pooled, None, normalize=want.normalize)[0]
    return vector


def _is_near(one: FloatArray, other: FloatArray) -> bool:
    same = one.shape == other.shape
    return same and float(np.linalg.norm(one - other)) <= _NEAR * float(np.linalg.norm(other))
