"""The native steps of other blocks than BERT's: what attention hides and adds, rotation, gates, norms."""

from ctypes import addressof, byref
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from model.contract import STATISTICS
from model.encoder.attending.disentangled import distance_rows
from model.encoder.linear import activate
from model.encoder.parts import Activation, Disentangled, Rotary
from model.encoder.positions import by_query_and_key, distances, rotary_angles, rotate
from model.pytorch.kernels.library import ACTIVATIONS, Kernels, check
from model.pytorch.kernels.observations import Observations, Slots
from model.pytorch.kernels.panels import lay_out
from model.pytorch.kernels.positions import Vectors
from model.pytorch.kernels.structures import Distances, Gate, Norm, Rotation
from tests.model.test_native import DTYPES, LENGTHS, all_kernels
from tests.references import measures
from tests.references.comparing import distance, near_ties, relative_distance
from tests.support.kernel import attend, kernels_of, needs_kernels

LONGEST = 300


@pytest.fixture(params=list(DTYPES))
def name(request: pytest.FixtureRequest) -> str:
    """Of the kernels that a test is run with; see `kernels_of`."""
    return str(request.param)


@pytest.fixture
def kernels(name: str) -> Kernels:
    return kernels_of(name)


@pytest.fixture
def dtype(name: str) -> torch.dtype:
    return DTYPES[name]


def rounding(dtype: torch.dtype) -> float:
    """What the result of a step in this precision may be off by, for each number of about 1."""
    return max(1e-6, torch.finfo(dtype).eps)


def masked(scores: Tensor, window: int, causal: bool) -> Tensor:
    """Hide keys from scores (H, N, N) by the definition."""
    position = torch.arange(scores.shape[-1])
    away = position[None, :] - position[:, None]
    hidden = (away.abs() > window) if window else torch.zeros_like(away, dtype=torch.bool)
    return scores.masked_fill(hidden | (away > 0) if causal else hidden, -torch.inf)


@needs_kernels
@all_kernels
@settings(max_examples=40)
@given(
    lengths=LENGTHS,
    groups=st.sampled_from([(1, 1), (4, 1), (4, 2), (3, 3)]),
    window=st.sampled_from([0, 0, 1, 2, 7, 8, 20, 64, 400]),
    causal=st.booleans(),
    biased=st.booleans(),
    scale=st.sampled_from([1.0, 0.25]),
    seed=st.integers(0, 99),
)
def test_what_is_hidden_and_added_is_what_the_definition_says(
    name: str,
    lengths: list[int],
    groups: tuple[int, int],
    window: int,
    causal: bool,
    biased: bool,
    scale: float,
    seed: int,
) -> None:
    """Outputs, maps and statistics with windows, causal order, biases and shared keys; hidden cells are 0."""
    kernels, dtype = kernels_of(name), DTYPES[name]
    (heads, kv_heads), size = groups, kernels.head_step
    generator = torch.Generator().manual_seed(seed)
    tokens = sum(lengths)
    wide = torch.randn(tokens, (heads + 2 * kv_heads) * size + 8, generator=generator).to(dtype)[:, 8:]
    by_head = wide.as_strided((tokens, heads + 2 * kv_heads, size), (wide.stride(0), size, 1), 8)
    q, k, v = torch.split(by_head, [heads, kv_heads, kv_heads], dim=1)
    q.mul_(scale)
    bias = torch.randn(heads, 2 * LONGEST - 1, generator=generator)
    starts = np.array([0, *np.cumsum(lengths)], np.int64)
    observations, maps, statistics = Observations(len(lengths), heads), [], []
    for i, length in enumerate(lengths):
        maps.append(np.full((heads, length, length), -1, np.float32))
        statistics.append(np.zeros((heads, len(STATISTICS)), np.float32))
        special = np.zeros(length, np.float32)
        special[:1] = 1
        every = Slots(list(range(heads)), heads)
        observations.weights(i, maps[i][None], every, None, np.ones(1, np.bool_))
        observations.statistics(i, statistics[i][None], every, special)
    others = {"kv_heads": kv_heads, "window": window, "causal": causal}
    if biased:
        divided = (bias * size**0.5).contiguous()  # the scale of `attend` is 1/√D
        others |= {"bias": divided.data_ptr(), "bias_length": LONGEST}
    for observed in (observations, None):
        output = torch.full((tokens, heads, size), 7.0, dtype=dtype)
        attend(kernels, q, k, v, starts, output, observed, **others)
        for i, length in enumerate(lengths):
            rows = slice(*starts[i : i + 2].tolist())
            qs, ks, vs = (x[rows].transpose(0, 1).double() for x in (q, k, v))
            ks, vs = (x.repeat_interleave(heads // kv_heads, 0) for x in (ks, vs))
            scores = qs @ ks.mT * size**-0.5
            if biased:
                scores = scores + by_query_and_key(bias.double(), length)
            weights = torch.softmax(masked(scores, window, causal), -1)
            assert distance(output[rows].float().transpose(0, 1), weights @ vs) < 10 * rounding(dtype)
            if observed is None or not length:
                continue
            assert distance(maps[i], weights) < 1e-5
            assert (maps[i][weights.numpy() == 0] == 0).all()
            check_statistics(statistics[i], weights)


def check_statistics(found: Any, weights: Tensor) -> None:
    """Compare with the definitions over maps (H, N, N) whose first token is special."""
    whole = weights.numpy()[None]
    expected = measures.summary(whole, [True] + [False] * (whole.shape[-1] - 1))
    for j, statistic in enumerate(STATISTICS):
        value = expected[statistic][0]
        open_ = near_ties(whole)[0] if statistic.startswith("argmax") else 0
        assert (np.abs(found[:, j] - value) <= open_ + 2e-5 * np.maximum(1, value)).all(), statistic


@needs_kernels
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=LENGTHS,
    table=st.sampled_from([(4, 0), (40, 0), (200, 64), (400, 0)]),
    kinds=st.sampled_from([(True, True), (True, False), (False, True)]),
    window=st.sampled_from([0, 0, 7, 20]),
    seed=st.integers(0, 99),
)
def test_contents_are_compared_with_distances_too(
    kernels: Kernels,
    dtype: torch.dtype,
    lengths: list[int],
    table: tuple[int, int],
    kinds: tuple[bool, bool],
    window: int,
    seed: int,
) -> None:
    """Scale · (q·k + q·K[r] + k·Q[r]), with the vectors of near distances, or of buckets of far ones."""
    heads, size = 2, kernels.head_step
    disentangled, generator = Disentangled(*table), torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, sum(lengths), heads, size, generator=generator).to(dtype)
    both = torch.randn(2, heads, 2 * disentangled.span, size, generator=generator).to(dtype)
    keys, queries = (one if kind else None for one, kind in zip(both, kinds, strict=True))
    rows = distance_rows(distances(LONGEST, torch.device("cpu")), disentangled).to(torch.int32)
    if kernels.instructions == "amx":
        pytest.skip("AMX attends without distances")
    vectors = Vectors(keys, queries, partial(lay_out, columns=kernels.products.columns))
    described = vectors.of(rows)
    starts, observations, maps = (
        np.array([0, *np.cumsum(lengths)], np.int64),
        Observations(len(lengths), heads),
        [],
    )
    for i, length in enumerate(lengths):
        maps.append(np.full((heads, length, length), -1, np.float32))
        observations.weights(i, maps[i][None], Slots([0, 1], heads), None, np.ones(1, np.bool_))
    output = torch.full((sum(lengths), heads, size), 7.0, dtype=dtype)
    others = {"window": window, "distances": addressof(described)}
    attend(kernels, q, k, v, starts, output, observations, **others)
    for i, length in enumerate(lengths):
        if not length:
            continue
        some = slice(*starts[i : i + 2].tolist())
        qs, ks, vs = (x[some].transpose(0, 1).double() for x in (q, k, v))
        row = by_query_and_key(rows.long(), length)
        scores = qs @ ks.mT
        if keys is not None:
            scores += torch.einsum("hid,hijd->hij", qs, keys.double()[:, row])
        if queries is not None:
            scores += torch.einsum("hjd,hijd->hij", ks, queries.double()[:, row])
        weights = torch.softmax(masked(scores * size**-0.5, window, causal=False), -1)
        assert distance(maps[i], weights) < 2e-5
        assert distance(output[some].float().transpose(0, 1), weights @ vs) < 10 * rounding(dtype)


@needs_kernels
@pytest.mark.parametrize(
    "wrong", [{"number": 7}, {"length": 2}, {"rows": None}, {"keys": None, "queries": None}]
)
def test_distances_that_do_not_fit_are_refused(
    kernels: Kernels, dtype: torch.dtype, wrong: dict[str, Any]
) -> None:
    """Vectors that are not there, and distances without a row."""
    q, rows = torch.zeros(5, 1, 32, dtype=dtype), torch.arange(8, -1, -1, dtype=torch.int32)
    panels = torch.zeros(64 * 32)
    described = Distances(
        keys=panels.data_ptr(), queries=panels.data_ptr(), rows=rows.data_ptr(), number=9, length=5
    )
    for name, value in wrong.items():
        setattr(described, name, value)
    with pytest.raises(ValueError, match="shapes do not match"):
        attend(kernels, q, q, q, np.array([0, 5]), torch.zeros_like(q), None, distances=addressof(described))


@needs_kernels
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("size", [2, 10, 16])
def test_rotary_positions_turn_as_in_pytorch(
    kernels: Kernels, dtype: torch.dtype, size: int, interleaved: bool
) -> None:
    """All pairs of a head or some; values beside the queries and keys stay as they are."""
    tokens, heads, width = 9, 3, 16
    x = torch.randn(tokens, heads * width + 5, generator=torch.Generator().manual_seed(1)).to(dtype)
    rotary = Rotary.of(size, interleaved=interleaved)
    cos, sin = rotary_angles(torch.arange(tokens) * 50, rotary)
    expected = x.clone()
    turned = rotate(x[:, :-5].float().reshape(tokens, heads, width), cos, sin, interleaved=interleaved)
    expected[:, :-5] = turned.reshape(tokens, -1)
    arguments = Rotation(
        x=x.data_ptr(),
        cos=cos.data_ptr(),
        sin=sin.data_ptr(),
        tokens=tokens,
        stride=x.shape[1],
        heads=heads,
        head_size=width,
        pairs=size // 2,
        interleaved=interleaved,
    )
    check(kernels.rotate(byref(arguments)))
    assert distance(x.float(), expected.float()) <= 4 * rounding(dtype)
    assert torch.equal(x[:, -5:], expected[:, -5:])


@needs_kernels
@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("width", [8, 16, 24])
def test_heads_are_normalised_before_they_turn(
    kernels: Kernels, dtype: torch.dtype, width: int, turns: bool
) -> None:
    """Queries with one gain and keys with another; values beside them stay as they are."""
    tokens, queries, keys = 9, 2, 1
    generator = torch.Generator().manual_seed(5)
    x = (torch.randn(tokens, (queries + keys) * width + 5, generator=generator) * 3).to(dtype)
    gains = torch.randn(2, width, generator=generator)
    cos, sin = rotary_angles(torch.arange(tokens) * 50, Rotary.of(width))
    by_head = x[:, :-5].float().reshape(tokens, queries + keys, width)
    normed = F.rms_norm(by_head, (width,), None, 0.1) * gains[[0] * queries + [1] * keys]
    expected = torch.cat(((rotate(normed, cos, sin) if turns else normed).flatten(1), x[:, -5:]), 1)
    arguments = Rotation(
        x=x.data_ptr(),
        cos=cos.data_ptr(),
        sin=sin.data_ptr(),
        tokens=tokens,
        stride=x.shape[1],
        heads=queries + keys,
        head_size=width,
        pairs=width // 2 if turns else 0,
        query_gain=gains[0].data_ptr(),
        key_gain=gains[1].data_ptr(),
        queries=queries,
        epsilon=0.1,
    )
    check(kernels.rotate(byref(arguments)))
    assert relative_distance(x.float(), expected) <= 8 * rounding(dtype)
    arguments.key_gain = None
    with pytest.raises(ValueError, match="shapes do not match"):
        check(kernels.rotate(byref(arguments)))


@needs_kernels
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("size", [1, 8, 21])
def test_a_gate_multiplies_its_value(
    kernels: Kernels, dtype: torch.dtype, activation: Activation, size: int
) -> None:
    """activation(first half) · second half, for any width."""
    x = (torch.randn(7, 2 * size, generator=torch.Generator().manual_seed(2)) * 3).to(dtype)
    output = torch.full((7 * size + 1,), 7.0, dtype=dtype)
    arguments = Gate(
        x=x.data_ptr(),
        output=output.data_ptr(),
        tokens=7,
        size=size,
        activation=ACTIVATIONS.index(activation),
    )
    check(kernels.gate(byref(arguments)))
    gate, value = x.float().chunk(2, dim=-1)
    wanted = activate(gate, activation) * value
    assert relative_distance(output[:-1].float().view(7, size), wanted) < 10 * rounding(dtype)
    assert output[-1] == 7


@needs_kernels
@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("added", [False, True])
def test_a_norm_of_any_kind_is_that_of_pytorch(
    kernels: Kernels, dtype: torch.dtype, rms: bool, biased: bool, added: bool
) -> None:
    """Layer or RMS norm, with a bias or none, of x or of a sum, which is kept beside the norm."""
    tokens, size = 5, 21
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(2, tokens, size, generator=generator)
    y = y.to(dtype)
    gain, bias = torch.randn(2, size, generator=generator)
    output, total, rounded = torch.empty_like(x), torch.empty_like(x), torch.empty_like(y)
    arguments = Norm(
        x=x.data_ptr(),
        added=y.data_ptr() if added else None,
        gain=gain.data_ptr(),
        bias=bias.data_ptr() if biased else None,
        output=output.data_ptr(),
        rounded=rounded.data_ptr(),
        tokens=tokens,
        size=size,
        epsilon=1e-5,
        sum=total.data_ptr(),
        rms=rms,
    )
    check(kernels.add_norm(byref(arguments)))
    expected = x + y if added else x
    assert distance(total, expected) < 1e-6
    if rms:
        normed = F.rms_norm(expected, (size,), gain, 1e-5) + (bias if biased else 0)
    else:
        normed = F.layer_norm(expected, (size,), gain, bias if biased else None, 1e-5)
    assert distance(output, normed) < 1e-5
    assert torch.equal(rounded, output.to(dtype))


@needs_kernels
@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_what_is_added_may_have_a_norm_of_its_own(
    kernels: Kernels, dtype: torch.dtype, rms: bool, biased: bool
) -> None:
    """Layer or RMS norm, with a bias or none, before the sum, which is kept."""
    tokens, size = 5, 21
    generator = torch.Generator().manual_seed(6)
    x, y = torch.randn(2, tokens, size, generator=generator)
    y = (3 * y + 1).to(dtype)
    gain, bias = torch.randn(2, size, generator=generator)
    total = torch.empty_like(x)
    arguments = Norm(
        x=x.data_ptr(),
        added=y.data_ptr(),
        sum=total.data_ptr(),
        tokens=tokens,
        size=size,
        epsilon=0.1,
        rms=rms,
        added_gain=gain.data_ptr(),
        added_bias=bias.data_ptr() if biased else None,
    )
    check(kernels.add_norm(byref(arguments)))
    if rms:
        normed = F.rms_norm(y.float(), (size,), gain, 0.1) + (bias if biased else 0)
    else:
        normed = F.layer_norm(y.float(), (size,), gain, bias if biased else None, 0.1)
    assert distance(total, x + normed) < 1e-5
    arguments.added = None
    with pytest.raises(ValueError, match="shapes do not match"):
        check(kernels.add_norm(byref(arguments)))


@needs_kernels
@pytest.mark.parametrize("added", [False, True])
def test_without_a_norm_the_sum_itself_is_rounded(kernels: Kernels, dtype: torch.dtype, added: bool) -> None:
    """What a layer without a norm reads."""
    x, y = torch.randn(2, 5, 21, generator=torch.Generator().manual_seed(4))
    y, rounded = y.to(dtype), torch.empty(5, 21, dtype=dtype)
    other = y.data_ptr() if added else None
    norm = Norm(x=x.data_ptr(), added=other, rounded=rounded.data_ptr(), tokens=5, size=21)
    check(kernels.add_norm(byref(norm)))
    assert torch.equal(rounded, (x + y if added else x).to(dtype))


@needs_kernels
@pytest.mark.parametrize(
    "wrong",
    [
        {"kv_heads": 3},
        {"kv_heads": -1},
        {"window": -1},
        {"bias": 1, "bias_length": 4},
    ],
)
def test_attention_that_does_not_fit_is_refused(kernels: Kernels, wrong: dict[str, int]) -> None:
    """Keys that do not serve whole groups, and biases shorter than a sequence."""
    q = torch.zeros(5, 4, 32)
    with pytest.raises(ValueError, match="shapes do not match"):
        attend(kernels, q, q, q, np.array([0, 5]), torch.zeros(5, 4, 32), None, **wrong)
