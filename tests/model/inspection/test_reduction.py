"""Merging, rescaling and ranking rows of maps, against loops over the definitions."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from model.inspection import reduction
from tests.references.comparing import distance
from tests.references.encoder import softmax

F32 = NDArray[np.float32]
FOUR = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0, 0.5, 0.5, 0], [0.25] * 4], dtype=np.float32)


def random_maps(*shape: int) -> F32:
    """Maps from flat to peaked."""
    scores = np.random.default_rng(0).normal(0, 3.0, shape)
    return softmax(scores).astype(np.float32)


def test_words_of_four_tokens() -> None:
    """Sum over the key word's pieces, mean over the query word's."""
    words = np.array([0, 1, 3])
    expected = [[0.1, 0.5, 0.4], [0.2, 0.75, 0.05], [0.25, 0.5, 0.25]]
    assert distance(reduction.merge_pieces(FOUR, rows=words, columns=words), expected) <= 1e-7
    assert distance(reduction.merge_pieces(FOUR, columns=words)[1], [0.4, 0.5, 0.1]) <= 1e-7
    assert distance(reduction.merge_pieces(FOUR, rows=words)[1], [0.2, 0.4, 0.35, 0.05]) <= 1e-7
    assert reduction.merge_pieces(FOUR) is FOUR


def starts_of(n: int) -> st.SearchStrategy[list[int]]:
    """Where words may begin among n pieces."""
    inner = st.sets(st.integers(1, n - 1)) if n > 1 else st.just(set[int]())
    return inner.map(lambda chosen: [0, *sorted(chosen)] if n else [])


@given(data=st.data(), rows=st.integers(0, 8), columns=st.integers(0, 8))
def test_words_are_sums_and_means_of_their_pieces(data: st.DataObject, rows: int, columns: int) -> None:
    """Any division of rows and columns into words, none at all included."""
    p = np.random.default_rng(rows).random((2, rows, columns), dtype=np.float32)
    row_starts, column_starts = data.draw(starts_of(rows)), data.draw(starts_of(columns))
    found = reduction.merge_pieces(
        p, rows=np.array(row_starts, np.int64), columns=np.array(column_starts, np.int64)
    )
    assert found.shape == (2, len(row_starts), len(column_starts))
    assert found.dtype == np.float32
    row_ends, column_ends = [*row_starts[1:], rows], [*column_starts[1:], columns]
    for b, i, j in np.ndindex(found.shape):
        pieces = p[b, row_starts[i] : row_ends[i], column_starts[j] : column_ends[j]].tolist()
        assert found[b, i, j] == pytest.approx(sum(map(sum, pieces)) / len(pieces), rel=1e-5)


def test_merged_rows_still_sum_to_one() -> None:
    """Words share out the mass that their pieces had."""
    starts = np.array([0, 1, 4, 5, 11, 30])
    merged = reduction.merge_pieces(random_maps(3, 40, 40), rows=starts, columns=starts)
    assert distance(merged.sum(-1), np.ones((3, 6))) <= 1e-6


def test_renormalized_rows_sum_to_one_and_zeros_stay() -> None:
    """Each row over its own sum, the smallest included; a row of zeros stays one, and a NaN is not hidden."""
    p = np.array([[[1, 3, 0], [0, 0, 0], [1e-30, 1e-30, 2e-30]]], dtype=np.float32)
    found = reduction.renormalize(p)
    assert found.dtype == np.float32
    assert distance(found, [[[0.25, 0.75, 0], [0, 0, 0], [0.25, 0.25, 0.5]]]) <= 1e-7
    broken = reduction.renormalize(np.array([[np.nan, 1, 0], [1, 1, 2]], np.float32))
    assert np.isnan(broken[0, 0])
    assert distance(broken[1], [0.25, 0.25, 0.5]) <= 1e-7
    for shape in ((0, 3), (3, 0), (2, 0, 0)):
        assert reduction.renormalize(np.zeros(shape, dtype=np.float32)).shape == shape


# ------------------------------------------------------------------------------------------- top k


def naive_top_k(row: list[float], k: int, positions: list[int]) -> tuple[list[int], list[float], float]:
    """Sort the columns by value, position and index."""
    order = sorted(range(len(row)), key=lambda j: (-row[j], positions[j], j))
    left_out = math.fsum(row[j] for j in order[k:])
    return [positions[j] for j in order[:k]], [row[j] for j in order[:k]], left_out


VALUES = st.one_of(
    st.sampled_from([0.0, -0.0, 0.25, 0.5, 1.0, -0.25, -1.0]),
    st.floats(-1e3, 1e3, width=32),
    st.floats(0, 2.0**-120, width=32),
)


@given(
    values=arrays(np.float32, array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=7), elements=VALUES),
    k=st.integers(1, 9),
    data=st.data(),
)
def test_top_k_is_that_of_sorting(values: F32, k: int, data: st.DataObject) -> None:
    """Any numbers, many of them equal, and any positions, repeated ones too: as a sort would give them."""
    m = values.shape[-1]
    positions = data.draw(st.lists(st.integers(0, 4), min_size=m, max_size=m))
    keys, weights, residual = reduction.top_k(values, k, positions)
    assert [array.dtype.name for array in (keys, weights, residual)] == ["int32", "float32", "float32"]
    shape = values.shape[:-1]
    assert keys.shape == weights.shape == (*shape, min(k, m))
    assert residual.shape == shape
    for at in np.ndindex(shape):
        expected = naive_top_k(values[at].tolist(), k, positions)
        assert keys[at].tolist() == expected[0]
        assert weights[at].tolist() == expected[1]
        bound = 1e-6 * max(1.0, float(np.abs(values[at]).sum()))
        assert residual[at] == pytest.approx(expected[2], abs=bound)


@given(
    values=arrays(np.float32, array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6), elements=VALUES),
    k=st.integers(1, 12),
    data=st.data(),
)
def test_top_k_of_repeated_columns_is_that_of_the_columns_written_out(
    values: F32, k: int, data: st.DataObject
) -> None:
    """A column that counts three times is what three columns of its position are, and their rest."""
    m = values.shape[-1]
    counts = np.array(data.draw(st.lists(st.integers(1, 3), min_size=m, max_size=m)), dtype=np.int64)
    found = reduction.top_k(values, k, range(m), counts)
    written_out = reduction.top_k(np.repeat(values, counts, axis=-1), k, np.repeat(np.arange(m), counts))
    for array, expected in zip(found[:2], written_out[:2], strict=True):
        assert array.dtype == expected.dtype
        assert array.tolist() == expected.tolist()
    bound = 1e-6 * max(1.0, 3 * float(np.abs(values).sum()))
    assert distance(found[2], written_out[2]) <= bound


def test_ties_go_to_the_lower_position_then_to_the_lower_column() -> None:
    """Columns may stand in any order and twice; of zeros, no sign is the larger one."""
    row = np.array([0.0, 0.5, -0.0, 0.5, 0.5], dtype=np.float32)
    keys, weights, residual = reduction.top_k(row, 4, [9, 7, 3, 7, 1])
    assert keys.tolist() == [1, 7, 7, 3]
    assert weights.tolist() == [0.5, 0.5, 0.5, 0.0]
    assert residual == 0


def test_nothing_is_left_out_where_k_is_large() -> None:
    """k beyond the columns is clipped, and the residual is exactly 0."""
    p = random_maps(2, 5, 6)
    keys, weights, residual = reduction.top_k(p, 100, range(6))
    assert keys.shape == (2, 5, 6)
    assert (np.sort(keys, axis=-1) == np.arange(6)).all()
    assert (weights == -np.sort(-p, axis=-1)).all()
    assert (residual == 0).all()


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (2, 0, 0), (0, 0, 5)])
def test_top_k_of_nothing(shape: tuple[int, ...]) -> None:
    """No rows or no columns give arrays of no rows or no columns."""
    keys, weights, residual = reduction.top_k(np.zeros(shape, dtype=np.float32), 3, range(shape[-1]))
    assert keys.shape == weights.shape == (*shape[:-1], min(3, shape[-1]))
    assert residual.shape == shape[:-1]
    assert (residual == 0).all()


@pytest.mark.parametrize("turned", [False, True])
def test_top_k_of_many_rows(turned: bool) -> None:
    """Rows beyond one chunk, whatever their order in memory, and a residual to 1e-6."""
    p = random_maps(3, 400, 512)
    p = np.ascontiguousarray(p.swapaxes(0, 1)).swapaxes(0, 1) if turned else p
    keys, weights, residual = reduction.top_k(p, 5, range(512))
    order = np.argsort(-p, axis=-1, kind="stable")
    assert (keys == order[..., :5]).all()
    assert (weights == np.take_along_axis(p, order[..., :5], -1)).all()
    left_out: Any = np.take_along_axis(p, order[..., 5:], -1).astype(np.float64).sum(-1)
    assert distance(residual, left_out) <= 1e-6
