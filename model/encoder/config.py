"""One frozen config of an encoder: derived fields are computed once, impossible configs raise an error."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from model.errors import CheckpointError

Positions = Literal["sinusoidal", "learned", "rotary", "relative_bias", "none"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
Similarity = Literal["dot_product", "cosine", "manhattan", "mahalanobis"]
Visibility = Literal["bidirectional", "causal", "windowed"]

_LEAST = {
    "vocab_size": 1,
    "hidden_size": 1,
    "num_layers": 1,
    "num_heads": 1,
    "intermediate_size": 1,
    "max_positions": 1,
    "segments": 0,
    "window": 0,
}


@dataclass(frozen=True)
class EncoderConfig:
    """The choices that define an encoder.

    `norm`: layer norm before ("pre", with one more after the last block) or after ("post") each
    sub-layer. `window`: with `visibility="windowed"`, a query attends to keys at most `window` positions
    away on either side. `gated`: the feed-forward's first product is split into a gate and a value
    (Shazeer 2020, GLU variants). `scale_embeddings` multiplies token embeddings by the square root of
    `hidden_size` (Vaswani et al. 2017, §3.4).
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    positions: Positions = "learned"
    max_positions: int = 512
    segments: int = 0
    norm: Literal["pre", "post"] = "post"
    norm_eps: float = 1e-12
    embedding_norm: bool = True
    scale_embeddings: bool = False
    activation: Activation = "gelu"
    gated: bool = False
    similarity: Similarity = "dot_product"
    visibility: Visibility = "bidirectional"
    window: int = 0
    rotary_base: float = 10_000.0
    relative_buckets: int = 32
    relative_max_distance: int = 128

    def __post_init__(self) -> None:
        """Check the fields; raises CheckpointError for an encoder that cannot be built."""
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise CheckpointError(f"{name} is {value!r}; it must be a whole number.")
            if value < least:
                raise CheckpointError(f"{name} is {value}; it must be at least {least}.")
        if not isinstance(self.norm_eps, float | int) or not 0 <= self.norm_eps <= 1:  # NaN is neither
            raise CheckpointError(f"norm_eps is {self.norm_eps!r}; it must be a number from 0 to 1.")
        if self.hidden_size % self.num_heads:
            raise CheckpointError(
                f"hidden_size {self.hidden_size} is not a multiple of num_heads {self.num_heads}."
            )
        if self.positions == "rotary" and self.head_size % 2:
            raise CheckpointError(f"rotary positions need an even head size, not {self.head_size}.")
        if self.positions == "sinusoidal" and self.hidden_size % 2:
            raise CheckpointError(f"sinusoidal positions need an even hidden_size, not {self.hidden_size}.")
        if (self.visibility == "windowed") != (self.window > 0):
            raise CheckpointError('visibility "windowed" and a window of at least 1 go together.')
        if self.positions == "relative_bias":
            self._check_relative_buckets()

    def _check_relative_buckets(self) -> None:
        """Check the buckets: each direction has half of them, and half of those are for exact distances."""
        if self.relative_buckets < 4 or self.relative_buckets % 2:
            raise CheckpointError(
                f"relative_buckets is {self.relative_buckets}; it must be even and at least 4."
            )
        if self.relative_max_distance <= self.relative_buckets // 4:
            raise CheckpointError(
                f"relative_max_distance is {self.relative_max_distance}; with {self.relative_buckets} "
                f"buckets it must be more than {self.relative_buckets // 4}."
            )

    @cached_property
    def head_size(self) -> int:
        """D = C / H, the size of a query or key of one head."""
        return self.hidden_size // self.num_heads

    @cached_property
    def plain_attention(self) -> bool:
        """Whether every token attends to every other by the dot product, without masks or biases."""
        unbiased = self.similarity == "dot_product" and self.positions != "relative_bias"
        return unbiased and self.visibility == "bidirectional"

    @cached_property
    def position_limit(self) -> int | None:
        """The longest sequence, in tokens, that the positions allow; None if there is no limit."""
        return self.max_positions if self.positions == "learned" else None

    @classmethod
    def paper(
        cls,
        *,
        vocab_size: int,
        hidden_size: int = 512,
        num_layers: int = 6,
        num_heads: int = 8,
        intermediate_size: int = 2048,
        norm: Literal["pre", "post"] = "post",
        activation: Activation = "relu",
    ) -> "EncoderConfig":
        """Return the config of Vaswani et al. 2017, with the sizes of their base model by default."""
        return cls(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            num_heads=num_heads,
            intermediate_size=intermediate_size,
            positions="sinusoidal",
            norm=norm,
            norm_eps=1e-5,
            embedding_norm=False,
            scale_embeddings=True,
            activation=activation,
        )
