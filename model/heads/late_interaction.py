"""Vectors of tokens for late interaction (Khattab & Zaharia 2020, §3.3), and how to ask for them."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from model.contract import Encoding, FloatArray, TokenVectorsWant, Want
from model.heads.vectors import finish

Layers = Sequence[Callable[[FloatArray], FloatArray]]


def want_vectors(encoding: Encoding) -> Want:
    """Return what computes the vectors of a text of a role: `Output.heads["token_vectors"]` (rows, size).

    `encoding` is as `TextTokenizer.of(role)` makes it, which also chooses the tokens that have vectors,
    `encoding.vector_rows`. Texts of both roles may share a batch. With the vectors q of a query and d of a
    document, the score of MaxSim is `(q @ d.T).max(1).sum()`.
    """
    return Want(heads=(TokenVectorsWant(encoding.vector_rows),))


def token_vectors(
    states: Sequence[FloatArray], wants: Sequence[TokenVectorsWant], projection: Layers
) -> Iterator[FloatArray]:
    """Compute vectors of tokens of last hidden states, (N, C) each, all in one product.

    Yields float32 (rows, size) for each, every row of unit norm.
    """
    rows = [state[np.array(want.rows, np.int64)] for state, want in zip(states, wants, strict=True)]
    vectors = np.concatenate(rows)
    for layer in projection:
        vectors = layer(vectors)
    ends = accumulate(map(len, rows))
    for part in np.split(vectors, list(ends)[:-1]):
        yield finish(part, None, normalize=True)
