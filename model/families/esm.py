"""ESM-1b and ESM-2 (Rives et al. 2021, Lin et al. 2023): for proteins; norms first, token dropout."""

from collections.abc import Mapping
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import LayerConfig
from model.errors import CheckpointError
from model.families.bert.bert import BERT
from model.families.bert.roberta import ROBERTA
from model.families.family import Family
from model.families.reading.options import check_absolute, check_encoder, check_heads, padding_id
from model.families.reading.rotary import read_rotary
from model.fields import epsilon, switch, whole
from model.files import shown


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read an ESM `config.json`; raises CheckpointError for options that are not supported."""
    check_encoder(config)
    check_heads(config)
    check_absolute(config, "rotary")
    if config.get("is_folding_model"):
        raise CheckpointError("is_folding_model is set: headlight serves only encoders, not ESMFold.")
    hidden_size, heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    length = whole(config, "max_position_embeddings", default=1026)
    rotary = config.get("position_embedding_type") == "rotary"
    theta = {"rope_theta": config.get("rope_theta")}
    padding = None if rotary else padding_id(config, default=1)
    return EncoderConfig(
        vocab_size=whole(config, "vocab_size"),
        hidden_size=hidden_size,
        num_layers=whole(config, "num_hidden_layers"),
        num_heads=heads,
        intermediate_size=whole(config, "intermediate_size"),
        positions="none" if rotary else "learned",
        max_positions=length,
        position_offset=0 if padding is None else padding + 1,
        padding_id=padding,
        embedding_norm=_given(config, "emb_layer_norm_before"),
        token_dropout=_mask(config) if _given(config, "token_dropout") else None,
        norm="pre",
        norm_eps=epsilon(config, "layer_norm_eps", default=1e-12),
        layers=(LayerConfig(rotary=read_rotary(theta, hidden_size // heads, 10_000.0) if rotary else None),),
        longest=length if rotary else 0,
    )


def _given(config: Mapping[str, Any], name: str) -> bool:
    """Read a switch that is off where the file has null; raises CheckpointError."""
    return config.get(name) is not None and switch(config, name, default=False)


def _mask(config: Mapping[str, Any]) -> int:
    """Read the id of the mask token, which token dropout needs; raises CheckpointError."""
    value = config.get("mask_token_id")
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CheckpointError(f"mask_token_id is {shown(value)}; token_dropout needs the mask token's id.")
    return value


_LAYER = "encoder.layer.{}."

ESM = Family(
    name="esm",
    tokenizer="EsmTokenizer",
    read_config=read_config,
    names={
        "embeddings.token": ("embeddings.word_embeddings.weight",),
        "embeddings.position": ("embeddings.position_embeddings.weight",),
        "embeddings.norm.weight": ("embeddings.layer_norm.weight",),
        "embeddings.norm.bias": ("embeddings.layer_norm.bias",),
        "final_norm.weight": ("encoder.emb_layer_norm_after.weight",),
        "final_norm.bias": ("encoder.emb_layer_norm_after.bias",),
    },
    block_names={
        **BERT.block_names,
        "attention_norm.weight": (f"{_LAYER}attention.LayerNorm.weight",),
        "attention_norm.bias": (f"{_LAYER}attention.LayerNorm.bias",),
        "feed_forward_norm.weight": (f"{_LAYER}LayerNorm.weight",),
        "feed_forward_norm.bias": (f"{_LAYER}LayerNorm.bias",),
    },
    # Checkpoints with rotary positions may contain a table of positions, too, which is not used.
    dropped=(*BERT.dropped, "embeddings.position_embeddings.weight", "*rotary_embeddings.inv_freq"),
    heads={"contact_head.*": "contacts", "lm_head.*": "masked residues", "classifier.*": "classes"},
    prefixes=("esm.",),
    predictors=ROBERTA.predictors,
    masks_embeddings=True,
    # Some were rounded to float16 in training. Older checkpoints repeat them in each layer, and transformers
    # 5 writes them under a name with a literal asterisk.
    frequencies=(
        "rotary_embeddings.inv_freq",
        "encoder.layer.0.attention.self.rotary_embeddings.inv_freq",
        "encoder.layer.*.attention.self.rotary_embeddings.inv_freq",
    ),
)
