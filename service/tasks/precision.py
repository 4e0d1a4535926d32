"""Embeddings in fewer bits than float32.

Vectors are quantized here, not in `model/`, because the numbers of an output are checked in float32: a NaN
has no counterpart in fewer bits.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray

Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
STEPS: frozenset[Precision] = frozenset(("int8", "uint8"))
"""Precisions in steps of 1/127, for components in [−1, 1]."""
BITS: frozenset[Precision] = frozenset(("binary", "ubinary"))
"""Precisions of one bit for each component."""


def quantize(vectors: FloatArray, precision: Precision) -> NDArray[Any]:
    """Reduce vectors (…, d): int8 or uint8 (…, d), binary as int8 or ubinary as uint8 (…, d/8).

    `int8` is round(127·x) within ±127, and `uint8` is that plus 128: the range is fixed, so that a vector
    does not depend on others. `ubinary` has a bit for each component, set where x > 0, the first component in
    the highest bit of the first byte; `binary` is that minus 128. `float32` is `vectors` itself. Raises
    ValueError for bits of a number of components that is not a multiple of 8.
    """
    if precision == "float32":
        return vectors
    if precision in BITS:
        if vectors.shape[-1] % 8:
            raise ValueError(f"{vectors.shape[-1]} components do not fill whole bytes")
        unsigned = np.packbits(vectors > 0, axis=-1)
    else:
        steps = np.clip(np.rint(127 * vectors), -127, 127)
        unsigned = (steps + 128).astype(np.uint8)
    if precision in ("uint8", "ubinary"):
        return unsigned
    return (unsigned.astype(np.int16) - 128).astype(np.int8)


def stored_size(components: int, precision: Precision) -> int:
    """Return the length of a vector after `quantize`."""
    return components // 8 if precision in BITS else components
