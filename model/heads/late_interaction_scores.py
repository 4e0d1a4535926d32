"""How well texts match a query by the vectors of their tokens (late interaction)."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from model.choices import Interaction
from model.contract import FloatArray

_BLOCK_NUMBERS = 2**20
"""Dot products in one block: four megabytes."""
_MAX_SIM = Interaction()


def max_sim(
    query: FloatArray, texts: Sequence[FloatArray], interaction: Interaction = _MAX_SIM
) -> FloatArray:
    """Compute MaxSim of a query (Q, E) with each text (N, E): float32 (texts,).

    Each token of the query has a largest dot product with a token of the text. MaxSim is the sum of these
    (Khattab & Zaharia 2020, §3.3), or their mean, as the `interaction` says. Runs in blocks of texts, so that
    memory does not grow with their number.
    """
    scores = np.full(len(texts), interaction.empty, np.float32)
    for block in _blocks([len(text) for text in texts], _BLOCK_NUMBERS // max(1, len(query))):
        vectors = np.concatenate([texts[i] for i in block])
        starts = list(accumulate((len(texts[i]) for i in block), initial=0))[:-1]
        scores[block] = np.maximum.reduceat(vectors @ query.T, starts).sum(axis=1)
    return scores / np.float32(max(1, len(query))) if interaction.mean else scores


def _blocks(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Group the indices of texts with tokens, up to `most` tokens a group, or one longer text."""
    block: list[int] = []
    tokens = 0
    for index, length in enumerate(lengths):
        if block and tokens + length > most:
            yield block
            block, tokens = [], 0
        if length:
            block.append(index)
            tokens += length
    if block:
        yield block
