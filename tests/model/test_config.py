"""One frozen description of an encoder."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from model.encoder.config import EncoderConfig
from model.encoder.parts import Convolution, Disentangled, LayerConfig, Mixture, RelativeBias, Rotary
from model.errors import CheckpointError

SIZES: dict[str, Any] = {
    "vocab_size": 10,
    "hidden_size": 12,
    "num_layers": 2,
    "num_heads": 3,
    "intermediate_size": 20,
}
OWNED = (
    "shared must name, for each layer, a layer with weights of its own: the layer itself or an earlier one"
)


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
        (
            {"hidden_size": 9, "positions": "sinusoidal"},
            "sinusoidal positions need an even hidden_size, not 9",
        ),
        (
            {"embedding_size": 7, "positions": "sinusoidal"},
            "sinusoidal positions need an even hidden_size, not 7",
        ),
        ({"norm_eps": float("nan")}, "norm_eps is nan; it must be a number from 0 to 1"),
        ({"norm_eps": -1e-5}, "norm_eps is -1e-05; it must be a number from 0 to 1"),
        ({"position_offset": -1}, "position_offset is -1; it must be at least 0"),
        ({"embedding_size": -1}, "embedding_size is -1; it must be at least 0"),
        ({"head_dim": -1}, "head_dim is -1; it must be at least 0"),
        ({"num_kv_heads": -1}, "num_kv_heads is -1; it must be at least 0"),
        ({"longest": -1}, "longest is -1; it must be at least 0"),
        ({"num_kv_heads": 2}, "num_heads 3 is not a multiple of num_kv_heads 2"),
        (
            {"max_positions": 2, "position_offset": 2},
            "max_positions is 2, but the first position is 2: no position is left for a token",
        ),
        ({"relative_bias": RelativeBias(), "alibi": True}, "only one of them can be set"),
        *(
            ({"disentangled": Disentangled(), **change}, "compares positions with plain queries and keys")
            for change in (
                {"alibi": True},
                {"similarity": "cosine"},
                {"qk_norm": "rms"},
                {"num_kv_heads": 1},
                {"layers": (LayerConfig(rotary=Rotary.of(4)),)},
            )
        ),
        (
            {"layers": (LayerConfig(convolution=Convolution(3, 5)),)},
            "is not a multiple of the 5 groups of a convolution",
        ),
        ({"layers": ()}, "layers has 0 entries; num_layers is 2"),
        ({"layers": (LayerConfig(),) * 3}, "layers has 3 entries; num_layers is 2"),
        (
            {"layers": (LayerConfig(), LayerConfig(rotary=Rotary.of(6)))},
            "rotary positions rotate 6 components, but a head has only 4",
        ),
        *(({"shared": shared}, OWNED) for shared in ((0,), (0, 0, 0), (1, 1), (0, 2), (0, -1), (1, 0))),
        (
            {"shared": (0, 0), "layers": (LayerConfig(1), LayerConfig(2))},
            "layers that share their weights must have equal entries in layers, too",
        ),
    ],
)
def test_an_impossible_encoder_is_refused_in_one_sentence(change: dict[str, Any], sentence: str) -> None:
    """What cannot be built is refused at once, and the sentence names the number that is wrong."""
    with pytest.raises(CheckpointError) as refusal:
        EncoderConfig(**{**SIZES, **change})
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: RelativeBias(3), "relative_buckets is 3; it must be even and at least 4"),
        (lambda: RelativeBias(2), "relative_buckets is 2; it must be even and at least 4"),
        (lambda: RelativeBias(32, 8), "relative_max_distance is 8; with 32 buckets it must be more than 8"),
        (lambda: Mixture(0, 1), "experts is 0; it must be at least 1"),
        (lambda: Mixture(2, 0), "chosen is 0; it must be at least 1"),
        (lambda: Mixture(2, 3), "each token uses 3 experts, but there are only 2"),
        (lambda: LayerConfig(window=-1), "window is -1; it must be at least 0"),
        (lambda: Rotary.of(3), "rotary positions need an even number of components, not 3"),
        (lambda: Rotary.of(0), "rotary positions need an even number of components, not 0"),
    ],
)
def test_an_impossible_part_of_a_config_is_refused_in_one_sentence(
    make: Callable[[], object], sentence: str
) -> None:
    """A part of a config is checked where it is made, before any encoder has it."""
    with pytest.raises(CheckpointError) as refusal:
        make()
    assert sentence in str(refusal.value)


def test_derived_fields_follow_from_the_others() -> None:
    """D = C / H, and only learned positions limit the length."""
    config = EncoderConfig(**SIZES, max_positions=77)
    assert config.head_size == 4
    assert (config.kv_heads, config.qkv_rows) == (3, (12, 12, 12))
    assert (config.embedding_width, config.score_scale) == (12, 0.5)
    assert config.position_limit == 77
    assert EncoderConfig(**SIZES, positions="none", max_positions=77).position_limit is None
    assert EncoderConfig(**SIZES, max_positions=77, position_offset=2).position_limit == 75


def test_derived_fields_can_be_set_instead() -> None:
    """Heads of another size than C / H, fewer keys and values, narrower embeddings, another scale."""
    config = EncoderConfig(**SIZES, head_dim=6, num_kv_heads=1, embedding_size=8, scale=1.0)
    assert (config.head_size, config.kv_heads, config.qkv_rows) == (6, 1, (18, 6, 6))
    assert (config.embedding_width, config.score_scale) == (8, 1.0)
    assert EncoderConfig(**SIZES, positions="none", longest=9).position_limit == 9


def test_layers_have_one_description_for_all_or_one_for_each() -> None:
    """With one for each, a layer has that of its number."""
    one, other = LayerConfig(window=1), LayerConfig(window=2)
    assert [EncoderConfig(**SIZES, layers=(one,)).layer(i) for i in range(2)] == [one, one]
    assert [EncoderConfig(**SIZES, layers=(one, other)).layer(i) for i in range(2)] == [one, other]


@pytest.mark.parametrize(
    ("change", "biased", "plain"),
    [
        ({}, False, True),
        ({"scale": 2.0}, False, True),
        ({"alibi": True}, True, False),
        ({"relative_bias": RelativeBias()}, True, False),
        ({"similarity": "cosine"}, False, False),
        ({"causal": True}, False, False),
        ({"disentangled": Disentangled()}, False, False),
        ({"layers": (LayerConfig(window=3),)}, False, False),
        ({"layers": (LayerConfig(rotary=Rotary.of(4)),)}, False, True),
    ],
)
def test_plain_attention_is_that_without_masks_and_biases(
    change: dict[str, Any], *, biased: bool, plain: bool
) -> None:
    """Faster ways to attend ask for this, so whatever hides a key or moves a score counts."""
    config = EncoderConfig(**SIZES, **change)
    assert (config.biased, config.is_plain(config.layer(0))) == (biased, plain)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Disentangled(0), "max_distance is 0; it must be at least 1"),
        (lambda: Disentangled(10, 5), "buckets is 5; it must be even"),
        (lambda: Disentangled(10, 18), "max_distance is 10; with 18 buckets it must be more than 10"),
        (
            lambda: Disentangled(10, content_to_position=False, position_to_content=False),
            "needs content_to_position or position_to_content: set",
        ),
        (lambda: Convolution(4), "kernel_size is 4; it must be odd"),
        (lambda: Convolution(3, 0), "groups is 0; it must be at least 1"),
    ],
)
def test_impossible_parts_are_refused_in_one_sentence(make: Callable[[], object], sentence: str) -> None:
    """Scores with positions and convolutions check their own fields."""
    with pytest.raises(CheckpointError) as refusal:
        make()
    assert sentence in str(refusal.value)


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
