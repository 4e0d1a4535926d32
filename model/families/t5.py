"""The encoders of T5 (Raffel et al. 2020), mT5 and umT5: relative biases, RMS norms first, no scale."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import RelativeBias
from model.errors import CheckpointError
from model.families.family import Either, Family
from model.families.predictors import TOKEN_CLASSES
from model.families.reading.options import activation, plain
from model.fields import epsilon, whole


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a T5 `config.json`; raises CheckpointError for options that are not supported."""
    gated, kind = _feed_forward(config)
    return EncoderConfig(
        vocab_size=whole(config, "vocab_size"),
        hidden_size=whole(config, "d_model", like="hidden_size"),
        num_layers=whole(config, "num_layers", like="num_hidden_layers"),
        num_heads=whole(config, "num_heads", like="num_attention_heads"),
        intermediate_size=whole(config, "d_ff", like="intermediate_size"),
        head_dim=whole(config, "d_kv", like="hidden_size", default=64),
        positions="none",
        embedding_norm=False,
        norm="pre",
        norm_kind="rms",
        norm_eps=epsilon(config, "layer_norm_epsilon", default=1e-6),
        activation=activation({"feed_forward_proj": kind}, "feed_forward_proj"),
        gated=gated,
        qkv_bias=False,
        output_bias=False,
        inner_bias=False,
        outer_bias=False,
        scale=1.0,
        relative_bias=RelativeBias(
            whole(config, "relative_attention_num_buckets", like="intermediate_size", default=32),
            whole(config, "relative_attention_max_distance", like="intermediate_size", default=128),
        ),
    )


def read_config_umt5(config: Mapping[str, Any]) -> EncoderConfig:
    """Read an umT5 `config.json`, whose layers have a bias each; raises CheckpointError."""
    encoder = read_config({"feed_forward_proj": "gated-gelu", **config})
    assert encoder.relative_bias is not None  # noqa: S101 - for the type checker: T5 has one
    return replace(encoder, relative_bias=replace(encoder.relative_bias, per_layer=True))


def _feed_forward(config: Mapping[str, Any]) -> tuple[bool, str]:
    """Return whether the feed-forward network is gated, and its activation."""
    name = config.get("feed_forward_proj", "relu")
    kind, dash, gate = plain(name).rpartition("-")[::-1]
    if not isinstance(name, str) or (dash and gate != "gated"):
        raise CheckpointError(
            f'feed_forward_proj "{plain(name)}" is not supported; it must be an activation, or "gated-" and '
            "an activation."
        )
    # "gated-gelu" has always meant the approximation by tanh.
    return bool(dash), "gelu_new" if name == "gated-gelu" else kind


_ATTENTION, _FEED_FORWARD = "encoder.block.{}.layer.0.", "encoder.block.{}.layer.1."

T5 = Family(
    name="t5",
    tokenizer="T5Tokenizer",
    read_config=read_config,
    names={
        "embeddings.token": Either((("shared.weight",), ("encoder.embed_tokens.weight",))),
        "relative_bias": ("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",),
        "final_norm.weight": ("encoder.final_layer_norm.weight",),
    },
    block_names={
        "attention.qkv.weight": tuple(f"{_ATTENTION}SelfAttention.{part}.weight" for part in "qkv"),
        "attention.output.weight": (f"{_ATTENTION}SelfAttention.o.weight",),
        "attention.relative_bias": (f"{_ATTENTION}SelfAttention.relative_attention_bias.weight",),
        "attention_norm.weight": (f"{_ATTENTION}layer_norm.weight",),
        "feed_forward.inner.weight": Either(
            (
                (f"{_FEED_FORWARD}DenseReluDense.wi.weight",),
                tuple(f"{_FEED_FORWARD}DenseReluDense.wi_{number}.weight" for number in (0, 1)),
            )
        ),
        "feed_forward.outer.weight": (f"{_FEED_FORWARD}DenseReluDense.wo.weight",),
        "feed_forward_norm.weight": (f"{_FEED_FORWARD}layer_norm.weight",),
    },
    # The parts of T5 besides its encoder.
    dropped=("encoder.embed_tokens.weight", "decoder.*", "lm_head.weight"),
    heads={"classification_head.*": "classes", "classifier.*": "classes"},
    prefixes=("transformer.",),
    predictors={"token_classification": TOKEN_CLASSES},
)
MT5 = replace(T5, name="mt5")
UMT5 = replace(T5, name="umt5", keeps_tokenizer=True, read_config=read_config_umt5)
