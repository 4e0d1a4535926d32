"""LFM2 (Liquid AI 2025): gated convolutions over a few tokens instead of attention in most layers.

The encoders made of it (LFM2.5-Embedding, LFM2.5-ColBERT) look both ways in convolutions and attention.
"""

from collections.abc import Mapping
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import LayerConfig, ShortConvolution
from model.errors import CheckpointError
from model.families.decoders import decoder
from model.families.decoders.decoder import FULL
from model.families.reading.rotary import positive
from model.fields import MOST, epsilon, switch, whole
from model.files import shown

CONVOLUTION = "conv"
_BOTH_WAYS = "Lfm2Bidir"
"""Part of the names of classes that look both ways; config.json has no other sign of it."""


def read_lfm2(config: Mapping[str, Any]) -> EncoderConfig:
    """Read an LFM2 `config.json`; raises CheckpointError for options that are not supported."""
    both_ways = _looks_both_ways(config)
    size = decoder.head_size(config)
    return decoder.read_decoder(
        {"num_key_value_heads": 8, **config, "intermediate_size": _inner_size(config)},
        size,
        activation="silu",
        norm_eps=epsilon(config, "norm_eps", default=1e-5),
        qk_norm="rms",
        causal=decoder.is_causal(config) and not both_ways,
        layers=_layers(config, size, both_ways=both_ways),
        longest=whole(config, "max_position_embeddings", default=128_000),
    )


def _looks_both_ways(config: Mapping[str, Any]) -> bool:
    """Return whether a config names a class that looks both ways."""
    listed, code = config.get("architectures"), config.get("auto_map")
    names = [
        *(listed if isinstance(listed, list) else ()),
        *(code.values() if isinstance(code, dict) else ()),
    ]
    return any(isinstance(name, str) and _BOTH_WAYS in name for name in names)


def _layers(config: Mapping[str, Any], size: int, *, both_ways: bool) -> tuple[LayerConfig, ...]:
    """Read which layers attend, and the convolution of the others."""
    rotary = decoder.read_angles(config, size, base=1_000_000.0)
    convolution = ShortConvolution(
        whole(config, "conv_L_cache", like="max_position_embeddings", default=3),
        causal=not both_ways,
        bias=switch(config, "conv_bias", default=False),
    )
    layers = {FULL: LayerConfig(rotary=rotary), CONVOLUTION: LayerConfig(short_convolution=convolution)}
    kinds = decoder.read_kinds(config, _attending(config), (FULL, CONVOLUTION))
    if FULL not in kinds:
        raise CheckpointError(f'layer_types has no "{FULL}"; at least one layer must attend.')
    return tuple(layers[kind] for kind in kinds)


def _attending(config: Mapping[str, Any]) -> list[str]:
    """Read the kinds of layers from `full_attn_idxs`, which older files have; without it all attend."""
    listed, layers = config.get("full_attn_idxs"), range(whole(config, "num_hidden_layers"))
    if listed is None:
        return [FULL] * len(layers)
    if not isinstance(listed, list) or any(type(one) is not int or one not in layers for one in listed):
        raise CheckpointError(
            f"full_attn_idxs is {shown(listed)}; it must list layer numbers from 0 to {len(layers) - 1}."
        )
    return [FULL if number in listed else CONVOLUTION for number in layers]


def _inner_size(config: Mapping[str, Any]) -> int:
    """Read the size of the feed-forward network, which by default is two thirds of what is given, rounded up.

    Older files give it as `block_ff_dim`, which takes precedence.
    """
    name = "block_ff_dim" if "block_ff_dim" in config else "intermediate_size"
    size = whole(config, name, like="intermediate_size")
    if not switch(config, "block_auto_adjust_ff_dim", default=True):
        return size
    size = int(2 * size / 3)
    if config.get("block_ffn_dim_multiplier", 1.0) is not None:
        given = {"block_ffn_dim_multiplier": 1.0, **config}
        step = whole(config, "block_multiple_of", like="intermediate_size", default=256)
        # Bounded first: the product may be infinite, which no integer is.
        scaled = min(positive(given, "block_ffn_dim_multiplier") * size, 2.0 * MOST["intermediate_size"])
        size = -(-int(scaled) // step) * step
    return size


LFM2 = decoder.family(
    "lfm2",
    read_lfm2,
    names={**decoder.NAMES, "final_norm.weight": ("embedding_norm.weight",)},
    block_names={
        **decoder.BLOCK_NAMES,
        "attention.query_norm.weight": ("layers.{}.self_attn.q_layernorm.weight",),
        "attention.key_norm.weight": ("layers.{}.self_attn.k_layernorm.weight",),
        "attention.output.weight": ("layers.{}.self_attn.out_proj.weight",),
        "attention_norm.weight": ("layers.{}.operator_norm.weight",),
        "short_convolution.inner.weight": ("layers.{}.conv.in_proj.weight",),
        "short_convolution.inner.bias": ("layers.{}.conv.in_proj.bias",),
        "short_convolution.weight": ("layers.{}.conv.conv.weight",),
        "short_convolution.bias": ("layers.{}.conv.conv.bias",),
        "short_convolution.outer.weight": ("layers.{}.conv.out_proj.weight",),
        "short_convolution.outer.bias": ("layers.{}.conv.out_proj.bias",),
        "feed_forward.inner.weight": ("layers.{}.feed_forward.w1.weight", "layers.{}.feed_forward.w3.weight"),
        "feed_forward.outer.weight": ("layers.{}.feed_forward.w2.weight",),
        "feed_forward_norm.weight": ("layers.{}.ffn_norm.weight",),
    },
    dropped=(),
    predictors={},
    prefixes=("model.", "lfm2."),
)
