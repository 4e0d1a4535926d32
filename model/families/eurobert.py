"""EuroBERT (Boizard et al. 2025): a bidirectional Llama: rotary positions, RMS norms first, gated SiLU."""

from collections.abc import Mapping
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import LayerConfig
from model.families.family import Family
from model.families.predictors import TOKEN_CLASSES, PredictorTable, decoder, linear, pooled_by
from model.families.reading.options import activation, check_heads
from model.families.reading.rotary import read_rotary
from model.fields import epsilon, switch, whole


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a EuroBERT `config.json`; raises CheckpointError for options that are not supported."""
    check_heads(config)
    heads = whole(config, "num_attention_heads")
    size = config.get("head_dim") or whole(config, "hidden_size") // heads
    size = whole({"head_dim": size}, "head_dim", like="hidden_size")
    keys = heads if config.get("num_key_value_heads") is None else None
    bias = switch(config, "mlp_bias", default=False)
    attention_bias = switch(config, "attention_bias", default=False)
    return EncoderConfig(
        vocab_size=whole(config, "vocab_size"),
        hidden_size=whole(config, "hidden_size"),
        num_layers=whole(config, "num_hidden_layers"),
        num_heads=heads,
        intermediate_size=whole(config, "intermediate_size"),
        head_dim=size,
        num_kv_heads=keys or whole(config, "num_key_value_heads", like="num_attention_heads"),
        positions="none",
        embedding_norm=False,
        norm="pre",
        norm_kind="rms",
        norm_eps=epsilon(config, "rms_norm_eps", default=1e-5),
        activation=activation(config, "hidden_act", "silu"),
        gated=True,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        inner_bias=bias,
        outer_bias=bias,
        layers=(LayerConfig(rotary=read_rotary(config, size, 10_000.0)),),
        longest=whole(config, "max_position_embeddings", default=8192),
    )


_LAYER = "layers.{}."

EUROBERT = Family(
    name="eurobert",
    read_config=read_config,
    names={"embeddings.token": ("embed_tokens.weight",), "final_norm.weight": ("norm.weight",)},
    block_names={
        "attention.qkv.weight": tuple(f"{_LAYER}self_attn.{part}_proj.weight" for part in "qkv"),
        "attention.qkv.bias": tuple(f"{_LAYER}self_attn.{part}_proj.bias" for part in "qkv"),
        "attention.output.weight": (f"{_LAYER}self_attn.o_proj.weight",),
        "attention.output.bias": (f"{_LAYER}self_attn.o_proj.bias",),
        "attention_norm.weight": (f"{_LAYER}input_layernorm.weight",),
        "feed_forward.inner.weight": tuple(f"{_LAYER}mlp.{part}_proj.weight" for part in ("gate", "up")),
        "feed_forward.inner.bias": tuple(f"{_LAYER}mlp.{part}_proj.bias" for part in ("gate", "up")),
        "feed_forward.outer.weight": (f"{_LAYER}mlp.down_proj.weight",),
        "feed_forward.outer.bias": (f"{_LAYER}mlp.down_proj.bias",),
        "feed_forward_norm.weight": (f"{_LAYER}post_attention_layernorm.weight",),
    },
    heads={"lm_head.*": "masked words", "dense.*": "classes", "classifier.*": "classes"},
    prefixes=("model.",),
    predictors={
        "classification": PredictorTable(
            (linear("dense", activation="GELU"), linear("classifier")),
            pooled_by("classifier_pooling", {"bos": "cls", "mean": "mean"}, default="late"),
        ),
        "token_classification": TOKEN_CLASSES,
        "masked_words": PredictorTable(
            (decoder(("lm_head.weight", "embed_tokens.weight"), ("lm_head.bias",)),)
        ),
    },
)
