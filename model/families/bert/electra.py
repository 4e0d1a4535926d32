"""ELECTRA (Clark et al. 2020): BERT whose embeddings may be narrower, and are then projected."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.encoder.config import EncoderConfig
from model.families.bert import bert
from model.families.predictors import (
    TOKEN_CLASSES,
    PredictorTable,
    classes,
    configured,
    decoder,
    linear,
    norm,
)
from model.fields import whole


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read an ELECTRA `config.json`; raises CheckpointError for options that are not supported."""
    encoder = bert.read_config(config)
    width = whole(config, "embedding_size", like="hidden_size", default=128)
    return replace(encoder, embedding_size=0 if width == encoder.hidden_size else width)


ELECTRA = replace(
    bert.BERT,
    name="electra",
    tokenizer="ElectraTokenizer",
    read_config=read_config,
    names={
        **bert.BERT.names,
        "embeddings.projection.weight": ("embeddings_project.weight",),
        "embeddings.projection.bias": ("embeddings_project.bias",),
    },
    heads={
        "discriminator_predictions.*": "replaced words",
        "generator_predictions.*": "masked words",
        "generator_lm_head.*": "masked words",
        "classifier.*": "classes",
        "qa_outputs.*": "answers within a text",
    },
    prefixes=("electra.",),
    predictors={
        "classification": classes(
            linear("classifier.dense", activation="GELU"), linear("classifier.out_proj")
        ),
        "token_classification": TOKEN_CLASSES,
        "masked_words": PredictorTable(
            (
                linear("generator_predictions.dense", activation=configured("hidden_act")),
                norm("generator_predictions.LayerNorm"),
                decoder(
                    ("generator_lm_head.weight", "embeddings.word_embeddings.weight"),
                    ("generator_lm_head.bias",),
                ),
            )
        ),
    },
)
