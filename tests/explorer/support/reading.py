"""The maps of the API, and tables of weights compared with them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.serving import Service

HALF = 2.0**-10
"""Maps come as float16."""


def maps(served: Service, text: Any = "The cat sat on the mat.", **options: object) -> NDArray[np.float64]:
    """The maps of the API, (layers, heads, N, N)."""
    return np.array(served.attention(text, **options)["data"][0]["attention"])


def assert_shown(shown: dict[int, float], expected: NDArray[np.float64], first: int = 0) -> None:
    """The table has every weight once, the largest first, each as exact as it is written."""
    assert sorted(shown) == list(range(first, first + len(expected)))
    values = list(shown.values())
    assert values == sorted(values, reverse=True)
    for position, value in shown.items():
        weight = float(expected[position - first])
        digits = 0.000005 if abs(weight) < 0.01 else 0.0005 if abs(weight) < 10 else 0.05
        assert abs(value - weight) <= digits + HALF * abs(weight), position
