"""Runs the heads that sequences want, on their last hidden states, for every backend."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.arrays import Operations
from model.choices import ContributionsWant, TokenVectorsWant
from model.contract import (
    Batch,
    ChunksWant,
    FloatArray,
    HeadInfo,
    LogitsWant,
    SparseWant,
    Want,
)
from model.heads.chunks import chunk_vectors
from model.heads.contributions import contributions
from model.heads.dense import Dense, Parts, Step
from model.heads.late_interaction import Layers, token_vectors
from model.heads.logits import predict
from model.heads.predictor import Linear, Predictor
from model.heads.sparse import AutoEncoder, Splade, TokenWeights, largest_words, word_weights

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Heads:
    """What a model has above its encoder: layers after the pooling, and a predictor in arrays of `ops`.

    `splade` says how predicted words are pooled; `token_weights` or an `autoencoder` makes sparse vectors
    without predicting words, and `token_dense` the vectors of late interaction, if the predictor does not.
    These three take numpy arrays.
    """

    ops: Operations
    dense: Sequence[Step]
    predictor: Predictor | None = None
    splade: Splade = field(default_factory=Splade)
    token_dense: Sequence[Step] = ()
    token_weights: TokenWeights | None = None
    autoencoder: AutoEncoder | None = None

    @property
    def predicting(self) -> Predictor:
        """The predictor; raises ValueError if there is none."""
        if self.predictor is None:
            raise ValueError("the model predicts nothing")
        return self.predictor

    @cached_property
    def projection(self) -> Layers:
        """The layers from hidden states of tokens to the vectors of late interaction."""
        predictor, ops = self.predictor, self.ops
        if self.token_dense:
            plain = [
                layer for layer in self.token_dense if isinstance(layer, Dense) and not layer.has_residual
            ]
            if len(plain) < len(self.token_dense):
                return self.token_dense
            layers = tuple(Linear(layer.weight, layer.bias, layer.activation) for layer in plain)
            predictor = Predictor(HeadInfo("late_interaction"), None, layers).on(ops)
        return () if predictor is None else (lambda states: ops.numpy(predictor(ops.array(states), ops)),)


def head_outputs(
    wants: Sequence[Want],
    last_state: Callable[[int], FloatArray],
    token_ids: Callable[[int], NDArray[np.int64]],
    heads: Heads,
) -> dict[int, Arrays]:
    """Compute the heads of a batch: index of a sequence that wants some -> its arrays, by name.

    `last_state(i)` reads the last hidden state of sequence i, float32 (N, C), and `token_ids(i)` its tokens.
    """
    wanting = [i for i, want in enumerate(wants) if want.heads]
    if not wanting:
        return {}
    states = {i: last_state(i) for i in wanting}
    outputs: dict[int, Arrays] = defaultdict(dict)
    classified: dict[int, NDArray[np.int64]] = {}
    sparse: dict[int, SparseWant] = {}
    vectors: dict[int, TokenVectorsWant] = {}
    for i in wanting:
        for head in wants[i].heads:
            match head:
                case ChunksWant():
                    outputs[i]["chunks"] = chunk_vectors(states[i], head, heads.dense)
                case ContributionsWant():
                    outputs[i]["contributions"] = _contributions(wants[i], states[i], heads)
                case TokenVectorsWant():
                    vectors[i] = head
                case LogitsWant():
                    classified[i] = token_ids(i)
                case SparseWant():
                    sparse[i] = head
    found = (
        _classes(classified, states, heads),
        _words(sparse, states, token_ids, heads),
        _vectors(vectors, states, heads),
    )
    for i, arrays in chain.from_iterable(found):
        outputs[i] |= arrays
    return outputs


def tokens_read(want: Want, length: int, last: int, predictor: Predictor | None) -> Sequence[int] | None:
    """Return which tokens of hidden state `last` are read, in a sequence of `length` tokens; None: all."""
    lens = want.lens.layers if want.lens is not None else ()
    if last in (*want.token_layers, *lens):
        return None
    of_first = predictor is not None and predictor.pooling == "cls"
    if not all(of_first and isinstance(head, LogitsWant) for head in want.heads):
        return None
    read = {0} if want.heads else set()
    if want.sentence is not None and last in want.sentence.layers:
        places = {"cls": want.sentence.skip, "last": length - 1}
        if not places.keys() >= {*want.sentence.modes}:
            return None
        read |= {places[mode] for mode in want.sentence.modes}
    return sorted(read)


def only(batch: Batch, members: Sequence[int]) -> Batch:
    """Return a batch of only some sequences of another batch."""
    bounds = batch.cu_seqlens
    rows = np.concatenate([np.arange(bounds[i], bounds[i + 1]) for i in members])
    return Batch(
        batch.input_ids[rows],
        batch.segment_ids[rows],
        np.append(0, np.diff(bounds)[members].cumsum()),
        tuple(batch.wants[i] for i in members),
        tuple(batch.unattended[i] for i in members) if batch.unattended else (),
    )


def _contributions(want: Want, state: FloatArray, heads: Heads) -> Parts:
    if want.sentence is None:
        raise ValueError("contributions are those to a sentence vector, which is not wanted")
    return contributions(state, want.sentence, heads.dense)


def _classes(
    members: Mapping[int, NDArray[np.int64]], states: Mapping[int, FloatArray], heads: Heads
) -> Iterable[tuple[int, Arrays]]:
    if not members:
        return ()
    some = [states[i] for i in members]
    return zip(members, predict(heads.predicting, some, list(members.values()), heads.ops), strict=True)


def _vectors(
    wants: Mapping[int, TokenVectorsWant], states: Mapping[int, FloatArray], heads: Heads
) -> Iterable[tuple[int, Arrays]]:
    made = token_vectors([states[i] for i in wants], list(wants.values()), heads.projection) if wants else ()
    return zip(wants, made, strict=True)


def _words(
    wants: Mapping[int, SparseWant],
    states: Mapping[int, FloatArray],
    token_ids: Callable[[int], NDArray[np.int64]],
    heads: Heads,
) -> Iterable[tuple[int, Arrays]]:
    if not wants:
        return
    if heads.token_weights is not None:
        most = [want.top_k for want in wants.values()]
        weighed = heads.token_weights([states[i] for i in wants], [token_ids(i) for i in wants], most)
        yield from zip(wants, weighed, strict=True)
        return
    some = [states[i] for i in wants]
    weights: Iterable[FloatArray]
    if heads.autoencoder is None:
        kept = heads.splade.most
        weights = word_weights(heads.predicting, some, heads.splade, heads.ops)
    else:
        kept = heads.autoencoder.most
        weights = heads.autoencoder(some, [want.skip for want in wants.values()], heads.dense)
    for (i, want), one in zip(wants.items(), weights, strict=True):
        yield i, largest_words(one, want.top_k or kept)
