"""Attention to more keys than a row is attended whole: in parts, whatever is hidden, added or observed."""

from ctypes import addressof, c_int64
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model.contract import STATISTICS
from model.encoder.attending.disentangled import distance_rows
from model.encoder.parts import Disentangled
from model.encoder.positions import distances
from model.pytorch.kernels.library import Kernels
from model.pytorch.kernels.observations import Observations, Slots
from model.pytorch.kernels.panels import lay_out
from model.pytorch.kernels.positions import Vectors
from tests.model.test_native import DTYPES
from tests.references import measures
from tests.references.comparing import near_ties
from tests.support.kernel import attend, kernels_of, needs_kernels

pytestmark = needs_kernels

LONGEST = 1100
EDGES = [512, 513, 519, 960, 961, 1024, 1025]
"""Numbers of keys around those that parts begin with."""

Array = NDArray[np.float64]


@pytest.fixture(params=list(DTYPES))
def name(request: pytest.FixtureRequest) -> str:
    """Of the kernels that a test is run with; see `kernels_of`."""
    return str(request.param)


@pytest.fixture
def kernels(name: str) -> Kernels:
    return kernels_of(name)


class Texts:
    """Packed queries, keys and values of random texts, and their attention by the definition in float64."""

    def __init__(
        self,
        name: str,
        lengths: list[int],
        *,
        heads: int = 2,
        kv_heads: int = 1,
        sharp: float = 1,
        seed: int = 0,
    ) -> None:
        self.lengths, self.heads, self.kv_heads = lengths, heads, kv_heads
        self.far = 0.0  # the largest score that was computed
        self.size = max(32, kernels_of(name).head_step)
        generator = torch.Generator().manual_seed(seed)
        wide = torch.randn(sum(lengths), heads + 2 * kv_heads, self.size, generator=generator)
        wide[:, :heads] *= sharp
        self.wide = wide.to(DTYPES[name])
        self.starts = np.array([0, *np.cumsum(lengths)], np.int64)
        self.bias = np.random.default_rng(seed).normal(size=(heads, 2 * LONGEST - 1)).astype(np.float32)

    @property
    def projected(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v = torch.split(self.wide, [self.heads, self.kv_heads, self.kv_heads], dim=1)
        return q, k, v

    def of(self, text: int) -> tuple[Array, Array, Array]:
        """One text's, each (H, N, D)."""
        rows = slice(*self.starts[text : text + 2].tolist())
        q, k, v = (x[rows].double().numpy().swapaxes(0, 1) for x in self.projected)
        times = self.heads // self.kv_heads
        return q, k.repeat(times, 0), v.repeat(times, 0)

    def weights(
        self,
        text: int,
        *,
        window: int = 0,
        causal: bool = False,
        biased: bool = False,
        hidden: int = 0,
        added: Array | float = 0,
    ) -> Array:
        """Softmax weights (H, N, N)."""
        q, k, _ = self.of(text)
        away = np.arange(q.shape[1])[None] - np.arange(q.shape[1])[:, None]  # of the key from its query
        scores = (q @ k.swapaxes(1, 2) + added) * self.size**-0.5
        if biased:
            scores = scores + self.bias.astype(float)[:, away + LONGEST - 1]
        unseen = (np.abs(away) > window) & (window > 0) | (away > 0) & causal
        unseen[:, len(away) - hidden :] = True
        self.far = max(self.far, np.abs(scores).max())
        scores[:, unseen] = -np.inf
        e = np.exp(scores - scores.max(-1, keepdims=True))
        weights: Array = e / e.sum(-1, keepdims=True)
        return weights

    def attend(
        self,
        kernels: Kernels,
        *,
        window: int = 0,
        causal: bool = False,
        biased: bool = False,
        hidden: list[int] | None = None,
        observations: Observations | None = None,
        **others: int,
    ) -> torch.Tensor:
        """Attend with the kernels: the output (T, H, D)."""
        q, k, v = self.projected
        output = torch.full(q.shape, 7.0, dtype=q.dtype)
        bias = (self.bias * self.size**0.5).astype(np.float32)
        unattended = np.array(hidden or [0] * len(self.lengths), np.int64)
        others |= {"window": window, "causal": causal, "kv_heads": self.kv_heads}
        others |= {"unattended": unattended.ctypes.data} if hidden else {}
        others |= {"bias": bias.ctypes.data, "bias_length": LONGEST} if biased else {}
        attend(kernels, q, k, v, self.starts, output, observations, **others)
        return output

    def error(self, output: torch.Tensor, text: int, weights: Array) -> float:
        """By how much an output is off at most, in units of what precisions round it and scores by."""
        rows = output[self.starts[text] : self.starts[text + 1]].double().numpy().swapaxes(0, 1)
        off = np.abs(rows - weights @ self.of(text)[2]).max(initial=0)
        return float(off / max(torch.finfo(output.dtype).eps, 1e-6, 2**-23 * self.far))


HIDING: list[dict[str, Any]] = [
    {},
    {"causal": True},
    {"window": 64},
    {"window": 300},
    {"window": 700},
    {"window": 509, "causal": True},
    {"biased": True},
    {"biased": True, "window": 600},
]


@pytest.mark.in_turns
@pytest.mark.parametrize("length", EDGES)
def test_outputs_are_those_of_the_formula(kernels: Kernels, name: str, length: int) -> None:
    """Around the boundaries of parts, each alone: within a few roundings of float64."""
    texts = Texts(name, [length])
    assert texts.error(texts.attend(kernels), 0, texts.weights(0)) < 3


@pytest.mark.in_turns
@pytest.mark.parametrize("hiding", HIDING, ids=str)
def test_what_is_hidden_and_added_is_what_the_definition_says(
    kernels: Kernels, name: str, hiding: dict[str, Any]
) -> None:
    """Of long and short texts, whose keys serve two queries each; some parts a row does not see."""
    texts = Texts(name, [3, 600, 128, 1100], sharp=2)
    output = texts.attend(kernels, **hiding)
    for text in range(len(texts.lengths)):
        assert texts.error(output, text, texts.weights(text, **hiding)) < 3


@pytest.mark.parametrize("hiding", [{}, {"causal": True}, {"window": 300}], ids=str)
def test_parts_that_no_row_sees_take_nothing_off_the_steps(
    kernels: Kernels, name: str, hiding: dict[str, Any]
) -> None:
    """Of those that tell that a pass goes on, all keys are 9, and half of them are half as many."""
    texts, steps, threads = Texts(name, [1100], heads=8), c_int64(0), torch.get_num_threads()
    try:
        torch.set_num_threads(1)  # each counts for itself
        texts.attend(kernels, steps=addressof(steps), **hiding)
    finally:
        torch.set_num_threads(threads)
    assert steps.value >= 3


@pytest.mark.in_turns
@pytest.mark.parametrize("hidden", [1, 500, 1099])
def test_hidden_tokens_are_seen_by_none(kernels: Kernels, name: str, hidden: int) -> None:
    """The last keys weigh 0, be they a part of a part or several parts."""
    texts = Texts(name, [40, 1100])
    output = texts.attend(kernels, hidden=[7, hidden])
    for text, some in enumerate([7, hidden]):
        assert texts.error(output, text, texts.weights(text, hidden=some)) < 3


def test_a_text_has_the_same_bits_alone_and_in_a_batch(kernels: Kernels, name: str) -> None:
    """However many threads share its heads, and the rows of a head."""
    alone = Texts(name, [1100], heads=3, kv_heads=3)
    output = alone.attend(kernels)
    beside = Texts(name, [700, 1100], heads=3, kv_heads=3, seed=1)
    beside.wide[700:] = alone.wide
    assert torch.equal(beside.attend(kernels)[700:], output)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            assert torch.equal(alone.attend(kernels), output)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.in_turns
@pytest.mark.parametrize("rising", [True, False])
@pytest.mark.parametrize("far", [1.0, 1e2, 1e4])
def test_a_part_may_outweigh_those_before(kernels: Kernels, name: str, rising: bool, far: float) -> None:
    """Scores that grow or fall from key to key: what was summed is scaled down, or hardly anything added."""
    texts = Texts(name, [1100], heads=1)
    slope = torch.linspace(0, far, 1100)
    q, k, _ = texts.projected
    q[..., 0], k[:, 0, 0] = 4, slope if rising else -slope
    assert texts.error(texts.attend(kernels), 0, texts.weights(0)) < 3


@pytest.mark.in_turns
@pytest.mark.parametrize("hiding", HIDING, ids=str)
def test_statistics_are_those_of_their_definitions(
    kernels: Kernels, name: str, hiding: dict[str, Any]
) -> None:
    """Of one head of two, beside unchanged outputs: within 2e-5 of the definitions over float64 maps."""
    texts = Texts(name, [20, 1100], sharp=1 if hiding.get("causal") else 6)
    observations, made = Observations(2, 2), []
    for text, count in enumerate(texts.lengths):
        special = np.zeros(count, np.float32)
        special[0] = special[-1] = special[count // 2] = 1
        out = np.zeros((1, len(STATISTICS)), np.float32)
        observations.statistics(text, out[None], Slots([1], 2), special)
        made.append((out, special))
    output = texts.attend(kernels, observations=observations, **hiding)
    for text, (out, special) in enumerate(made):
        weights = texts.weights(text, **hiding)
        assert texts.error(output, text, weights) < 3
        whole: Any = weights[None, [1]]
        expected, ties = measures.summary(whole, (special > 0).tolist()), near_ties(whole)[0]
        for j, statistic in enumerate(STATISTICS):
            value = expected[statistic][0]
            open_ = ties if statistic.startswith("argmax") else 0
            assert (np.abs(out[:, j] - value) <= open_ + 2e-5 * np.maximum(1, value)).all(), statistic


def test_the_largest_weight_may_be_in_any_part(kernels: Kernels, name: str) -> None:
    """Queries that look most at themselves or a neighbour are counted, whichever part that is in."""
    texts = Texts(name, [1100], heads=3, kv_heads=3)
    texts.wide.zero_()
    q, k, _ = texts.projected
    signs = torch.randint(0, 2, (1100, texts.size), generator=torch.Generator().manual_seed(3)) * 2.0 - 1
    k[:] = signs[:, None]
    for head, offset in enumerate((0, -1, 1)):
        q[:, head] = 4 * signs.roll(-offset, 0)
    observations, out = Observations(1, 3), np.zeros((3, len(STATISTICS)), np.float32)
    observations.statistics(0, out[None], Slots([0, 1, 2], 3), np.zeros(1100, np.float32))
    texts.attend(kernels, observations=observations)
    whole: Any = texts.weights(0)[None]
    expected = measures.summary(whole, [False] * 1100)
    for statistic in ("argmax_self", "argmax_previous", "argmax_next"):
        found = out[:, STATISTICS.index(statistic)]
        assert np.abs(found - expected[statistic][0]).max() < 1e-6, statistic
        assert found.max() > 0.99


@pytest.mark.in_turns
@pytest.mark.parametrize("with_statistics", [False, True])
@pytest.mark.parametrize("hiding", HIDING, ids=str)
def test_cells_of_thumbnails_have_the_largest_weights(
    kernels: Kernels, name: str, hiding: dict[str, Any], with_statistics: bool
) -> None:
    """Of keys in several parts, or in none; within 1e-5 of the definition, beside unchanged outputs."""
    texts = Texts(name, [20, 1100], sharp=4)
    edges = np.array([0, 3, 470, 505, 530, 1024, 1090])  # of rows and columns; the last are in no cell
    observations, made = Observations(2, 2), []
    for text, count in enumerate(texts.lengths):
        bounds = np.minimum(edges, count)
        spans = np.stack([np.arange(6), bounds[:-1], bounds[1:]], 1).astype(np.int32)
        cells, out = np.repeat(np.arange(6), np.diff(bounds)), np.full((1, 6, 6), -np.inf, np.float32)
        observations.thumbnails(
            text, out[None], Slots([1], 2), Slots(np.arange(len(cells)), count, cells), spans
        )
        statistics = np.zeros((1, len(STATISTICS)), np.float32)
        if with_statistics:
            observations.statistics(text, statistics[None], Slots([1], 2), np.zeros(count, np.float32))
        made.append((bounds, out, statistics))
    output = texts.attend(kernels, observations=observations, **hiding)
    for text, (bounds, out, _) in enumerate(made):
        weights = texts.weights(text, **hiding)
        assert texts.error(output, text, weights) < 3
        for row, column in np.ndindex(6, 6):
            rows, columns = slice(*bounds[row : row + 2]), slice(*bounds[column : column + 2])
            if rows.start < rows.stop:
                largest = weights[1, rows, columns].max(initial=0)
                assert abs(out[0, row, column] - largest) <= 1e-5 * max(1.0, texts.far / 10), (row, column)


def test_a_row_that_is_no_number_spoils_its_cells(kernels: Kernels, name: str) -> None:
    """All of its row of cells, and no others, though its keys are seen in parts."""
    texts = Texts(name, [1100], kv_heads=2)
    texts.projected[0][700, 1, 3] = torch.nan
    spans = np.array([[0, 0, 600], [1, 600, 1100]], np.int32)
    observations, out = Observations(1, 2), np.full((2, 11, 2), -np.inf, np.float32)
    rows = Slots(np.arange(1100), 1100, np.arange(1100) // 100)
    observations.thumbnails(0, out[None], Slots([0, 1], 2), rows, spans)
    texts.attend(kernels, observations=observations)
    assert np.argwhere(np.isnan(out)).tolist() == [[1, 7, 0], [1, 7, 1]]


def test_maps_and_statistics_of_other_heads_are_observed_together(kernels: Kernels, name: str) -> None:
    """A head with a map is attended whole, and its outputs and statistics are those of one that is not."""
    texts = Texts(name, [1100], heads=2, kv_heads=2)
    texts.wide[:, 1::2] = texts.wide[:, ::2]
    observations, out = Observations(1, 2), np.zeros((2, len(STATISTICS)), np.float32)
    rows, maps = Slots([0, 480, 1099], 1100), np.zeros((1, 3, 1100), np.float32)
    observations.statistics(0, out[None], Slots([0, 1], 2), np.zeros(1100, np.float32))
    observations.weights(0, maps[None], Slots([1], 2), rows, None)
    output = texts.attend(kernels, observations=observations)
    weights = texts.weights(0)
    assert texts.error(output, 0, weights) < 3
    assert np.abs(maps[0] - weights[1, [0, 480, 1099]]).max() < 1e-5
    assert np.abs(out[0] - out[1]).max() < 2e-5 * max(1.0, float(out.max()))


@pytest.mark.parametrize("where", ["q", "k", "v"])
def test_what_is_not_finite_stays_where_it_is(kernels: Kernels, name: str, where: str) -> None:
    """A query that is no number spoils its row, a key or a value all rows of its head; no others."""
    texts = Texts(name, [20, 1100], kv_heads=2)
    dict(zip("qkv", texts.projected, strict=True))[where][20 + 700, 1, 3] = torch.nan
    output = texts.attend(kernels)
    spoiled = (~output.isfinite()).any(-1).nonzero().tolist()
    assert spoiled == [[20 + row, 1] for row in ([700] if where == "q" else range(1100))]


@pytest.mark.in_turns
@pytest.mark.parametrize("kinds", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("window", [0, 600])
def test_contents_are_compared_with_distances_too(
    kernels: Kernels, name: str, kinds: tuple[bool, bool], window: int
) -> None:
    """Scale · (q·k + q·K[r] + k·Q[r]), of all parts."""
    if kernels.instructions == "amx":
        pytest.skip("AMX attends without distances")
    texts = Texts(name, [1100], heads=2, kv_heads=2)
    disentangled = Disentangled(300, 64)
    generator = torch.Generator().manual_seed(1)
    both = torch.randn(2, 2, 2 * disentangled.span, texts.size, generator=generator).to(DTYPES[name])
    keys, queries = (one if kind else None for one, kind in zip(both, kinds, strict=True))
    rows = distance_rows(distances(LONGEST, torch.device("cpu")), disentangled).to(torch.int32)
    vectors = Vectors(keys, queries, partial(lay_out, columns=kernels.products.columns))
    described = vectors.of(rows)
    output = texts.attend(kernels, window=window, distances=addressof(described))
    position = np.arange(1100)
    places = rows.numpy()[position[None] - position[:, None] + LONGEST - 1]
    added: Any = 0
    q, k, _ = texts.of(0)
    if keys is not None:
        added = added + np.take_along_axis(
            q @ keys.double().numpy().swapaxes(1, 2), places[None].repeat(2, 0), 2
        )
    if queries is not None:
        by_key = np.take_along_axis(
            k @ queries.double().numpy().swapaxes(1, 2), places.T[None].repeat(2, 0), 2
        )
        added = added + by_key.swapaxes(1, 2)
    assert texts.error(output, 0, texts.weights(0, window=window, added=added)) < 3
