"""ALBERT (Lan et al. 2020): BERT with narrow embeddings, and layers that share their weights."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.encoder.config import EncoderConfig
from model.families.bert import bert
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
from model.families.reading.options import activation
from model.fields import whole


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read an ALBERT `config.json`; raises CheckpointError for options that are not supported."""
    encoder = bert.read_config({"hidden_act": "gelu_new", **config})
    layers = encoder.num_layers * _inner(config)
    numbers = [_numbers(config, layer) for layer in range(layers)]
    return replace(
        encoder,
        num_layers=layers,
        activation=activation(config, "hidden_act", "gelu_new"),
        embedding_size=whole(config, "embedding_size", like="hidden_size", default=128),
        shared=tuple(numbers.index(number) for number in numbers),
    )


def _inner(config: Mapping[str, Any]) -> int:
    return whole(config, "inner_group_num", like="num_hidden_layers", default=1)


def _numbers(config: Mapping[str, Any], layer: int) -> tuple[int, ...]:
    """Return the group of a layer, and its number within the group."""
    passes, inner = whole(config, "num_hidden_layers"), _inner(config)
    groups = whole(config, "num_hidden_groups", like="num_hidden_layers", default=1)
    return int(layer // inner / (passes / groups)), layer % inner


_LAYER = "encoder.albert_layer_groups.{}.albert_layers.{}."

ALBERT = Family(
    name="albert",
    tokenizer="AlbertTokenizer",
    read_config=read_config,
    names={
        **bert.BERT.names,
        "embeddings.projection.weight": ("encoder.embedding_hidden_mapping_in.weight",),
        "embeddings.projection.bias": ("encoder.embedding_hidden_mapping_in.bias",),
    },
    block_names={
        "attention.qkv.weight": tuple(
            f"{_LAYER}attention.{part}.weight" for part in ("query", "key", "value")
        ),
        "attention.qkv.bias": tuple(f"{_LAYER}attention.{part}.bias" for part in ("query", "key", "value")),
        "attention.output.weight": (f"{_LAYER}attention.dense.weight",),
        "attention.output.bias": (f"{_LAYER}attention.dense.bias",),
        "attention_norm.weight": (f"{_LAYER}attention.LayerNorm.weight",),
        "attention_norm.bias": (f"{_LAYER}attention.LayerNorm.bias",),
        "feed_forward.inner.weight": (f"{_LAYER}ffn.weight",),
        "feed_forward.inner.bias": (f"{_LAYER}ffn.bias",),
        "feed_forward.outer.weight": (f"{_LAYER}ffn_output.weight",),
        "feed_forward.outer.bias": (f"{_LAYER}ffn_output.bias",),
        "feed_forward_norm.weight": (f"{_LAYER}full_layer_layer_norm.weight",),
        "feed_forward_norm.bias": (f"{_LAYER}full_layer_layer_norm.bias",),
    },
    dropped=("embeddings.position_ids", "pooler.weight", "pooler.bias"),
    heads={
        "predictions.*": "masked words",
        "sop_classifier.*": "the order of sentences",
        "classifier.*": "classes",
        "qa_outputs.*": "answers within a text",
    },
    prefixes=("albert.",),
    predictors={
        "classification": classes(linear("pooler", activation="Tanh"), linear("classifier")),
        "token_classification": TOKEN_CLASSES,
        "masked_words": PredictorTable(
            (
                linear("predictions.dense", activation=configured("hidden_act", "gelu_new")),
                norm("predictions.LayerNorm"),
                decoder(
                    ("predictions.decoder.weight", "embeddings.word_embeddings.weight"),
                    ("predictions.bias", "predictions.decoder.bias"),
                ),
            )
        ),
    },
    numbers=_numbers,
)
