"""DistilBERT (Sanh et al. 2019): BERT without segments, under other names."""

from collections.abc import Mapping
from typing import Any

from model.encoder.config import EncoderConfig
from model.families.family import Family
from model.families.predictors import (
    TOKEN_CLASSES,
    PredictorTable,
    classes,
    configured,
    decoder,
    linear,
    norm,
)
from model.families.reading.options import activation, check_heads
from model.fields import whole


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a DistilBERT `config.json`; raises CheckpointError for options that are not supported."""
    check_heads(config, "dim", "n_heads")
    return EncoderConfig(
        vocab_size=whole(config, "vocab_size"),
        hidden_size=whole(config, "dim", like="hidden_size"),
        num_layers=whole(config, "n_layers", like="num_hidden_layers"),
        num_heads=whole(config, "n_heads", like="num_attention_heads"),
        intermediate_size=whole(config, "hidden_dim", like="intermediate_size"),
        max_positions=whole(config, "max_position_embeddings"),
        activation=activation(config, "activation"),
    )


_LAYER = "transformer.layer.{}."

DISTILBERT = Family(
    name="distilbert",
    tokenizer="DistilBertTokenizer",
    read_config=read_config,
    names={
        "embeddings.token": ("embeddings.word_embeddings.weight",),
        "embeddings.position": ("embeddings.position_embeddings.weight",),
        "embeddings.norm.weight": ("embeddings.LayerNorm.weight",),
        "embeddings.norm.bias": ("embeddings.LayerNorm.bias",),
    },
    block_names={
        "attention.qkv.weight": tuple(f"{_LAYER}attention.{part}_lin.weight" for part in "qkv"),
        "attention.qkv.bias": tuple(f"{_LAYER}attention.{part}_lin.bias" for part in "qkv"),
        "attention.output.weight": (f"{_LAYER}attention.out_lin.weight",),
        "attention.output.bias": (f"{_LAYER}attention.out_lin.bias",),
        "attention_norm.weight": (f"{_LAYER}sa_layer_norm.weight",),
        "attention_norm.bias": (f"{_LAYER}sa_layer_norm.bias",),
        "feed_forward.inner.weight": (f"{_LAYER}ffn.lin1.weight",),
        "feed_forward.inner.bias": (f"{_LAYER}ffn.lin1.bias",),
        "feed_forward.outer.weight": (f"{_LAYER}ffn.lin2.weight",),
        "feed_forward.outer.bias": (f"{_LAYER}ffn.lin2.bias",),
        "feed_forward_norm.weight": (f"{_LAYER}output_layer_norm.weight",),
        "feed_forward_norm.bias": (f"{_LAYER}output_layer_norm.bias",),
    },
    dropped=("embeddings.position_ids",),
    heads={
        "vocab_*": "masked words",
        "pre_classifier.*": "classes",
        "classifier.*": "classes",
        "qa_outputs.*": "answers within a text",
    },
    prefixes=("distilbert.",),
    predictors={
        "classification": classes(linear("pre_classifier", activation="ReLU"), linear("classifier")),
        "token_classification": TOKEN_CLASSES,
        "masked_words": PredictorTable(
            (
                linear("vocab_transform", activation=configured("activation")),
                norm("vocab_layer_norm"),
                decoder(
                    ("vocab_projector.weight", "embeddings.word_embeddings.weight"), ("vocab_projector.bias",)
                ),
            )
        ),
    },
)
