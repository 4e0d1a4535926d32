"""RoBERTa (Liu et al. 2019), XLM-RoBERTa and CamemBERT: BERT whose positions follow the padding id."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.encoder.config import EncoderConfig
from model.families.bert import bert
from model.families.predictors import TOKEN_CLASSES, PredictorTable, classes, decoder, linear, norm
from model.families.reading.options import padding_id


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a RoBERTa `config.json`; raises CheckpointError for options that are not supported."""
    padding = padding_id(config, default=1)
    return replace(bert.read_config(config), position_offset=padding + 1, padding_id=padding)


ROBERTA = replace(
    bert.BERT,
    name="roberta",
    tokenizer="RobertaTokenizer",
    read_config=read_config,
    heads={
        "lm_head.*": "masked words",
        "classifier.*": "classes",
        "qa_outputs.*": "answers within a text",
    },
    prefixes=("roberta.",),
    predictors={
        "classification": classes(
            linear("classifier.dense", activation="Tanh"), linear("classifier.out_proj")
        ),
        "token_classification": TOKEN_CLASSES,
        "masked_words": PredictorTable(
            (
                linear("lm_head.dense", activation="GELU"),
                norm("lm_head.layer_norm", "lm_head.norm"),
                decoder(
                    ("lm_head.decoder.weight", "embeddings.word_embeddings.weight"),
                    ("lm_head.bias", "lm_head.decoder.bias"),
                ),
            )
        ),
    },
)
XLM_ROBERTA = replace(ROBERTA, name="xlm-roberta", tokenizer="XLMRobertaTokenizer")
CAMEMBERT = replace(
    ROBERTA, name="camembert", tokenizer="CamembertTokenizer", prefixes=("roberta.", "camembert.")
)
