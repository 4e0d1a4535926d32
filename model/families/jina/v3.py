"""jina-embeddings-v3 (Sturua et al. 2024) without adapters: XLM-RoBERTa with rotary positions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.encoder.config import EncoderConfig, LayerConfig
from model.families.bert import bert
from model.families.bert.roberta import ROBERTA
from model.families.family import Either, Family, either_below
from model.families.reading.rotary import read_rotary
from model.fields import epsilon, whole


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read the `config.json` of `transformers`; raises CheckpointError for options that are not supported."""
    encoder = bert.read_config({"type_vocab_size": 1, "max_position_embeddings": 8194, **config})
    return replace(
        encoder,
        positions="none",
        norm_eps=epsilon(config, "layer_norm_eps", default=1e-5),
        layers=(LayerConfig(rotary=read_rotary(config, encoder.head_size, 20_000.0)),),
        longest=whole(config, "max_position_embeddings", default=8194),
    )


# The names of transformers, and those of the original checkpoints.
_LAYER, _ORIGINAL = "layers.{}.", "encoder.layers.{}."
_ADAPTERS = "the checkpoint has LoRA adapters, and headlight does not serve adapters yet"


_either = either_below(_LAYER, _ORIGINAL)


def _qkv(kind: str) -> Either:
    native = tuple(f"{_LAYER}self_attn.{part}_proj.{kind}" for part in "qkv")
    return Either((native, (f"{_ORIGINAL}mixer.Wqkv.{kind}",)))


JINA_V3 = Family(
    name="jina_embeddings_v3",
    read_config=read_config,
    names={
        "embeddings.token": ("embeddings.word_embeddings.weight",),
        "embeddings.segment": ("embeddings.token_type_embeddings.weight",),
        "embeddings.norm.weight": Either((("embeddings.LayerNorm.weight",), ("emb_ln.weight",))),
        "embeddings.norm.bias": Either((("embeddings.LayerNorm.bias",), ("emb_ln.bias",))),
    },
    block_names={
        "attention.qkv.weight": _qkv("weight"),
        "attention.qkv.bias": _qkv("bias"),
        "attention.output.weight": _either("self_attn.o_proj.weight", "mixer.out_proj.weight"),
        "attention.output.bias": _either("self_attn.o_proj.bias", "mixer.out_proj.bias"),
        "attention_norm.weight": _either("post_attention_layernorm.weight", "norm1.weight"),
        "attention_norm.bias": _either("post_attention_layernorm.bias", "norm1.bias"),
        "feed_forward.inner.weight": _either("mlp.fc1.weight", "mlp.fc1.weight"),
        "feed_forward.inner.bias": _either("mlp.fc1.bias", "mlp.fc1.bias"),
        "feed_forward.outer.weight": _either("mlp.fc2.weight", "mlp.fc2.weight"),
        "feed_forward.outer.bias": _either("mlp.fc2.bias", "mlp.fc2.bias"),
        "feed_forward_norm.weight": _either("post_mlp_layernorm.weight", "norm2.weight"),
        "feed_forward_norm.bias": _either("post_mlp_layernorm.bias", "norm2.bias"),
    },
    dropped=("pooler.dense.weight", "pooler.dense.bias"),
    heads=ROBERTA.heads,
    refused={"*parametrizations.*": _ADAPTERS, "*.lora_*": _ADAPTERS},
    prefixes=("roberta.",),
)
