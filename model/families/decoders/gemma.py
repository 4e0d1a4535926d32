"""Gemma (Gemma Team 2024) and Gemma 3 (2025): norms multiply by 1 + weight, and embeddings are scaled.

Gemma 3 has norms before and after each sub-layer and on each query and key. Five in six layers have a window;
the others have another rotary base.
"""

from collections.abc import Mapping
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import LayerConfig
from model.families.decoders import decoder
from model.families.decoders.decoder import FULL, SLIDING
from model.families.reading.options import activation
from model.families.reading.rotary import positive
from model.fields import switch, whole

_BASES = {FULL: ("rope_theta", 1_000_000.0), SLIDING: ("rope_local_base_freq", 10_000.0)}


def read_gemma(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a Gemma `config.json`; raises CheckpointError for options that are not supported."""
    given = activation(config, "hidden_act", "gelu_pytorch_tanh")
    return _read(config, activation="gelu_tanh" if given == "gelu" else given)  # as transformers reads it


def read_gemma3(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a `config.json` of Gemma 3 for texts; raises CheckpointError for what is not supported."""
    size = decoder.head_size(config, default=256)
    return _read(
        config,
        activation=activation(config, "hidden_activation", "gelu_pytorch_tanh"),
        norm="sandwich",
        qk_norm="rms",
        scale=positive({"query_pre_attn_scalar": 256, **config}, "query_pre_attn_scalar") ** -0.5,
        layers=_layers(config, size),
        longest=whole(config, "max_position_embeddings", default=131_072),
    )


def _read(config: Mapping[str, Any], **others: Any) -> EncoderConfig:
    bias = switch(config, "attention_bias", default=False)
    fields = {"scale_embeddings": True, "qkv_bias": bias, "output_bias": bias, **others}
    return decoder.read_decoder(config, decoder.head_size(config, default=256), **fields)


def _layers(config: Mapping[str, Any], size: int) -> tuple[LayerConfig, ...]:
    """Read the window and the rotary base of each layer."""
    layers = whole(config, "num_hidden_layers")
    step = whole(config, "sliding_window_pattern", like="num_hidden_layers", default=6)
    default = [SLIDING if number % step else FULL for number in range(1, layers + 1)]
    kinds = decoder.read_kinds(config, default)
    parameters, scaling = config.get("rope_parameters") or {}, config.get("rope_scaling")
    rotary, windows = {}, {FULL: 0}
    for kind, (name, base) in _BASES.items():
        own = parameters.get(kind) if isinstance(parameters, dict) else None
        own = own or (scaling if kind == FULL else None)
        given = {"rope_parameters": own, "rope_theta": config.get(name)}
        rotary[kind] = decoder.read_angles(given, size, base)
    if SLIDING in kinds:
        windows[SLIDING] = _window(config)
    return tuple(LayerConfig(windows[kind], rotary[kind]) for kind in kinds)


def _window(config: Mapping[str, Any]) -> int:
    """Read how far a token sees in a layer with a window.

    With `use_bidirectional_attention`, `sliding_window` is the width of both sides together.
    """
    given = {"sliding_window": 4096, **config}
    if decoder.is_bidirectional(config):
        given["sliding_window"] = whole(given, "sliding_window", like="max_position_embeddings") // 2 + 1
    return decoder.read_window(given, exclusive=switch(config, "is_causal", default=True))


GEMMA = decoder.family(
    "gemma",
    read_gemma,
    tokenizer="GemmaTokenizer",
    predictors={"classification": decoder.classes(0), "token_classification": decoder.TOKEN_CLASSES},
    norms_add_one=True,
)
GEMMA3 = decoder.family(
    "gemma3_text",
    read_gemma3,
    tokenizer="GemmaTokenizer",
    block_names={
        **decoder.BLOCK_NAMES,
        "attention_output_norm.weight": ("layers.{}.post_attention_layernorm.weight",),
        "feed_forward_norm.weight": ("layers.{}.pre_feedforward_layernorm.weight",),
        "feed_forward_output_norm.weight": ("layers.{}.post_feedforward_layernorm.weight",),
    },
    dropped=(),
    predictors={"classification": decoder.classes(0)},
    norms_add_one=True,
)
