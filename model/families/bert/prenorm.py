"""BERT and RoBERTa with a layer norm before each sub-layer, and one more after the last layer.

RoBERTa-PreLayerNorm (Wettig et al. 2022), Megatron-BERT (Shoeybi et al. 2019), XLM-RoBERTa-XL (Goyal et al.
2021). Only the first one normalises its embeddings, too.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.encoder.config import EncoderConfig
from model.families.bert import bert, roberta
from model.families.family import Family


def read_roberta(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a RoBERTa-PreLayerNorm `config.json`; raises CheckpointError for unsupported options."""
    return replace(roberta.read_config(config), norm="pre")


def read_megatron(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a Megatron-BERT `config.json`; raises CheckpointError for options that are not supported."""
    return replace(bert.read_config(config), norm="pre", embedding_norm=False)


def read_xl(config: Mapping[str, Any]) -> EncoderConfig:
    """Read an XLM-RoBERTa-XL `config.json`; raises CheckpointError for options that are not supported."""
    encoder = roberta.read_config({"type_vocab_size": 1, "layer_norm_eps": 1e-5, **config})
    return replace(encoder, norm="pre", embedding_norm=False)


_LAYER = "encoder.layer.{}."


def _named(family: Family, attention: str, feed_forward: str, final: str) -> Family:
    """Return a family with these names of norms: the two of a layer, and the one after the last layer."""
    return replace(
        family,
        names={
            **family.names,
            "final_norm.weight": (f"{final}.weight",),
            "final_norm.bias": (f"{final}.bias",),
        },
        block_names={
            **family.block_names,
            "attention_norm.weight": (f"{_LAYER}{attention}.weight",),
            "attention_norm.bias": (f"{_LAYER}{attention}.bias",),
            "feed_forward_norm.weight": (f"{_LAYER}{feed_forward}.weight",),
            "feed_forward_norm.bias": (f"{_LAYER}{feed_forward}.bias",),
        },
    )


ROBERTA_PRENORM = replace(
    _named(roberta.ROBERTA, "attention.LayerNorm", "intermediate.LayerNorm", "LayerNorm"),
    name="roberta-prelayernorm",
    read_config=read_roberta,
    prefixes=("roberta_prelayernorm.",),
)
MEGATRON_BERT = replace(
    _named(bert.BERT, "attention.ln", "ln", "encoder.ln"), name="megatron-bert", read_config=read_megatron
)
XLM_ROBERTA_XL = replace(
    _named(roberta.XLM_ROBERTA, "attention.self_attn_layer_norm", "LayerNorm", "encoder.LayerNorm"),
    name="xlm-roberta-xl",
    read_config=read_xl,
)
