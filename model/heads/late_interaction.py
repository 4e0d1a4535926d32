"""Vectors of tokens for late interaction (Khattab & Zaharia 2020, §3.3), and how to ask for them."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.choices import TokenVectorsWant
from model.contract import Encoding, FloatArray, Want
from model.heads.token_pooling.vectors import pool_tokens
from model.heads.vectors import finish

Layers = Sequence[Callable[[FloatArray], FloatArray]]


def want_vectors(encoding: Encoding) -> Want:
    """Return the want for the token vectors of a text: `Output.heads["token_vectors"]` (rows, size).

    `encoding` must be made by `TextTokenizer.of(role)`, which also chooses the tokens that have vectors,
    `encoding.vector_rows`. Texts of both roles may share a batch. With the vectors q of a query and d of a
    document, the score of MaxSim is `(q @ d.T).max(1).sum()`.
    """
    return Want(heads=(TokenVectorsWant(encoding.vector_rows, encoding.token_pooling),))


def token_vectors(
    states: Sequence[FloatArray], wants: Sequence[TokenVectorsWant], projection: Layers
) -> Iterator[dict[str, NDArray[Any]]]:
    """Compute the vectors of tokens from these last hidden states, (N, C) each, all in one product.

    Yields the arrays of each want, as `TokenVectorsWant` describes them.
    """
    rows = [state[np.array(want.rows, np.int64)] for state, want in zip(states, wants, strict=True)]
    vectors = np.concatenate(rows)
    for layer in projection:
        vectors = layer(vectors)
    ends = accumulate(map(len, rows))
    for part, want in zip(np.split(vectors, list(ends)[:-1]), wants, strict=True):
        found = finish(part, None, normalize=True)
        if want.pooling is None:
            yield {"token_vectors": found}
        else:
            pooled, clusters = pool_tokens(found, want.pooling)
            yield {"token_vectors": pooled, "token_clusters": clusters}
