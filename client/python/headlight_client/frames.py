"""Converts answers to pandas' data frames."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = dict[str, Any]
Columns = dict[str, Sequence[Any]]


def data_frame(content: Sequence[Row] | Mapping[str, Sequence[Any]]) -> Any:
    """Build a DataFrame of rows or of columns; raises ModuleNotFoundError without pandas."""
    return _pandas().DataFrame(content)


def similarity_frame(similarities: NDArray[np.float32], names: Sequence[object] | None) -> Any:
    """Build a DataFrame of similarities to a source, (n,), or of n texts to each other, (n, n).

    `names` are those of the n rows, and of the n columns. Raises ModuleNotFoundError without pandas.
    """
    return matrix_frame(similarities, names, ["similarity"] if similarities.ndim == 1 else names)


def matrix_frame(
    matrix: NDArray[np.float32], rows: Sequence[object] | None, columns: Sequence[object] | None
) -> Any:
    """Build a DataFrame of a matrix, its rows and columns named; raises as the others do."""
    return _pandas().DataFrame(matrix, index=rows, columns=columns)


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ModuleNotFoundError:
        raise ModuleNotFoundError("to_pandas() requires pandas (pip install pandas).") from None
