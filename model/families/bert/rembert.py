"""RemBERT (Chung et al. 2021): BERT with narrow input embeddings, and separate wide ones to predict words."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.encoder.config import EncoderConfig
from model.families.bert import bert
from model.families.predictors import PredictorTable, configured, decoder, linear, norm
from model.fields import whole


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a RemBERT `config.json`; raises CheckpointError for options that are not supported."""
    width = whole(config, "input_embedding_size", like="hidden_size", default=256)
    return replace(bert.read_config(config), embedding_size=width)


REMBERT = replace(
    bert.BERT,
    name="rembert",
    tokenizer="RemBertTokenizer",
    read_config=read_config,
    names={
        **bert.BERT.names,
        "embeddings.projection.weight": ("encoder.embedding_hidden_mapping_in.weight",),
        "embeddings.projection.bias": ("encoder.embedding_hidden_mapping_in.bias",),
    },
    prefixes=("rembert.",),
    predictors={
        **bert.BERT.predictors,
        # The width of the last layer is that of its weights: `output_embedding_size`.
        "masked_words": PredictorTable(
            (
                linear("cls.predictions.dense", activation=configured("hidden_act")),
                norm("cls.predictions.LayerNorm"),
                decoder(("cls.predictions.decoder.weight",), ("cls.predictions.decoder.bias",)),
            )
        ),
    },
)
