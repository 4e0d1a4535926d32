"""The vectors of graphs that pool by themselves: how they were pooled, and what follows the pooling."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import product

import numpy as np

from model.arrays import NUMPY
from model.checkpoints.folder import ModelFolder
from model.checkpoints.layout import MODES
from model.contract import FloatArray, SentenceWant
from model.errors import CheckpointError
from model.files import present
from model.heads.dense import First, Step, UnitLength
from model.heads.pooling import Bags
from model.heads.vectors import finish
from model.onnx import names as graph
from model.onnx.foreign import feed
from model.onnx.session import Graph

_TEXTS = ("The weather is lovely today.", "a", "He drove to the stadium, where nobody was!")
_NEAR = 1e-3
"""The largest error, of a vector's length: eight bits and float16 round; other poolings are further off."""
_EXPORT = "export the model from its weights with `headlight export MODEL FOLDER`"


def with_own_vector(opened: Graph, folder: ModelFolder) -> ModelFolder:
    """Return the folder as another exporter's graph runs it; raises CheckpointError if it cannot."""
    if graph.SENTENCE not in opened.outputs:
        return folder
    if not any(name in opened.outputs for name in graph.LAST_HIDDEN_STATE):
        return _with_vector_alone(opened, folder)
    return folder if present(folder.path / "modules.json") else _with_found_pooling(opened, folder)


def _with_found_pooling(opened: Graph, folder: ModelFolder) -> ModelFolder:
    """Find, by running texts, the pooling of the hidden states that gives the graph's vectors."""
    states = next(name for name in graph.LAST_HIDDEN_STATE if name in opened.outputs)
    pairs = [_run(opened, folder, text, (states, graph.SENTENCE)) for text in _TEXTS]
    for mode, normalize in product(MODES.values(), (False, True)):
        want = SentenceWant((mode,), (0,), normalize)
        if all(_is_near(_pooled(hidden, want), vector) for hidden, vector in pairs):
            return replace(folder, layout=replace(folder.layout, pooling=(mode,), normalize=normalize))
    raise CheckpointError(
        f"{opened.path} returns {graph.SENTENCE}, which matches no pooling of its hidden states "
        f"({', '.join(MODES)}): add the modules.json of sentence-transformers and its folders to "
        f"{folder.path}."
    )


def _with_vector_alone(opened: Graph, folder: ModelFolder) -> ModelFolder:
    """Leave the folder's modules to the graph, except those that change nothing if they are repeated.

    The pooling of a folder without modules.json is not known.
    """
    layout, modules = folder.layout, folder.path / "modules.json"
    if (needs := _needs_states(folder)) is not None:
        raise CheckpointError(f"{opened.path} returns only {graph.SENTENCE}, but {needs}: {_EXPORT}.")
    vectors = [_run(opened, folder, text, (graph.SENTENCE,))[0] for text in _TEXTS]
    size = len(vectors[0]) if vectors[0].ndim == 1 else 0
    steps = [step for step in folder.dense if not isinstance(step, First)]
    expected = _size(steps, folder.config.hidden_size * len(layout.pooling)) if present(modules) else size
    if size != expected or not size:
        raise CheckpointError(
            f"{opened.path} returns {graph.SENTENCE} with the shape {vectors[0].shape}, but {modules} makes "
            f"vectors of {expected} components: the graph leaves modules out, or belongs to another model; "
            f"{_EXPORT}."
        )
    has_unit_length = all(abs(float(np.linalg.norm(vector)) - 1) <= _NEAR for vector in vectors)
    normalizes = layout.normalize or bool(steps and isinstance(steps[-1], UnitLength))
    if normalizes and not has_unit_length and layout.weighted:
        raise CheckpointError(
            f"{opened.path} returns {graph.SENTENCE} without the Normalize of {modules}, and may leave out "
            f"other modules, too: {_EXPORT}."
        )
    dense: tuple[Step, ...] = ()
    normalize, truncate = normalizes or has_unit_length, layout.truncate_dim
    if truncate is not None:
        dense = (*([UnitLength()] if normalize else ()), First(truncate))
        normalize = False
    pooling = layout.pooling if present(modules) else ()
    return replace(
        folder,
        dense=dense,
        layout=replace(layout, pooling=pooling, normalize=normalize),
        vector_size=size,
    )


def _needs_states(folder: ModelFolder) -> str | None:
    """Say what in a folder needs the hidden states of tokens; None if nothing does."""
    if folder.layout.hybrid:
        return f"{folder.path} has the layers of bge-m3, which make vectors and weights of each token"
    if folder.layout.roles or folder.token_dense:
        return f"{folder.path} is a model of late interaction, which has a vector for each token"
    if folder.layout.splade is not None:
        return f"{folder.path} has a SpladePooling, which takes the predictions of each token"
    if folder.autoencoder is not None:
        return f"{folder.path} has a SparseAutoEncoder, which needs vectors pooled as the folder says"
    if not folder.layout.include_prompt:
        return (
            f"the Pooling of {folder.path} has include_prompt false, which leaves the prompt's tokens out "
            "of the vector"
        )
    return None


def _size(steps: Sequence[Step], size: int) -> int:
    return reduce(lambda so_far, step: step.size(so_far), steps, size)


def _run(opened: Graph, folder: ModelFolder, text: str, outputs: Sequence[str]) -> list[FloatArray]:
    """Return the outputs of the graph for a text, without the axis of the batch."""
    (encoding,) = folder.tokenizer.encode([text])
    ids = np.array([encoding.token_ids], np.int64)
    tokens = {
        graph.INPUT_IDS: ids,
        graph.ATTENTION_MASK: np.ones_like(ids),
        graph.TOKEN_TYPE_IDS: np.zeros_like(ids),
    }
    found = opened.run(feed(opened, tokens), outputs)
    return [found[name][0].astype(np.float32) for name in outputs]


def _pooled(states: FloatArray, want: SentenceWant) -> FloatArray:
    pooled = Bags([0], [len(states)], 0, NUMPY).pool(lambda _: states, want)
    vector: FloatArray = finish(pooled, None, normalize=want.normalize)[0]
    return vector


def _is_near(one: FloatArray, other: FloatArray) -> bool:
    same = one.shape == other.shape
    return same and float(np.linalg.norm(one - other)) <= _NEAR * float(np.linalg.norm(other))
