"""Vectors of tokens for late interaction (Khattab & Zaharia 2020, §3.3), and how to ask for them."""

from collections.abc import Callable, Sequence

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


def token_vectors(hidden: FloatArray, want: TokenVectorsWant, projection: Layers) -> FloatArray:
    """Compute vectors of tokens of a last hidden state (N, C): float32 (rows, size), each of unit norm."""
    vectors = hidden[np.array(want.rows, np.int64)]
    for layer in projection:
        vectors = layer(vectors)
    return finish(vectors, None, normalize=True)
