"""One frozen description of an encoder."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from model.encoder.config import EncoderConfig
from model.errors import CheckpointError

SIZES: dict[str, Any] = {
    "vocab_size": 10,
    "hidden_size": 12,
    "num_layers": 2,
    "num_heads": 3,
    "intermediate_size": 20,
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"vocab_size": 0}, "vocab_size is 0; it must be at least 1"),
        ({"hidden_size": 0}, "hidden_size is 0; it must be at least 1"),
        ({"num_layers": 0}, "num_layers is 0; it must be at least 1"),
        ({"num_heads": -1}, "num_heads is -1; it must be at least 1"),
        ({"intermediate_size": 0}, "intermediate_size is 0; it must be at least 1"),
        ({"max_positions": 0}, "max_positions is 0; it must be at least 1"),
        ({"segments": -1}, "segments is -1; it must be at least 0"),
        ({"hidden_size": "12"}, "hidden_size is '12'; it must be a whole number"),
        ({"num_heads": 5}, "hidden_size 12 is not a multiple of num_heads 5"),
        ({"num_heads": 4, "positions": "rotary"}, "rotary positions need an even head size, not 3"),
        (
            {"hidden_size": 9, "positions": "sinusoidal"},
            "sinusoidal positions need an even hidden_size, not 9",
        ),
        ({"window": 2}, '"windowed" and a window of at least 1 go together'),
        ({"visibility": "windowed"}, '"windowed" and a window of at least 1 go together'),
        ({"positions": "relative_bias", "relative_buckets": 3}, "relative_buckets is 3"),
        ({"positions": "relative_bias", "relative_max_distance": 8}, "relative_max_distance is 8"),
    ],
)
def test_an_impossible_encoder_is_refused_in_one_sentence(change: dict[str, Any], sentence: str) -> None:
    """What cannot be built is refused at once, and the sentence names the number that is wrong."""
    with pytest.raises(CheckpointError) as refusal:
        EncoderConfig(**{**SIZES, **change})
    assert sentence in str(refusal.value)


def test_derived_fields_follow_from_the_others() -> None:
    """D = C / H, and only learned positions limit the length."""
    config = EncoderConfig(**SIZES, max_positions=77)
    assert config.head_size == 4
    assert config.position_limit == 77
    assert EncoderConfig(**SIZES, positions="none", max_positions=77).position_limit is None


def test_a_config_is_frozen() -> None:
    """A description cannot change under the encoder that was built from it."""
    with pytest.raises(FrozenInstanceError):
        EncoderConfig(**SIZES).num_layers = 5  # type: ignore[misc]


def test_the_paper_s_encoder_has_the_paper_s_numbers() -> None:
    """Six layers of eight heads, 512 wide, 2048 inside, sinusoids, ReLU, norm after, embeddings times √C."""
    config = EncoderConfig.paper(vocab_size=37_000)
    assert (config.num_layers, config.num_heads, config.head_size) == (6, 8, 64)
    assert (config.hidden_size, config.intermediate_size) == (512, 2048)
    assert (config.positions, config.activation, config.norm) == ("sinusoidal", "relu", "post")
    assert config.scale_embeddings
    assert not config.embedding_norm
