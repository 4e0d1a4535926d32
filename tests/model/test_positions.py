"""How an encoder knows the order of its tokens."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.encoder.parts import LayerConfig, RelativeBias, Rotary
from model.encoder.positions import (
    alibi,
    alibi_slopes,
    by_query_and_key,
    relative_buckets,
    rotary_angles,
    rotate,
    sinusoidal,
)
from tests.references.comparing import distance
from tests.references.encoder import sinusoid, slopes, turn
from tests.support.product import encode, observed_maps, random_encoder

VOCABULARY = ("the", "man", "beats", "boy")
ROTARY: dict[str, Any] = {"positions": "none", "layers": (LayerConfig(rotary=Rotary.of(8)),)}
KINDS: dict[str, dict[str, Any]] = {
    "sinusoidal": {"positions": "sinusoidal"},
    "learned": {"positions": "learned"},
    "rotary": ROTARY,
    "relative bias": {"positions": "none", "relative_bias": RelativeBias()},
    "alibi": {"positions": "none", "alibi": True},
}


def ids(text: str) -> list[int]:
    return [VOCABULARY.index(word) for word in text.lower().split()]


def small(**options: Any) -> Encoder:
    sizes = {"vocab_size": 8, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "intermediate_size": 24}
    return random_encoder(EncoderConfig(**{**sizes, **options}))


def test_the_first_rows_of_the_paper_are_these_numbers() -> None:
    """With four components, position 0 is [0, 1, 0, 1] and position 1 is sin and cos of 1 and of 0.01."""
    codes = sinusoidal(torch.arange(2), 4)
    assert codes.dtype == torch.float32
    assert codes[0].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert distance(codes[1], [0.841471, 0.540302, 0.0099998, 0.99995]) < 5e-7


def test_the_exponent_counts_pairs_of_components() -> None:
    """The second pair of four turns by 0.01 per position; stepping by two and doubling makes it 0.0001."""
    assert sinusoidal(torch.tensor([1]), 4)[0, 2].item() == pytest.approx(math.sin(0.01), abs=1e-8)


@pytest.mark.parametrize("size", [2, 6, 384, 512])
def test_any_position_has_a_code_seen_or_not(size: int) -> None:
    """Codes are a formula, not a table: position 1,000,000 is as exact as position 3."""
    positions = [0, 3, 511, 512, 70_000, 1_000_000]
    expected = [sinusoid(position, size) for position in positions]
    assert distance(sinusoidal(torch.tensor(positions), size), expected) < 1e-7
    table = torch.tensor(positions).view(2, 3)  # each sequence of a batch may have positions of its own
    assert distance(sinusoidal(table, size), np.reshape(expected, (2, 3, size))) < 1e-7


@pytest.mark.parametrize("shift", [1, 7, 1000])
def test_a_shift_is_one_linear_map_for_all_positions(shift: int) -> None:
    """PE(pos + k) = R_k PE(pos), R_k turning each pair and knowing nothing of pos."""
    size, positions = 32, torch.arange(200)
    turned = np.zeros((size, size))
    for pair in range(size // 2):
        angle = shift / 10_000 ** (2 * pair / size)
        block = slice(2 * pair, 2 * pair + 2)
        turned[block, block] = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
    before, after = sinusoidal(positions, size).numpy(), sinusoidal(positions + shift, size).numpy()
    assert distance(before @ turned.T, after) < 1e-6


@pytest.mark.parametrize("base", [10_000.0, 100.0])
@pytest.mark.parametrize("size", [2, 6, 8])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_positions_turn_pairs_of_components_like_complex_numbers(
    size: int, base: float, *, interleaved: bool
) -> None:
    """Two components are one complex number, turned by pos · base^(-2i/size); those after `size` stay."""
    x = torch.randn(50, 3, 8, generator=torch.Generator().manual_seed(1))
    rotary = Rotary.of(size, base, interleaved=interleaved)
    assert rotary.size == size
    assert rotary.frequencies == pytest.approx([base ** (-2 * i / size) for i in range(size // 2)], rel=1e-6)
    turned = rotate(x, *rotary_angles(torch.arange(50), rotary), interleaved=interleaved)
    assert turned.shape == x.shape
    for head in range(3):
        expected = turn(x[:, head].double().numpy(), rotary.frequencies, interleaved=interleaved)
        assert distance(turned[:, head], expected) < 1e-6
    assert torch.equal(turned[..., size:], x[..., size:])


def test_frequencies_of_rotary_positions_can_be_any() -> None:
    """Also those that no base gives, as of models whose frequencies were stretched for long texts."""
    x = torch.randn(9, 1, 6, generator=torch.Generator().manual_seed(4))
    frequencies = (0.7, 0.0, 0.03)
    turned = rotate(x, *rotary_angles(torch.arange(9), Rotary(frequencies)))
    assert distance(turned[:, 0], turn(x[:, 0].double().numpy(), frequencies)) < 1e-6


def test_rotary_scores_depend_on_the_distance_only() -> None:
    """The product of a turned query and a turned key is the same wherever the two stand."""
    generator = torch.Generator().manual_seed(2)
    q, k = torch.randn(2, 1, 1, 16, generator=generator)
    for gap in (0, 1, 5, 90):
        scores = [
            (
                rotate(q, *rotary_angles(torch.tensor([start]), Rotary.of(16)))
                * rotate(k, *rotary_angles(torch.tensor([start + gap]), Rotary.of(16)))
            ).sum()
            for start in (0, 3, 40, 400)
        ]
        assert distance(scores, [scores[0]] * 4) < 1e-4
    near, far = ((q * rotate(k, *rotary_angles(torch.tensor([gap]), Rotary.of(16)))).sum() for gap in (1, 5))
    assert abs(near - far) > 0.1


def test_a_rotary_encoder_scores_by_distance_only() -> None:
    """In a sequence of one repeated token, the log-ratio of two weights of a row is the same in all rows."""
    logs = np.log(observed_maps(small(**ROTARY), [3] * 12)[0])  # layer 0: (H, N, N)
    for gap in (1, 4):
        ratios = [logs[:, i, i + gap] - logs[:, i, i] for i in range(12 - gap)]
        assert distance(ratios, [ratios[0]] * len(ratios)) < 1e-4
        assert np.abs(ratios[0]).max() > 0.01


@pytest.mark.filterwarnings("default")  # importing T5 is not what is tested here
@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (16, 64), (8, 20), (4, 8)])
def test_relative_buckets_are_those_of_t5(buckets: int, furthest: int) -> None:
    """Every distance has the bucket that the reference implementation of Raffel et al. 2020 gives it."""
    from transformers.models.t5.modeling_t5 import T5Attention

    position = torch.arange(300)
    expected = T5Attention._relative_position_bucket(
        position[None, :] - position[:, None], bidirectional=True, num_buckets=buckets, max_distance=furthest
    )
    distance = position[None, :] - position[:, None]
    assert torch.equal(relative_buckets(distance, buckets, furthest), expected)


def test_a_relative_bias_moves_the_scores_by_distance() -> None:
    """With equal tokens the scores are equal, so the weights are the softmax of the learned bias alone."""
    encoder = small(positions="none", relative_bias=RelativeBias(8, 20))
    assert encoder.relative_bias is not None
    weights = observed_maps(encoder, [5] * 9)[0]
    table = encoder.relative_bias.double().numpy()  # (buckets, H)
    position = torch.arange(9)
    buckets = relative_buckets(position[None, :] - position[:, None], 8, 20).numpy()
    expected = np.exp(table[buckets].transpose(2, 0, 1))
    assert distance(weights, expected / expected.sum(-1, keepdims=True)) < 1e-6


def test_without_positions_the_order_of_the_tokens_is_lost() -> None:
    """ "The man beats the boy" and "The boy beats the man" are the same set of vectors, permuted."""
    encoder = small(positions="none")
    active, passive = encode(encoder, [ids("The man beats the boy"), ids("The boy beats the man")])
    order = [0, 4, 2, 3, 1]  # where each word of the second sentence stands in the first
    assert distance(active[:, order], passive) < 1e-5
    assert distance(active[-1].mean(0), passive[-1].mean(0)) < 1e-5


def test_the_slopes_of_alibi_are_those_of_the_paper() -> None:
    """Eight heads have 1/2, 1/4 … 1/256 (Press et al. 2022, §3); twelve also every second one of 16 heads."""
    eight = [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(8) == eight
    assert alibi_slopes(12) == pytest.approx([*eight, *(2.0**-i for i in (0.5, 1.5, 2.5, 3.5))])
    for heads in (*range(1, 34), 40, 64):
        assert len(alibi_slopes(heads)) == heads
        assert alibi_slopes(heads) == pytest.approx(slopes(heads))


def test_alibi_is_the_same_in_both_directions() -> None:
    """Each key costs its distance times the slope of the head, whether it comes before its query or after."""
    bias = alibi(3, 6, torch.device("cpu"))
    expected = [[-slope * abs(gap) for gap in range(-5, 6)] for slope in slopes(3)]
    assert distance(bias, expected) < 1e-7
    pairs = [[[-slope * abs(i - j) for j in range(6)] for i in range(6)] for slope in slopes(3)]
    assert distance(by_query_and_key(bias, 6), pairs) < 1e-7


def test_alibi_moves_the_scores_by_distance() -> None:
    """With equal tokens the weights are the softmax of the bias alone, in every layer."""
    maps = observed_maps(small(positions="none", alibi=True), [5] * 9)
    position = np.arange(9)
    expected = np.exp(-np.array(slopes(2))[:, None, None] * abs(position[:, None] - position))
    assert distance(maps, [expected / expected.sum(-1, keepdims=True)] * 2) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_with_positions_the_order_of_the_tokens_counts(kind: str) -> None:
    """Positions of any kind tell "The man beats the boy" from "The boy beats the man"."""
    active, passive = encode(
        small(**KINDS[kind]), [ids("The man beats the boy"), ids("The boy beats the man")]
    )
    assert distance(active[-1][[0, 4, 2, 3, 1]], passive[-1]) > 0.01
    assert distance(active[-1].mean(0), passive[-1].mean(0)) > 1e-4
