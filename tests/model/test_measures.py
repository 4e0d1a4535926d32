"""The reference measures of attention maps, against closed forms and loops over the definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.references import measures
from tests.references.attention import map_summary
from tests.references.comparing import distance, relative_distance
from tests.references.encoder import softmax

F32 = NDArray[np.float32]

NAMES = [
    *("entropy", "confidence", "mean_distance", "self", "previous", "next", "special"),
    *("argmax_self", "argmax_previous", "argmax_next"),
]


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
    """What is handed in still belongs to the caller."""
    a = uniform(3)
    measures.rollout([a, a])
    assert (a == uniform(3)).all()


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
