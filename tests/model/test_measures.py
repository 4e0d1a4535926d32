"""Measures of attention maps, against closed forms and loops over the definitions."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from model.inspection import measures
from tests.references.attention import map_summary
from tests.references.comparing import distance, relative_distance
from tests.references.encoder import softmax

F32 = NDArray[np.float32]

NAMES = [
    *("entropy", "confidence", "mean_distance", "self", "previous", "next", "special"),
    *("argmax_self", "argmax_previous", "argmax_next"),
]
FOUR = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0, 0.5, 0.5, 0], [0.25] * 4], dtype=np.float32)


def uniform(n: int) -> F32:
    return np.full((n, n), 1 / n, dtype=np.float32)


def random_maps(*shape: int, seed: int = 0, spread: float = 3.0) -> F32:
    """Maps from flat to peaked."""
    scores = np.random.default_rng(seed).normal(0, spread, shape)
    return softmax(scores).astype(np.float32)


def previous_token_head(n: int) -> F32:
    """Everything on the token before; the first token looks at itself."""
    p = np.eye(n, k=-1, dtype=np.float32)
    p[0, 0] = 1
    return p


# ------------------------------------------------------------------------------------- closed forms


def test_statistics_of_a_uniform_map() -> None:
    """128 tokens all alike: entropy ln 128, distance (n² − 1)/3n, the rest by counting."""
    n, special = 128, [True] + [False] * 126 + [True]
    found = measures.summary(uniform(n), special)
    assert found["entropy"] == pytest.approx(4.85203, abs=1e-5)
    assert found["mean_distance"] == pytest.approx(42.6641, abs=5e-5)
    assert found["confidence"] == pytest.approx(1 / n, abs=1e-7)
    assert found["self"] == pytest.approx(1 / n, abs=1e-7)
    assert found["previous"] == found["next"] == pytest.approx((n - 1) / n**2, abs=1e-7)
    assert found["special"] == pytest.approx(2 / n, abs=1e-7)
    # Of equal weights the first counts, which only the first two rows have at or before them.
    assert found["argmax_self"] == found["argmax_previous"] == pytest.approx(1 / n, abs=1e-7)
    assert found["argmax_next"] == 0


def test_statistics_of_a_previous_token_head() -> None:
    """Certain of one token each: no entropy, and the means are over all rows, the first included."""
    found = measures.summary(previous_token_head(5), [True, False, False, False, True])
    expected = {
        "entropy": 0,
        "confidence": 1,
        "mean_distance": 0.8,
        "self": 0.2,
        "previous": 0.8,
        "next": 0,
        "special": 0.4,
        "argmax_self": 0.2,
        "argmax_previous": 0.8,
        "argmax_next": 0,
    }
    assert {name: pytest.approx(float(value), abs=1e-7) for name, value in found.items()} == expected
    assert not np.signbit(found["entropy"])


@pytest.mark.parametrize("layers", [1, 2, 6, 12])
def test_rollout_of_uniform_maps(layers: int) -> None:
    """L uniform layers: (1 − 2⁻ᴸ)·U + 2⁻ᴸ·I."""
    expected = (1 - 2.0**-layers) * uniform(7) + 2.0**-layers * np.eye(7)
    assert distance(measures.rollout([uniform(7)] * layers), expected) <= 1e-6


@pytest.mark.parametrize("layers", [1, 3, 6])
def test_rollout_of_previous_token_heads(layers: int) -> None:
    """A path of k steps back among L layers: C(L, k)/2ᴸ, away from the first tokens."""
    rolled = measures.rollout([previous_token_head(16)] * layers)
    for i in range(layers, 16):
        expected = [math.comb(layers, i - j) / 2**layers if j <= i else 0 for j in range(16)]
        assert distance(rolled[i], expected) <= 1e-7


def test_rollout_of_two_layers() -> None:
    """A hand-made case, and that later layers stand on the left."""
    a = np.array([[0.9, 0.1], [0.2, 0.8]], dtype=np.float32)
    assert distance(measures.rollout([a, a]), [[0.9075, 0.0925], [0.185, 0.815]]) <= 1e-7
    b = np.array([[0, 1], [0, 1]], dtype=np.float32)
    # ½(B + I) ½(A + I) = [[.5, .5], [0, 1]] [[.95, .05], [.1, .9]]
    assert distance(measures.rollout([a, b]), [[0.525, 0.475], [0.1, 0.9]]) <= 1e-7


def test_rollout_leaves_its_maps_alone() -> None:
    """What is handed in belongs to somebody else."""
    a = uniform(3)
    measures.rollout([a, a])
    assert (a == uniform(3)).all()


def test_words_of_four_tokens() -> None:
    """Sum over the key word's pieces, mean over the query word's."""
    words = [0, 1, 3]
    expected = [[0.1, 0.5, 0.4], [0.2, 0.75, 0.05], [0.25, 0.5, 0.25]]
    assert distance(measures.merge_pieces(FOUR, rows=words, columns=words), expected) <= 1e-7
    assert distance(measures.merge_pieces(FOUR, columns=words)[1], [0.4, 0.5, 0.1]) <= 1e-7
    assert distance(measures.merge_pieces(FOUR, rows=words)[1], [0.2, 0.4, 0.35, 0.05]) <= 1e-7
    assert measures.merge_pieces(FOUR) is FOUR


# ------------------------------------------------------------------------------------------ loops


@given(n=st.integers(1, 12), seed=st.integers(0, 99), spread=st.sampled_from([0.0, 1.0, 5.0, 200.0]))
def test_statistics_are_their_definitions(n: int, seed: int, spread: float) -> None:
    """Each statistic of each map equals a loop over its numbers, zeros among them."""
    p = random_maps(2, 3, n, n, seed=seed, spread=spread)
    special = np.random.default_rng(seed).random(n) < 0.4
    found = measures.summary(p, special)
    assert list(found) == NAMES
    for name, values in found.items():
        assert values.dtype == np.float32
        expected = [[map_summary(map_, special.tolist())[name] for map_ in layer] for layer in p]
        assert relative_distance(values, expected) <= 1e-6, name


def test_statistics_of_long_maps_keep_their_digits() -> None:
    """At 512 tokens the sums of float32 numbers are right to 1e-6 of their size."""
    p = random_maps(2, 512, 512)
    special = np.arange(512) % 50 == 0
    found = measures.summary(p, special)
    for i in range(2):
        for name, expected in map_summary(p[i], special.tolist()).items():
            assert relative_distance(found[name][i], expected) <= 1e-6, name


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 3, 3), (3, 3), (1, 1)])
def test_statistics_over_any_leading_axes(shape: tuple[int, ...]) -> None:
    """One map, no maps, one token: the leading axes remain, and nothing is divided by nothing."""
    p = random_maps(*shape)
    for name, values in measures.summary(p, [True] * shape[-1]).items():
        assert values.shape == shape[:-2], name
        assert np.isfinite(values).all()


@given(seed=st.integers(0, 99), layers=st.integers(1, 5), n=st.integers(1, 9))
def test_rollout_is_the_sum_over_all_paths(seed: int, layers: int, n: int) -> None:
    """Token by token: at each layer half stays where it is, and half comes from where attention looks."""
    maps = random_maps(layers, n, n, seed=seed)
    rolled = measures.rollout(list(maps))
    assert rolled.dtype == np.float32
    for start in range(n):
        mass = [float(j == start) for j in range(n)]
        for map_ in maps:
            mass = [0.5 * mass[i] + 0.5 * sum(map_[i, j] * mass[j] for j in range(n)) for i in range(n)]
        assert distance(rolled[:, start], mass) <= 1e-6
    assert distance(rolled.sum(-1), np.ones(n)) <= 1e-6


def test_value_norms_are_the_norms_of_the_weighted_vectors() -> None:
    """Each number is the length of α·f(x), computed vector by vector."""
    random = np.random.default_rng(0)
    heads, n, m, size, hidden = 3, 4, 5, 6, 18
    weights = random_maps(2, heads, n, m)
    values = random.normal(size=(heads, m, size)).astype(np.float32)
    output = random.normal(size=(heads, size, hidden)).astype(np.float32)
    found = measures.value_norms(weights, values, output)
    assert found.dtype == np.float32
    assert found.shape == weights.shape
    for b, h, i, j in np.ndindex(weights.shape):
        vector = weights[b, h, i, j] * (values[h, j].astype(np.float64) @ output[h].astype(np.float64))
        assert found[b, h, i, j] == pytest.approx(math.hypot(*vector), rel=2e-6)


def starts_of(n: int) -> st.SearchStrategy[list[int]]:
    """Where words may begin among n pieces."""
    inner = st.sets(st.integers(1, n - 1)) if n > 1 else st.just(set[int]())
    return inner.map(lambda chosen: [0, *sorted(chosen)] if n else [])


@given(data=st.data(), rows=st.integers(0, 8), columns=st.integers(0, 8))
def test_words_are_sums_and_means_of_their_pieces(data: st.DataObject, rows: int, columns: int) -> None:
    """Any division of rows and columns into words, none at all included."""
    p = np.random.default_rng(rows).random((2, rows, columns), dtype=np.float32)
    row_starts, column_starts = data.draw(starts_of(rows)), data.draw(starts_of(columns))
    found = measures.merge_pieces(p, rows=row_starts, columns=np.array(column_starts, dtype=np.int64))
    assert found.shape == (2, len(row_starts), len(column_starts))
    assert found.dtype == np.float32
    row_ends, column_ends = [*row_starts[1:], rows], [*column_starts[1:], columns]
    for b, i, j in np.ndindex(found.shape):
        pieces = p[b, row_starts[i] : row_ends[i], column_starts[j] : column_ends[j]].tolist()
        assert found[b, i, j] == pytest.approx(sum(map(sum, pieces)) / len(pieces), rel=1e-5)


def test_merged_rows_still_sum_to_one() -> None:
    """Words share out the mass that their pieces had."""
    starts = [0, 1, 4, 5, 11, 30]
    merged = measures.merge_pieces(random_maps(3, 40, 40), rows=starts, columns=starts)
    assert distance(merged.sum(-1), np.ones((3, 6))) <= 1e-6


def test_renormalized_rows_sum_to_one_and_zeros_stay() -> None:
    """Each row over its own sum, the smallest included; a row of nothing stays nothing."""
    p = np.array([[[1, 3, 0], [0, 0, 0], [1e-30, 1e-30, 2e-30]]], dtype=np.float32)
    found = measures.renormalize(p)
    assert found.dtype == np.float32
    assert distance(found, [[[0.25, 0.75, 0], [0, 0, 0], [0.25, 0.25, 0.5]]]) <= 1e-7
    for shape in ((0, 3), (3, 0), (2, 0, 0)):
        assert measures.renormalize(np.zeros(shape, dtype=np.float32)).shape == shape


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
    keys, weights, residual = measures.top_k(values, k, positions)
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
    found = measures.top_k(values, k, range(m), counts)
    written_out = measures.top_k(np.repeat(values, counts, axis=-1), k, np.repeat(np.arange(m), counts))
    for array, expected in zip(found[:2], written_out[:2], strict=True):
        assert array.dtype == expected.dtype
        assert array.tolist() == expected.tolist()
    bound = 1e-6 * max(1.0, 3 * float(np.abs(values).sum()))
    assert distance(found[2], written_out[2]) <= bound


def test_ties_go_to_the_lower_position_then_to_the_lower_column() -> None:
    """Columns may stand in any order and twice; of zeros, no sign is the larger one."""
    row = np.array([0.0, 0.5, -0.0, 0.5, 0.5], dtype=np.float32)
    keys, weights, residual = measures.top_k(row, 4, [9, 7, 3, 7, 1])
    assert keys.tolist() == [1, 7, 7, 3]
    assert weights.tolist() == [0.5, 0.5, 0.5, 0.0]
    assert residual == 0


def test_nothing_is_left_out_where_k_is_large() -> None:
    """k beyond the columns is clipped, and the residual is exactly 0."""
    p = random_maps(2, 5, 6)
    keys, weights, residual = measures.top_k(p, 100, range(6))
    assert keys.shape == (2, 5, 6)
    assert (np.sort(keys, axis=-1) == np.arange(6)).all()
    assert (weights == -np.sort(-p, axis=-1)).all()
    assert (residual == 0).all()


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (2, 0, 0), (0, 0, 5)])
def test_top_k_of_nothing(shape: tuple[int, ...]) -> None:
    """No rows or no columns give arrays of no rows or no columns."""
    keys, weights, residual = measures.top_k(np.zeros(shape, dtype=np.float32), 3, range(shape[-1]))
    assert keys.shape == weights.shape == (*shape[:-1], min(3, shape[-1]))
    assert residual.shape == shape[:-1]
    assert (residual == 0).all()


@pytest.mark.parametrize("turned", [False, True])
def test_top_k_of_many_rows(turned: bool) -> None:
    """Rows beyond one chunk, whatever their order in memory, and a residual to 1e-6."""
    p = random_maps(3, 400, 512)
    p = np.ascontiguousarray(p.swapaxes(0, 1)).swapaxes(0, 1) if turned else p
    keys, weights, residual = measures.top_k(p, 5, range(512))
    order = np.argsort(-p, axis=-1, kind="stable")
    assert (keys == order[..., :5]).all()
    assert (weights == np.take_along_axis(p, order[..., :5], -1)).all()
    left_out: Any = np.take_along_axis(p, order[..., 5:], -1).astype(np.float64).sum(-1)
    assert distance(residual, left_out) <= 1e-6
