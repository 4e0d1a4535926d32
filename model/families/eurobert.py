"""EuroBERT (Boizard et al. 2025): a bidirectional Llama: rotary positions, RMS norms first, gated SiLU."""

from collections.abc import Mapping
from typing import Any

from model.encoder.config import EncoderConfig
from model.families.decoders.decoder import BLOCK_NAMES, NAMES, head_size, read_decoder
from model.families.family import Family
from model.families.predictors import TOKEN_CLASSES, PredictorTable, decoder, linear, pooled_by
from model.families.reading.options import check_heads
from model.fields import epsilon, switch, whole


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a EuroBERT `config.json`; raises CheckpointError for options that are not supported."""
    check_heads(config)
    bias = switch(config, "mlp_bias", default=False)
    attention_bias = switch(config, "attention_bias", default=False)
    return read_decoder(
        config,
        head_size(config),
        norm_eps=epsilon(config, "rms_norm_eps", default=1e-5),
        causal=False,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        inner_bias=bias,
        outer_bias=bias,
        longest=whole(config, "max_position_embeddings", default=8192),
    )


EUROBERT = Family(
    name="eurobert",
    read_config=read_config,
    names=NAMES,
    block_names=BLOCK_NAMES,
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
