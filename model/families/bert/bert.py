"""BERT (Devlin et al. 2019): learned positions, two segments, layer norm after each sub-layer."""

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
from model.families.reading.options import activation, check_absolute, check_encoder, check_heads
from model.fields import epsilon, whole


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a BERT `config.json`; raises CheckpointError for options that this encoder does not support."""
    check_encoder(config)
    check_absolute(config)
    check_heads(config)
    return EncoderConfig(
        vocab_size=whole(config, "vocab_size"),
        hidden_size=whole(config, "hidden_size"),
        num_layers=whole(config, "num_hidden_layers"),
        num_heads=whole(config, "num_attention_heads"),
        intermediate_size=whole(config, "intermediate_size"),
        max_positions=whole(config, "max_position_embeddings"),
        segments=whole(config, "type_vocab_size", default=2),
        norm_eps=epsilon(config, "layer_norm_eps", default=1e-12),
        activation=activation(config, "hidden_act"),
    )


_LAYER = "encoder.layer.{}."

BERT = Family(
    name="bert",
    tokenizer="BertTokenizer",
    read_config=read_config,
    names={
        "embeddings.token": ("embeddings.word_embeddings.weight",),
        "embeddings.position": ("embeddings.position_embeddings.weight",),
        "embeddings.segment": ("embeddings.token_type_embeddings.weight",),
        "embeddings.norm.weight": ("embeddings.LayerNorm.weight",),
        "embeddings.norm.bias": ("embeddings.LayerNorm.bias",),
    },
    block_names={
        "attention.qkv.weight": tuple(
            f"{_LAYER}attention.self.{part}.weight" for part in ("query", "key", "value")
        ),
        "attention.qkv.bias": tuple(
            f"{_LAYER}attention.self.{part}.bias" for part in ("query", "key", "value")
        ),
        "attention.output.weight": (f"{_LAYER}attention.output.dense.weight",),
        "attention.output.bias": (f"{_LAYER}attention.output.dense.bias",),
        "attention_norm.weight": (f"{_LAYER}attention.output.LayerNorm.weight",),
        "attention_norm.bias": (f"{_LAYER}attention.output.LayerNorm.bias",),
        "feed_forward.inner.weight": (f"{_LAYER}intermediate.dense.weight",),
        "feed_forward.inner.bias": (f"{_LAYER}intermediate.dense.bias",),
        "feed_forward.outer.weight": (f"{_LAYER}output.dense.weight",),
        "feed_forward.outer.bias": (f"{_LAYER}output.dense.bias",),
        "feed_forward_norm.weight": (f"{_LAYER}output.LayerNorm.weight",),
        "feed_forward_norm.bias": (f"{_LAYER}output.LayerNorm.bias",),
    },
    # The pooler, like the heads, follows the encoder and is not served; position_ids is a constant.
    dropped=("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"),
    heads={
        "cls.predictions.*": "masked words",
        "cls.seq_relationship.*": "the next sentence",
        "classifier.*": "classes",
        "qa_outputs.*": "answers within a text",
    },
    prefixes=("bert.",),
    predictors={
        "classification": classes(linear("pooler.dense", activation="Tanh"), linear("classifier")),
        "token_classification": TOKEN_CLASSES,
        "masked_words": PredictorTable(
            (
                linear("cls.predictions.transform.dense", activation=configured("hidden_act")),
                norm("cls.predictions.transform.LayerNorm", "cls.predictions.transform.layer_norm"),
                decoder(
                    ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
                    ("cls.predictions.bias", "cls.predictions.decoder.bias"),
                ),
            )
        ),
    },
)
