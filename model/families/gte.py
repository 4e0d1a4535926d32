"""GTE (Zhang et al. 2024), and "new", as Alibaba's own code calls it: rotary positions, gated GELU."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from model.encoder.config import EncoderConfig, Positions
from model.encoder.parts import LayerConfig, Rotary
from model.errors import CheckpointError
from model.families.bert.bert import BERT
from model.families.bert.roberta import ROBERTA
from model.families.family import Either, Family, Part, either_below
from model.families.reading.options import activation, check_absolute, check_encoder, check_heads, plain
from model.families.reading.rotary import positive, read_rotary
from model.fields import epsilon, switch, whole
from model.files import shown

_ARCHITECTURES = tuple(
    f"New{kind}"
    for kind in (
        "Model",
        "ForMaskedLM",
        "ForSequenceClassification",
        "ForMultipleChoice",
        "ForTokenClassification",
        "ForQuestionAnswering",
    )
)


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a GTE `config.json`; raises CheckpointError for options that are not supported."""
    return _read(config, base=160_000.0, longest=8192)


def read_config_new(config: Mapping[str, Any]) -> EncoderConfig:
    """Read the `config.json` of Alibaba's own code; raises CheckpointError.

    Other code may call itself "new", too, so the architecture is checked.
    """
    listed = config.get("architectures")
    if not isinstance(listed, list) or not listed or any(name not in _ARCHITECTURES for name in listed):
        raise CheckpointError(
            f'architectures is {shown(listed)}; with the model_type "new", only {_ARCHITECTURES[0]} of '
            "Alibaba-NLP and its heads are supported."
        )
    return _read(config, base=10_000.0, longest=2048)


def _read(config: Mapping[str, Any], *, base: float, longest: int) -> EncoderConfig:
    """Read either form; `base` and `longest` are the defaults in which they differ."""
    check_encoder(config)
    check_heads(config)
    check_absolute({"position_embedding_type": "rope", **config}, "rope")
    if switch(config, "logn_attention_scale", default=False):
        raise CheckpointError("logn_attention_scale is not supported.")
    if (kind := config.get("layer_norm_type", "layer_norm")) != "layer_norm":
        raise CheckpointError(f'layer_norm_type "{plain(kind)}" is not supported, only "layer_norm".')
    learned = config.get("position_embedding_type") == "absolute"
    positions: Positions = "learned" if learned else "none"
    length = whole(config, "max_position_embeddings", default=longest)
    size = whole(config, "hidden_size") // whole(config, "num_attention_heads")
    return EncoderConfig(
        vocab_size=whole(config, "vocab_size"),
        hidden_size=whole(config, "hidden_size"),
        num_layers=whole(config, "num_hidden_layers"),
        num_heads=whole(config, "num_attention_heads"),
        intermediate_size=whole(config, "intermediate_size"),
        positions=positions,
        max_positions=length,
        segments=whole(config, "type_vocab_size", least=0, default=1),
        norm_eps=epsilon(config, "layer_norm_eps", default=1e-12),
        activation=activation(config, "hidden_act"),
        gated=True,
        inner_bias=False,
        layers=(LayerConfig(rotary=None if learned else _rotary(config, size, base)),),
        longest=length,
    )


def _rotary(config: Mapping[str, Any], size: int, default_base: float) -> Rotary:
    """Read rotary positions, with the scaling that Alibaba's code calls "ntk" (kexue.fm/archives/9706).

    The base is multiplied by the factor, and all frequencies are divided by factor^(2/size).
    """
    scaling = config.get("rope_scaling")
    if not isinstance(scaling, dict) or scaling.get("type", scaling.get("rope_type")) != "ntk":
        return read_rotary(config, size, default_base)
    if scaling.get("mixed_b") is not None:
        raise CheckpointError('rope_scaling of type "ntk" with mixed_b is not supported.')
    factor = positive(scaling, "factor")
    if factor < 1:
        raise CheckpointError(f'factor is {factor}; with rope_scaling of type "ntk" it must be at least 1.')
    base = positive({"rope_theta": config.get("rope_theta", default_base)}, "rope_theta")
    divisor = np.float32(factor ** (2 / size))
    frequencies = np.array(Rotary.of(size, base * factor).frequencies, np.float32) / divisor
    return Rotary(tuple(frequencies.tolist()))


_PACKED, _LAYER = "encoder.layer.{}.", "layers.{}."


_either = either_below(_PACKED, _LAYER)


def _qkv(kind: str) -> Either:
    """Return the names of the weights or biases of queries, keys and values, fused or not."""
    return Either(
        (
            (f"{_PACKED}attention.qkv_proj.{kind}",),
            tuple(f"{_PACKED}attention.{part}_proj.{kind}" for part in "qkv"),
            tuple(f"{_LAYER}self_attn.{part}_proj.{kind}" for part in "qkv"),
        )
    )


GTE = Family(
    name="gte",
    read_config=read_config,
    names=BERT.names,
    block_names={
        "attention.qkv.weight": _qkv("weight"),
        "attention.qkv.bias": _qkv("bias"),
        "attention.output.weight": _either("attention.o_proj.weight", "self_attn.o_proj.weight"),
        "attention.output.bias": _either("attention.o_proj.bias", "self_attn.o_proj.bias"),
        "attention_norm.weight": _either("attn_ln.weight", "post_attention_layernorm.weight"),
        "attention_norm.bias": _either("attn_ln.bias", "post_attention_layernorm.bias"),
        # In the fused tensor the value comes first; here the gate does.
        "feed_forward.inner.weight": Either(
            (
                tuple(Part(f"{_PACKED}mlp.up_gate_proj.weight", index, 2) for index in (1, 0)),
                tuple(f"{_LAYER}mlp.{part}_proj.weight" for part in ("gate", "up")),
            )
        ),
        "feed_forward.outer.weight": _either("mlp.down_proj.weight", "mlp.down_proj.weight"),
        "feed_forward.outer.bias": _either("mlp.down_proj.bias", "mlp.down_proj.bias"),
        "feed_forward_norm.weight": _either("mlp_ln.weight", "post_mlp_layernorm.weight"),
        "feed_forward_norm.bias": _either("mlp_ln.bias", "post_mlp_layernorm.bias"),
    },
    # The pooler, like the heads, follows the encoder and is not served.
    dropped=("pooler.dense.weight", "pooler.dense.bias"),
    heads=ROBERTA.heads,
    predictors={**ROBERTA.predictors, "classification": BERT.predictors["classification"]},
    prefixes=("gte.", "new."),
)
NEW = replace(GTE, name="new", read_config=read_config_new)
