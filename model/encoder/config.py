"""One frozen config of an encoder: derived fields are computed once, impossible configs raise an error."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from model.encoder.parts import Activation, Adapters, Disentangled, LayerConfig, RelativeBias, check_whole
from model.errors import CheckpointError

Positions = Literal["sinusoidal", "learned", "none"]
AttentionSimilarity = Literal["dot_product", "cosine", "manhattan", "mahalanobis"]

_LEAST = {
    "vocab_size": 1,
    "hidden_size": 1,
    "num_layers": 1,
    "num_heads": 1,
    "intermediate_size": 1,
    "max_positions": 1,
    "position_offset": 0,
    "segments": 0,
    "embedding_size": 0,
    "head_dim": 0,
    "num_kv_heads": 0,
    "longest": 0,
    "per_layer_size": 0,
}


@dataclass(frozen=True)
class EncoderConfig:
    """The choices that define an encoder.

    Embeddings: `position_offset` is the row of the first position. With a `padding_id`, that token has the
    row of its own id, and the positions of later tokens do not count it. `embedding_size` (0: C) is projected
    to C after the norm, or, if `project_first`, before it and without a bias.
    `scale_embeddings` multiplies token embeddings by the square root of their size (Vaswani et al. 2017,
    §3.4). `token_dropout` is the id of a mask token: its embeddings are zeroed, and the others are scaled up
    as dropout does (Lin et al. 2023, `Embeddings.token_weights`).

    Blocks: `norm` normalises before each sub-layer ("pre", with one more norm after the last block), after
    it and its residual ("post"), or before it and its output too ("sandwich"). `double_residual`: the input
    of attention is added to its output, and both are normalised, before the residual is added. `gated`: the
    feed-forward's first product is split into a gate and a value (Shazeer 2020, GLU variants). `shared`
    names, for each layer, the first one with the same weights; without it all have their own. `adapters`
    update the weights for sequences of a task. `per_layer_size` P (0: none): each layer gets P numbers for
    each token from hidden state 0, and gates its output with them (`PerLayerGate`).

    Attention: D is `head_dim` (0: C / H); `num_kv_heads` (0: H) keys and values are shared by groups of
    queries; scores are multiplied by `scale` (None: 1/√D); `qk_norm` normalises each query and key of a head,
    or those of all heads together by one layer norm ("joint"); `value_norm` divides each value by its RMS.
    `relative_bias`, `alibi` (Press et al. 2022, symmetric) or the scores of `disentangled` attention, times
    `scale`, are added to the scores. `layers` has one entry for each layer, or one for all. `longest` is the
    length, in tokens, that the model was made for (0: unknown, or as long as the table of positions).
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    positions: Positions = "learned"
    max_positions: int = 512
    position_offset: int = 0
    padding_id: int | None = None
    segments: int = 0
    embedding_size: int = 0
    project_first: bool = False
    embedding_norm: bool = True
    scale_embeddings: bool = False
    token_dropout: int | None = None
    norm: Literal["pre", "post", "sandwich"] = "post"
    norm_kind: Literal["layer", "rms"] = "layer"
    norm_bias: bool = True
    norm_eps: float = 1e-12
    double_residual: bool = False
    activation: Activation = "gelu"
    gated: bool = False
    qkv_bias: bool = True
    output_bias: bool = True
    inner_bias: bool = True
    outer_bias: bool = True
    head_dim: int = 0
    num_kv_heads: int = 0
    scale: float | None = None
    qk_norm: Literal["layer", "rms", "joint"] | None = None
    value_norm: bool = False
    similarity: AttentionSimilarity = "dot_product"
    causal: bool = False
    relative_bias: RelativeBias | None = None
    alibi: bool = False
    disentangled: Disentangled | None = None
    layers: tuple[LayerConfig, ...] = (LayerConfig(),)
    shared: tuple[int, ...] = ()
    adapters: Adapters | None = None
    longest: int = 0
    per_layer_size: int = 0

    def __post_init__(self) -> None:
        """Check the fields; raises CheckpointError for an encoder that cannot be built."""
        for name, least in _LEAST.items():
            check_whole(name, getattr(self, name), least)
        if not isinstance(self.norm_eps, float | int) or not 0 <= self.norm_eps <= 1:  # also refuses NaN
            raise CheckpointError(f"norm_eps is {self.norm_eps!r}; it must be a number from 0 to 1.")
        if not self.head_dim and self.hidden_size % self.num_heads:
            raise CheckpointError(
                f"hidden_size {self.hidden_size} is not a multiple of num_heads {self.num_heads}."
            )
        if self.num_heads % self.kv_heads:
            raise CheckpointError(
                f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}."
            )
        if self.scale is not None and not 0 < self.scale < math.inf:  # also refuses NaN
            raise CheckpointError(f"scale is {self.scale}; it must be more than 0, and finite.")
        if self.relative_bias is not None and self.alibi:
            raise CheckpointError(
                "relative_bias and alibi both add a bias to the scores; only one of them can be set."
            )
        others = any(one.mixture or one.convolution or one.short_convolution for one in self.layers)
        others = others or self.per_layer_size > 0
        if self.adapters is not None and (self.embedding_size or self.disentangled or others):
            raise CheckpointError(
                "adapters can update only linear layers and embedding tables; an encoder with adapters "
                "cannot have a projection of the embeddings, disentangled attention, experts, convolutions "
                "or embeddings for each layer."
            )
        self._check_positions()
        self._check_layers()

    def _check_positions(self) -> None:
        if self.positions == "sinusoidal" and self.embedding_width % 2:
            raise CheckpointError(
                f"sinusoidal positions need an even hidden_size, not {self.embedding_width}."
            )
        if self.positions == "learned" and self.position_offset >= self.max_positions:
            raise CheckpointError(
                f"max_positions is {self.max_positions}, but the first position is {self.position_offset}: "
                "no position is left for a token."
            )
        if self.positions == "learned" and self.max_positions <= (self.padding_id or 0) < self.vocab_size:
            raise CheckpointError(
                f"padding_id is {self.padding_id}, but max_positions is {self.max_positions}: the padding "
                "token has no position."
            )
        self._check_disentangled()

    def _check_disentangled(self) -> None:
        if self.disentangled is None:
            return
        plain = self.plain_scores and self.qk_norm is None and self.kv_heads == self.num_heads
        if not plain or any(layer.rotary is not None for layer in self.layers):
            raise CheckpointError(
                "disentangled attention compares positions with plain queries and keys: it cannot be "
                "combined with another similarity, norms of queries and keys, a bias by distance, rotary "
                "positions or shared keys."
            )

    def _check_layers(self) -> None:
        if len(self.layers) not in (1, self.num_layers):
            raise CheckpointError(f"layers has {len(self.layers)} entries; num_layers is {self.num_layers}.")
        for layer in self.layers:
            size = layer.head_dim or self.head_size
            if layer.rotary is not None and layer.rotary.size > size:
                raise CheckpointError(
                    f"rotary positions rotate {layer.rotary.size} components, but a head has only {size}."
                )
            if self.num_heads % (layer.num_kv_heads or 1):
                raise CheckpointError(
                    f"num_heads {self.num_heads} is not a multiple of num_kv_heads {layer.num_kv_heads}."
                )
            if layer.convolution is not None and self.hidden_size % layer.convolution.groups:
                raise CheckpointError(
                    f"hidden_size {self.hidden_size} is not a multiple of the {layer.convolution.groups} "
                    "groups of a convolution."
                )
        if not self.attending:
            raise CheckpointError("every layer has a short convolution; at least one layer must attend.")
        owned = all(
            0 <= first <= layer and self.shared[first] == first for layer, first in enumerate(self.shared)
        )
        if self.shared and not (owned and len(self.shared) == self.num_layers):
            raise CheckpointError(
                "shared must name, for each layer, a layer with weights of its own: the layer itself or an "
                "earlier one."
            )
        if any(self.layer(layer) != self.layer(first) for layer, first in enumerate(self.shared)):
            raise CheckpointError("layers that share their weights must have equal entries in layers, too.")

    @cached_property
    def attending(self) -> tuple[int, ...]:
        """The layers that attend, from 0: those without a short convolution."""
        return tuple(i for i in range(self.num_layers) if self.layer(i).short_convolution is None)

    @cached_property
    def head_size(self) -> int:
        """D, the size of a query or key of one head."""
        return self.head_dim or self.hidden_size // self.num_heads

    @cached_property
    def kv_heads(self) -> int:
        """How many keys and values there are for each token."""
        return self.num_kv_heads or self.num_heads

    @cached_property
    def qkv_rows(self) -> tuple[int, int, int]:
        """How many components all queries, all keys and all values of a token have."""
        keys = self.kv_heads * self.head_size
        return self.num_heads * self.head_size, keys, keys

    @cached_property
    def embedding_width(self) -> int:
        """The number of columns of the embedding tables."""
        return self.embedding_size or self.hidden_size

    @cached_property
    def score_scale(self) -> float:
        """The factor of dot products."""
        return self.head_size**-0.5 if self.scale is None else self.scale

    @cached_property
    def plain_scores(self) -> bool:
        """Whether scores are dot products, without a bias."""
        return self.similarity == "dot_product" and not self.biased

    @cached_property
    def biased(self) -> bool:
        """Whether a bias by distance is added to the scores."""
        return self.relative_bias is not None or self.alibi

    @cached_property
    def position_limit(self) -> int | None:
        """The longest sequence, in tokens, that the model reads; None if there is no limit."""
        positions = self.max_positions - self.position_offset if self.positions == "learned" else None
        return positions or self.longest or None

    def is_plain(self, layer: LayerConfig) -> bool:
        """Whether in this layer every token attends to every other by the dot product alone."""
        return self.plain_scores and self.disentangled is None and not self.causal and not layer.window

    @cached_property
    def shared_length(self) -> int | None:
        """The longest sequence of which each token depends only on itself and those before; None: any length.

        Sequences up to this length have the same hidden states, to the bit, where they begin with the same
        tokens. In longer ones a window hides keys, which rounds differently. 0 if tokens depend on more.
        """
        by_token = self.positions == "none" and self.segments <= 1 and self.token_dropout is None
        plain = self.plain_scores and self.disentangled is None
        if not (self.causal and by_token and plain) or any(one.convolution for one in self.layers):
            return 0
        return min((one.window + 1 for one in self.layers if one.window), default=None)

    @cached_property
    def has_own_parts(self) -> bool:
        """Whether the encoder has a part, besides short convolutions, that no native kernels run."""
        own_heads = any(one.head_dim or one.num_kv_heads for one in self.layers)
        return own_heads or self.value_norm or self.per_layer_size > 0

    def within(self, layer: LayerConfig) -> "EncoderConfig":
        """Return the config with the sizes of the heads of a layer."""
        if not (layer.head_dim or layer.num_kv_heads):
            return self
        size, keys = layer.head_dim or self.head_dim, layer.num_kv_heads or self.num_kv_heads
        return replace(self, head_dim=size, num_kv_heads=keys, layers=(layer,))

    def layer(self, number: int) -> LayerConfig:
        """Return the config of a layer, from 0."""
        return self.layers[number if len(self.layers) > 1 else 0]

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
