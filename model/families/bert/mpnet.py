"""MPNet (Song et al. 2020): RoBERTa without segments, and with a relative bias that all layers share."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import RelativeBias
from model.families.bert import roberta
from model.families.reading.options import check_at_least
from model.fields import whole

# The relative bias has this many buckets, however many rows its table has.
_BUCKETS = 32
# The padding id, whatever `pad_token_id` says.
_PADDING = 1


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read an MPNet `config.json`; raises CheckpointError for options that are not supported."""
    name = "relative_attention_num_buckets"
    rows = whole(config, name, like="intermediate_size", default=_BUCKETS)
    check_at_least(name, rows, _BUCKETS)
    encoder = roberta.read_config({**config, "pad_token_id": _PADDING})
    return replace(encoder, segments=0, relative_bias=RelativeBias(_BUCKETS, table_rows=rows))


_LAYER = "encoder.layer.{}.attention."

MPNET = replace(
    roberta.ROBERTA,
    name="mpnet",
    tokenizer="MPNetTokenizer",
    read_config=read_config,
    names={**roberta.ROBERTA.names, "relative_bias": ("encoder.relative_attention_bias.weight",)},
    block_names={
        **roberta.ROBERTA.block_names,
        "attention.qkv.weight": tuple(f"{_LAYER}attn.{part}.weight" for part in "qkv"),
        "attention.qkv.bias": tuple(f"{_LAYER}attn.{part}.bias" for part in "qkv"),
        "attention.output.weight": (f"{_LAYER}attn.o.weight",),
        "attention.output.bias": (f"{_LAYER}attn.o.bias",),
        "attention_norm.weight": (f"{_LAYER}LayerNorm.weight",),
        "attention_norm.bias": (f"{_LAYER}LayerNorm.bias",),
    },
    prefixes=("mpnet.",),
)
