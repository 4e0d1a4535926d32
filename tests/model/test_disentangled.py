"""Scores between contents and distances: which distance has which vector, and how much is in memory."""

import pytest
import torch

from model.encoder.attending import disentangled
from model.encoder.attending.disentangled import distance_rows
from model.encoder.config import EncoderConfig
from model.encoder.parts import Disentangled
from tests.references.comparing import relative_distance
from tests.references.encoder import distance_row
from tests.support.product import encode, naive, observed_maps, random_encoder

SIZES = [3, 4, 5, 10, 31, 33, 64, 100, 128, 200, 256, 300, 512, 514, 1024, 1680, 2048]
BUCKETS = [0, 2, 4, 6, 16, 32, 100, 128, 256, 512]


@pytest.mark.parametrize("buckets", BUCKETS)
def test_each_distance_has_the_row_that_the_model_was_trained_with(buckets: int) -> None:
    """Up to the last bit: another rounding of a logarithm would be another bucket."""
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    before = torch.arange(-3000, 3001)  # how far a key is before its query
    for size in SIZES:
        if buckets and size - 1 <= buckets // 2:
            continue
        kinds = Disentangled(size, buckets)
        steps = make_log_bucket_position(before, buckets, size).long() if buckets else before
        expected = (steps + kinds.span).clamp(0, 2 * kinds.span - 1)
        assert torch.equal(distance_rows(-before, kinds), expected), size


def test_the_rows_of_a_few_distances() -> None:
    """By hand: eight buckets are four steps exactly, and then three up to the distance before the longest."""
    kinds = Disentangled(33, 8)
    found = distance_rows(torch.tensor([0, -1, 1, -4, 4, -5, -8, -9, -16, -17, -32, -33, 33, 99]), kinds)
    assert found.tolist() == [8, 9, 7, 12, 4, 13, 13, 14, 14, 15, 15, 15, 0, 0]
    assert found.tolist() == [
        distance_row(n, kinds) for n in (0, 1, -1, 4, -4, 5, 8, 9, 16, 17, 32, 33, -33, -99)
    ]


@pytest.mark.parametrize("room", [1, 60, 300, 2000])
def test_attention_is_the_same_in_any_blocks(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole sequences, whole heads or single rows at a time: memory is bounded, and nothing else changes."""
    config = EncoderConfig(
        vocab_size=13,
        hidden_size=24,
        num_layers=2,
        num_heads=4,
        intermediate_size=40,
        disentangled=Disentangled(9, 4),
        causal=True,
    )
    encoder = random_encoder(config)
    monkeypatch.setattr(disentangled, "_NUMBERS_AT_ONCE", room)
    batch = [[4, 0, 12, 7, 7, 1, 9], [9, 1, 7, 7, 12, 0, 4], [3, 1]]
    for found, ids in zip(encode(encoder, batch), batch, strict=True):
        states, maps = naive(encoder)(ids)
        assert relative_distance(found, states) < 2e-5
        assert relative_distance(observed_maps(encoder, ids), maps) < 2e-5
