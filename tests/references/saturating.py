"""Products of eight bits as x86 without VNNI adds them: pairs in 16 bits (VPMADDUBSW), which saturate."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def saturating_product(x: NDArray[np.uint8], w: NDArray[np.int8]) -> NDArray[np.int64]:
    """Multiply x (M, K) by w (K, N), K even: sums of neighbours in K are clipped to 16 bits, then added."""
    terms = x.astype(np.int64)[:, :, None] * w.astype(np.int64)[None]  # (M, K, N)
    pairs: NDArray[Any] = terms[:, 0::2] + terms[:, 1::2]
    return np.clip(pairs, -(2**15), 2**15 - 1).sum(axis=1)
