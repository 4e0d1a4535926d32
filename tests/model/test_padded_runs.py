"""Attention in padded runs, against the plain one of every sequence alone."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.encoder.attending.padded_runs import (
    SHORT,
    STEP,
    PaddedRun,
    attend_in_padded_runs,
    make_padded_runs,
    product_attention,
)
from model.encoder.attention import SelfAttention
from model.encoder.config import EncoderConfig
from model.encoder.packing import Packing
from model.encoder.parts import LayerConfig, RelativeBias

FloatArray = NDArray[np.floating[Any]]
LENGTHS = st.lists(st.integers(1, 140), min_size=1, max_size=20)


def queries_keys_values(
    tokens: int, heads: int, size: int, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    made = [torch.randn(tokens, heads, size, generator=generator) * scale for _ in range(3)]
    return made[0].bfloat16(), made[1].bfloat16(), made[2].bfloat16()


def naive(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None = None
) -> tuple[FloatArray, float]:
    """softmax(QKᵀ / √D) V of one sequence, (N, H, D), in float64 from the same rounded numbers.

    `scale` stands in the place of 1/√D.
    Also returns how far bfloat16 may be from it. A score is rounded twice, in its query and itself, by
    2⁻⁹ of its size, which changes each weight by that factor; weights and outputs are rounded once.
    """
    query, key, value = (x.double().numpy().transpose(1, 0, 2) for x in (q, k, v))
    scale = 1 / np.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.transpose(0, 2, 1) * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    bound = (2 * 2 * 2**-9 * np.abs(scores).max() + 2 * 2**-9) * np.abs(value).max()
    return (weights @ value).transpose(1, 0, 2), float(bound)


@settings(deadline=None, max_examples=40)
@given(
    lengths=LENGTHS,
    heads=st.sampled_from([1, 3, 12]),
    size=st.sampled_from([16, 32, 64]),
    scale=st.sampled_from([None, 0.07, 0.3]),
)
def test_every_sequence_attends_to_itself_alone(
    lengths: list[int], heads: int, size: int, scale: float | None
) -> None:
    """Whatever lies beside it, padding included: within the rounding of bfloat16 of the exact attention."""
    lengths.sort()
    packing = Packing.of(lengths)
    q, k, v = queries_keys_values(packing.tokens, heads, size, scale=2.0)
    got = attend_in_padded_runs(q, k, v, packing.padded_runs, scale)
    assert got.shape == q.shape
    for start, length in zip(packing.starts, lengths, strict=False):
        rows = slice(start, start + length)
        expected, bound = naive(q[rows], k[rows], v[rows], scale)
        assert np.abs(got[rows].double().numpy() - expected).max() <= bound


@pytest.mark.parametrize("tokens", [3, 200])
def test_large_scores_of_neighbours_do_not_leak(tokens: int) -> None:
    """A padded key has no weight, also where every real score is far below zero."""
    packing = Packing.of([tokens, tokens + 1])
    q, k, v = queries_keys_values(packing.tokens, 2, 32, scale=1.0)
    q, k = q * 0 + 8, k * 0 - 8  # every score is 8 · -8 · 32 / √32, about -362
    (run,) = packing.padded_runs if tokens == 3 else packing.padded_runs[:1]
    got = product_attention(q, k, v, run)[:tokens]
    mean = v[:tokens].double().mean(0)
    assert torch.allclose(got.double(), mean.expand_as(got), atol=2**-7)


def test_what_is_not_finite_stays_in_its_sequence() -> None:
    """A neighbour with NaN or infinity changes nothing: no padding of others is made of its tokens."""
    packing = Packing.of([3, 5, 6, 9])
    for bad, (start, length) in enumerate(zip(packing.starts, packing.lengths, strict=False)):
        q, k, v = queries_keys_values(packing.tokens, 2, 16, scale=1.0)
        expected = attend_in_padded_runs(q, k, v, packing.padded_runs)
        for x in (q, k, v):
            x[start : start + length] = torch.nan if bad % 2 else torch.inf
        got = attend_in_padded_runs(q, k, v, packing.padded_runs)
        others = [i for i in range(packing.tokens) if not start <= i < start + length]
        assert torch.equal(got[others], expected[others])
        assert not got[start : start + length].isfinite().any()


@given(lengths=st.lists(st.integers(1, 600), max_size=60))
def test_padded_runs_cover_every_token_once_in_few_shapes(lengths: list[int]) -> None:
    """In order, without a gap; each cell of a token is its own; heights and lengths are few."""
    runs = make_padded_runs(sorted(lengths))
    assert [r.start for r in runs] == [0, *(r.stop for r in runs[:-1])][: len(runs)]
    assert (runs[-1].stop if runs else 0) == sum(lengths)
    for run in runs:
        assert run.length == SHORT or run.length % STEP == 0
        assert run.rows in {1, 2, 3} or any(run.rows in (2**i, 3 * 2 ** (i - 1)) for i in range(2, 12))
        if run.source is None or run.cells is None:
            assert run.rows * run.length == run.stop - run.start
        else:
            assert run.source.shape == (run.rows * run.length,)
            tokens = list(range(run.stop - run.start))
            assert run.source[run.cells].tolist() == tokens


def test_plain_attention_in_bfloat16_runs_in_padded_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else does: not float32, not a very long text, not a window, not a bias."""
    ran: list[float] = []

    def spy(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, some: list[PaddedRun], scale: float
    ) -> torch.Tensor:
        ran.append(scale)
        return attend_in_padded_runs(q, k, v, some, scale)

    monkeypatch.setattr("model.encoder.attention.attend_in_padded_runs", spy)

    def attends(lengths: list[int], dtype: torch.dtype = torch.bfloat16, **options: object) -> bool:
        config = EncoderConfig(
            vocab_size=8,
            hidden_size=32,
            num_layers=1,
            num_heads=2,
            intermediate_size=32,
            positions="none",
            **options,  # type: ignore[arg-type]
        )
        attention = SelfAttention(config).to(dtype)
        ran.clear()
        attention(torch.ones(sum(lengths), 32), Packing.of(lengths))
        assert ran in ([], [options.get("scale", 16**-0.5)])
        return bool(ran)

    assert attends([10, 12])
    assert attends([100])
    assert not attends([10, 12], torch.float32)
    assert not attends([600, 700])
    assert attends([10, 12], scale=1.0)
    assert not attends([10, 12], layers=(LayerConfig(window=2),))
    assert not attends([10, 12], causal=True)
    assert not attends([10, 12], alibi=True)
    assert not attends([10, 12], relative_bias=RelativeBias())
    assert not attends([10, 12], similarity="cosine")
