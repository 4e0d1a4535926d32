"""Sparse vectors of predicted words (SPLADE, Formal et al. 2021, 2022), tokens, or learned features."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from model.arrays import NUMPY, Array, Operations
from model.contract import FloatArray, SentenceWant
from model.heads.dense import Dense, Step
from model.heads.pooling import Bags
from model.heads.predictor import Predictor
from model.heads.vectors import of_pooled

_LOGITS_AT_ONCE = 2**20
_FEWEST_WORDS = 64


@dataclass(frozen=True, slots=True)
class Splade:
    """How the logits of a sequence's tokens become one weight for each word.

    The weight is the maximum, or the sum, over all tokens (special ones included) of log(1 + relu(logit)), or
    of log(1 + log(1 + relu(logit))) if the logarithm is applied `twice`.
    """

    pooling: Literal["max", "sum"] = "max"
    twice: bool = False
    most: int | None = None
    """How many words a vector keeps unless a request says; None: all of them."""


def word_weights(
    predictor: Predictor, states: Sequence[FloatArray], splade: Splade, ops: Operations
) -> Iterator[FloatArray]:
    """Compute the weight of each word for sequences with these last hidden states, (N, C) each: (V,) each.

    The T·V logits of all words are never in memory together: the last layer runs for all tokens, but only
    some words at a time.
    """
    lengths = [len(state) for state in states]
    x = ops.array(np.concatenate(states))  # (T, C)
    weights = np.empty((len(states), len(predictor.layers[-1].weight)), np.float32)  # (B, V)
    starts = [0, *accumulate(lengths)][:-1]
    step = max(_FEWEST_WORDS, _LOGITS_AT_ONCE // max(1, sum(lengths)))
    for words, logits in predictor.by_words(x, ops, step):
        weights[:, words] = _pooled(logits, starts, sum(lengths), splade, ops)
    yield from weights if splade.pooling == "sum" else _logarithms(weights, splade)


def _pooled(
    logits: Array, starts: Sequence[int], tokens: int, splade: Splade, ops: Operations
) -> NDArray[Any]:
    if splade.pooling == "sum":
        logits = ops.array(_logarithms(ops.numpy(logits), splade))
    return ops.numpy(ops.reduce_rows(logits, slice(0, tokens), starts, splade.pooling))


def _logarithms(logits: FloatArray, splade: Splade) -> FloatArray:
    """Log(1 + relu(x)), once or twice: never falls with x, so a maximum may be taken first."""
    weights = np.log1p(np.maximum(logits, 0))
    return np.log1p(weights) if splade.twice else weights


@dataclass(frozen=True)
class TokenWeights:
    """The weight of each token, relu(x · `weight` + `bias`), as in bge-m3 (Chen et al. 2024).

    `weight` is float32 (C,). A word of the vocabulary gets the largest weight of its tokens in a text; ids in
    `ignored`, which stand for no word, get none.
    """

    weight: FloatArray
    bias: float
    ignored: frozenset[int] = frozenset()

    def __call__(
        self,
        states: Sequence[FloatArray],
        token_ids: Sequence[NDArray[np.int64]],
        top_k: Sequence[int | None],
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """Weigh the tokens of sequences with these last hidden states, (N, C) each.

        Yields the arrays that `SparseWant` describes for each. A NaN counts as the largest weight.
        """
        products = np.concatenate([state @ self.weight for state in states])  # (T,)
        ids = np.concatenate(token_ids)
        # All sequences at once, since each call of numpy costs as much as a short text.
        size = int(ids.max(initial=0)) + 1
        sequences = np.repeat(np.arange(len(states)), [len(state) for state in states])
        keys, places = np.unique(sequences * size + ids, return_inverse=True)
        weights = np.zeros(len(keys), np.float32)
        with np.errstate(invalid="ignore"):
            np.maximum.at(weights, places, products + np.float32(self.bias))
        sequences, words = np.divmod(keys, size)
        weights[np.isin(words, self._ignored)] = 0
        order = np.lexsort((-np.where(np.isnan(weights), np.inf, weights), sequences))
        order = order[~(weights[order] <= 0)]
        bounds = sequences[order].searchsorted(np.arange(len(states) + 1)).tolist()
        for (first, after), most in zip(pairwise(bounds), top_k, strict=True):
            chosen = order[first:after][:most]
            yield {"sparse_ids": words[chosen].astype(np.int32), "sparse_weights": weights[chosen]}

    @cached_property
    def _ignored(self) -> NDArray[np.int64]:
        return np.array(sorted(self.ignored), np.int64)


@dataclass(frozen=True)
class AutoEncoder:
    """The weights of an autoencoder's learned features in a text's own vector: CSR (Wen et al. 2025).

    `dense` maps the vector, which is pooled and scaled as `own` says, to the weights of all features. With
    `standardizes`, its components first get mean 0 and deviation 1. `most` is how many features a vector
    keeps unless a request says.
    """

    dense: Dense
    own: SentenceWant
    most: int
    standardizes: bool = False

    def __call__(
        self, states: Sequence[FloatArray], skips: Sequence[int], steps: Sequence[Step]
    ) -> FloatArray:
        """Weigh the features of sequences with these last hidden states, (N, C) each: (B, F).

        `skips` says how many leading tokens of each are not pooled; `steps` follow the pooling.
        """
        pooled = [self._pool(state, skip) for state, skip in zip(states, skips, strict=True)]
        x = of_pooled(np.concatenate(pooled), self.own, steps)
        if self.standardizes:
            x = x - x.mean(1, keepdims=True)
            x = x / (x.std(1, ddof=1, keepdims=True) + np.float32(1e-5))
        return self.dense(x)

    def _pool(self, state: FloatArray, skip: int) -> FloatArray:
        return Bags([0], [len(state)], skip, NUMPY).pool(lambda _: state, self.own)


def largest_words(weights: FloatArray, top_k: int | None) -> dict[str, NDArray[Any]]:
    """Choose the `top_k` largest of weights (V,), or all above 0, as arrays that `SparseWant` describes.

    A NaN counts as the largest, so that it reaches the check of outputs.
    """
    above = np.flatnonzero(~(weights <= 0))
    if top_k is not None and top_k < len(above):
        least = np.partition(weights[above], len(above) - top_k)[len(above) - top_k]
        above = above[~(weights[above] < least)]
    ranked = np.where(np.isnan(weights[above]), np.inf, weights[above])
    order = above[np.argsort(-ranked, kind="stable")][:top_k]
    return {"sparse_ids": order.astype(np.int32), "sparse_weights": weights[order]}
