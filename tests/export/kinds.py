"""Encoders of every choice of a config, of which graphs are traced."""

from typing import Any

from model.encoder.parts import (
    Convolution,
    Disentangled,
    LayerConfig,
    RelativeBias,
    Rotary,
    ShortConvolution,
)

SIZES = {"vocab_size": 13, "hidden_size": 24, "num_layers": 2, "num_heads": 4, "intermediate_size": 40}
# Every choice that there is, in as few encoders as it takes: tracing one takes seconds.
KINDS: dict[str, dict[str, Any]] = {
    "bert": {"segments": 2, "max_positions": 40},
    "paper": {
        "positions": "sinusoidal",
        "scale_embeddings": True,
        "embedding_norm": False,
        "norm": "pre",
        "norm_eps": 1e-5,
        "activation": "relu",
        "causal": True,
        "padding_id": 7,
        "position_offset": 8,
        "output_bias": False,
    },
    "rotary": {
        "positions": "none",
        "layers": (LayerConfig(2, Rotary.of(6, 160_000.0)), LayerConfig(0, Rotary.of(4, interleaved=True))),
        "num_kv_heads": 2,
        "qk_norm": "joint",
        "double_residual": True,
        "gated": True,
        "activation": "silu",
        "segments": 1,
        "token_dropout": 7,
    },
    "relative": {
        "positions": "none",
        "relative_bias": RelativeBias(8, 6),
        "norm": "pre",
        "gated": True,
        "activation": "gelu_tanh",
        "shared": (0, 0),
    },
    "per layer": {
        "positions": "none",
        "relative_bias": RelativeBias(8, 6, per_layer=True, table_rows=11),
        "norm": "pre",
        "norm_kind": "rms",
        "qkv_bias": False,
        "inner_bias": False,
        "outer_bias": False,
        "head_dim": 10,
        "scale": 0.7,
        "qk_norm": "rms",
    },
    "alibi": {
        "alibi": True,
        "num_heads": 3,
        "max_positions": 320,
        "padding_id": 1,
        "position_offset": 2,
        "embedding_size": 10,
        "norm": "sandwich",
        "norm_bias": False,
        "qk_norm": "layer",
        "layers": (LayerConfig(3, attention_norm=False), LayerConfig()),
    },
    "cosine": {
        "similarity": "cosine",
        "scale": 3.0,
        "positions": "sinusoidal",
        "alibi": True,
        "num_layers": 1,
    },
    "manhattan": {"similarity": "manhattan", "causal": True, "head_dim": 11, "num_kv_heads": 2},
    "mahalanobis": {
        "similarity": "mahalanobis",
        "layers": (LayerConfig(2), LayerConfig(rotary=Rotary.of(6))),
        "relative_bias": RelativeBias(8, 6),
        "shared": (0, 1),
    },
    "disentangled": {
        "positions": "none",
        "disentangled": Disentangled(9, 6, norm=True),
        "embedding_size": 10,
        "project_first": True,
        "layers": (LayerConfig(convolution=Convolution(3, 2)), LayerConfig(1)),
    },
    "shared projections": {
        "positions": "none",
        "disentangled": Disentangled(9, shared=True, content_to_position=False),
        "causal": True,
    },
    "heads by layer": {
        "positions": "none",
        "layers": (LayerConfig(2, Rotary.of(6), head_dim=10, num_kv_heads=2), LayerConfig(num_kv_heads=1)),
        "value_norm": True,
        "per_layer_size": 5,
        "norm": "sandwich",
        "norm_kind": "rms",
    },
    "convolutions": {
        "positions": "none",
        "layers": (
            LayerConfig(rotary=Rotary.of(6)),
            LayerConfig(short_convolution=ShortConvolution(4, causal=False, bias=True)),
        ),
        "norm": "pre",
        "causal": True,
    },
    "plain": {"positions": "none", "activation": "gelu_tanh", "num_heads": 1, "num_layers": 1},
}
