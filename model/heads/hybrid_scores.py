"""How well texts match a query by all three kinds of vectors of bge-m3 (Chen et al. 2024, §3.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray, Output
from model.heads.late_interaction_scores import max_sim
from model.heads.similarity import similarities


@dataclass(frozen=True, slots=True)
class HybridWeights:
    """The weight of each score: none is negative, not all are 0; a score of weight 0 need not be computed."""

    sentence: float
    sparse: float
    tokens: float

    @property
    def total(self) -> float:
        """The sum of the weights, by which the weighted scores are divided."""
        return self.sentence + self.sparse + self.tokens


def hybrid_scores(query: Output, texts: Sequence[Output], weights: HybridWeights) -> FloatArray:
    """Score texts as `BGEM3FlagModel.compute_score` of FlagEmbedding does: float32 (texts,).

    A score is the weighted mean of the cosine of the sentence vectors, the product of the sparse vectors, and
    the largest product of each token of the query with a token of the text, averaged over the query.
    """
    found = np.zeros(len(texts))
    if weights.sentence:
        vectors = np.stack([one.sentence for one in (query, *texts) if one.sentence is not None])
        found += weights.sentence * similarities("cosine", vectors[:1], vectors[1:])[0]
    if weights.sparse:
        found += weights.sparse * lexical_matches(query, texts)
    if weights.tokens:
        first, *others = (one.heads["token_vectors"] for one in (query, *texts))
        found += weights.tokens / max(1, len(first)) * max_sim(first, others)
    return (found / weights.total).astype(np.float32)


def lexical_matches(query: Output, texts: Sequence[Output]) -> NDArray[np.float64]:
    """Sum the products of the weights of the words that a text shares with a query: (texts,)."""
    words, weights = query.heads["sparse_ids"], query.heads["sparse_weights"]
    if not len(words) or not texts:
        return np.zeros(len(texts))
    order = words.argsort()
    words, weights = words[order], weights[order].astype(np.float64)
    ids, values = (
        np.concatenate([text.heads[name] for text in texts]) for name in ("sparse_ids", "sparse_weights")
    )
    places = words.searchsorted(ids).clip(max=len(words) - 1)
    products = np.where(words[places] == ids, weights[places] * values, 0)
    owners = np.repeat(np.arange(len(texts)), [len(text.heads["sparse_ids"]) for text in texts])
    return np.bincount(owners, products, len(texts)).astype(np.float64)
