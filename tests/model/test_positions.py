"""How an encoder knows the order of its tokens."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from model.encoder.config import EncoderConfig, Positions
from model.encoder.encoder import Encoder
from model.encoder.positions import relative_buckets, rotary_angles, rotate, sinusoidal
from tests.references.comparing import distance
from tests.references.encoder import sinusoid, turn
from tests.support.product import encode, observed_maps, random_encoder

VOCABULARY = ("the", "man", "beats", "boy")
KINDS: tuple[Positions, ...] = ("sinusoidal", "learned", "rotary", "relative_bias")


def ids(text: str) -> list[int]:
    return [VOCABULARY.index(word) for word in text.lower().split()]


def small(positions: Positions, **options: Any) -> Encoder:
    sizes = {"vocab_size": 8, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "intermediate_size": 24}
    return random_encoder(EncoderConfig(**{**sizes, "positions": positions, **options}))


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


def test_rotary_positions_turn_pairs_of_components_like_complex_numbers() -> None:
    """Component i and i + D/2 are one complex number, turned by pos · base^(-2i/D)."""
    x = torch.randn(50, 1, 8, generator=torch.Generator().manual_seed(1))
    turned = rotate(x, *rotary_angles(torch.arange(50), 8, 10_000.0))
    assert turned.shape == x.shape
    assert distance(turned[:, 0], turn(x[:, 0].double().numpy(), 10_000.0)) < 1e-6


def test_rotary_scores_depend_on_the_distance_only() -> None:
    """The product of a turned query and a turned key is the same wherever the two stand."""
    generator = torch.Generator().manual_seed(2)
    q, k = torch.randn(2, 1, 1, 16, generator=generator)
    for gap in (0, 1, 5, 90):
        scores = [
            (
                rotate(q, *rotary_angles(torch.tensor([start]), 16, 10_000.0))
                * rotate(k, *rotary_angles(torch.tensor([start + gap]), 16, 10_000.0))
            ).sum()
            for start in (0, 3, 40, 400)
        ]
        assert distance(scores, [scores[0]] * 4) < 1e-4
    near, far = ((q * rotate(k, *rotary_angles(torch.tensor([gap]), 16, 10_000.0))).sum() for gap in (1, 5))
    assert abs(near - far) > 0.1


def test_a_rotary_encoder_scores_by_distance_only() -> None:
    """In a sequence of one repeated token, the log-ratio of two weights of a row is the same in all rows."""
    logs = np.log(observed_maps(small("rotary"), [3] * 12)[0])  # layer 0: (H, N, N)
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
    assert torch.equal(relative_buckets(300, buckets, furthest, torch.device("cpu")), expected)


def test_a_relative_bias_moves_the_scores_by_distance() -> None:
    """With equal tokens the scores are equal, so the weights are the softmax of the learned bias alone."""
    encoder = small("relative_bias", relative_buckets=8, relative_max_distance=20)
    assert encoder.relative_bias is not None
    weights = observed_maps(encoder, [5] * 9)[0]
    table = encoder.relative_bias.double().numpy()  # (buckets, H)
    buckets = relative_buckets(9, 8, 20, torch.device("cpu")).numpy()
    expected = np.exp(table[buckets].transpose(2, 0, 1))
    assert distance(weights, expected / expected.sum(-1, keepdims=True)) < 1e-6


def test_without_positions_the_order_of_the_tokens_is_lost() -> None:
    """ "The man beats the boy" and "The boy beats the man" are the same set of vectors, permuted."""
    encoder = small("none")
    active, passive = encode(encoder, [ids("The man beats the boy"), ids("The boy beats the man")])
    order = [0, 4, 2, 3, 1]  # where each word of the second sentence stands in the first
    assert distance(active[:, order], passive) < 1e-5
    assert distance(active[-1].mean(0), passive[-1].mean(0)) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_with_positions_the_order_of_the_tokens_counts(kind: Positions) -> None:
    """Positions of any kind tell "The man beats the boy" from "The boy beats the man"."""
    active, passive = encode(small(kind), [ids("The man beats the boy"), ids("The boy beats the man")])
    assert distance(active[-1][[0, 4, 2, 3, 1]], passive[-1]) > 0.01
    assert distance(active[-1].mean(0), passive[-1].mean(0)) > 1e-4
