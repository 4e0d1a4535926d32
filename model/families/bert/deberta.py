"""DeBERTa-v2 and v3 (He et al. 2021, 2023): BERT whose queries and keys are also compared with distances."""

from collections.abc import Mapping
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import Activation, Convolution, Disentangled, LayerConfig
from model.errors import CheckpointError
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
from model.families.reading.options import activation, check_heads, plain
from model.fields import epsilon, switch, whole
from model.files import shown

_KINDS = ("c2p", "p2c")


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a DeBERTa-v2 `config.json`; raises CheckpointError for options that are not supported."""
    check_heads(config)
    hidden_size, heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    layers, longest = whole(config, "num_hidden_layers"), whole(config, "max_position_embeddings")
    head_size = config.get("attention_head_size", hidden_size // heads)
    if head_size != hidden_size // heads:
        raise CheckpointError(
            f"attention_head_size is {shown(head_size)}; it must be hidden_size / num_attention_heads, "
            f"{hidden_size // heads}."
        )
    kinds = _kinds(config)
    width = whole(config, "embedding_size", like="hidden_size", default=hidden_size)
    convolution = _read_convolution(config)
    return EncoderConfig(
        vocab_size=whole(config, "vocab_size"),
        hidden_size=hidden_size,
        num_layers=layers,
        num_heads=heads,
        intermediate_size=whole(config, "intermediate_size"),
        positions="learned" if switch(config, "position_biased_input", default=True) else "none",
        max_positions=longest,
        longest=longest,
        segments=whole(config, "type_vocab_size", least=0, default=0),
        embedding_size=0 if width == hidden_size else width,
        project_first=width != hidden_size,
        norm_eps=epsilon(config, "layer_norm_eps", default=1e-7),
        activation=activation(config, "hidden_act"),
        # The same whether or not the attention is relative.
        scale=(head_size * (1 + len(kinds))) ** -0.5,
        disentangled=_read_disentangled(config, kinds),
        layers=(LayerConfig(convolution=convolution), *[LayerConfig()] * (layers - 1)),
    )


def _kinds(config: Mapping[str, Any]) -> set[str]:
    """Read `pos_att_type`: a list, or a text whose parts are separated by bars."""
    given = config.get("pos_att_type") or []
    kinds = [part.strip() for part in given.lower().split("|")] if isinstance(given, str) else given
    if not isinstance(kinds, list) or any(kind not in _KINDS for kind in kinds):
        raise CheckpointError(f"pos_att_type is {shown(given)}; it may have only {' and '.join(_KINDS)}.")
    return set(kinds)


def _read_disentangled(config: Mapping[str, Any], kinds: set[str]) -> Disentangled | None:
    if not kinds or not switch(config, "relative_attention", default=False):
        return None
    distance = _positive(config, "max_relative_positions") or whole(config, "max_position_embeddings")
    buckets = _positive(config, "position_buckets")
    if buckets % 2 or (buckets and distance - 1 <= buckets // 2):
        raise CheckpointError(
            f"position_buckets is {buckets}; it must be even, and less than 2·(max_relative_positions − 1), "
            f"{2 * (distance - 1)}."
        )
    return Disentangled(
        max_distance=distance,
        buckets=buckets,
        content_to_position="c2p" in kinds,
        position_to_content="p2c" in kinds,
        shared=switch(config, "share_att_key", default=False),
        norm=_norms_distances(config),
    )


def _positive(config: Mapping[str, Any], name: str) -> int:
    """Read a number of positions; 0 if it is missing or below 1, such as -1."""
    value = config.get(name, -1)
    unset = isinstance(value, int) and not isinstance(value, bool) and value < 1
    return 0 if unset else whole(config, name, like="max_position_embeddings")


def _norms_distances(config: Mapping[str, Any]) -> bool:
    """Read `norm_rel_ebd`: "none", "layer_norm", or both separated by a bar."""
    given = config.get("norm_rel_ebd", "none")
    kinds = {part.strip() for part in given.lower().split("|")} if isinstance(given, str) else {""}
    if not kinds <= {"none", "layer_norm"}:
        raise CheckpointError(f'norm_rel_ebd "{plain(given)}" is not supported, only "none" or "layer_norm".')
    return "layer_norm" in kinds


def _read_convolution(config: Mapping[str, Any]) -> Convolution | None:
    """Read the convolution beside the first layer."""
    size = whole(config, "conv_kernel_size", like="max_position_embeddings", least=0, default=0)
    if not size:
        return None
    groups = whole(config, "conv_groups", like="hidden_size", default=1)
    if not size % 2:
        raise CheckpointError(f"conv_kernel_size is {size}; it must be odd.")
    if whole(config, "hidden_size") % groups:
        raise CheckpointError(f"hidden_size is not a multiple of conv_groups, {groups}.")
    name = config.get("conv_act", "tanh")
    kind: Activation | Any = "tanh" if name == "tanh" else activation(config, "conv_act")
    return Convolution(size, groups, kind)


_ATTENTION = "encoder.layer.{}.attention.self."
_TABLE, _NORM = "encoder.rel_embeddings.weight", "encoder.LayerNorm"
_KEY, _QUERY, _CONVOLUTION = f"{_ATTENTION}pos_key_proj", f"{_ATTENTION}pos_query_proj", "encoder.conv"

DEBERTA = Family(
    name="deberta-v2",
    tokenizer="DebertaV2Tokenizer",
    read_config=read_config,
    names={
        **bert.BERT.names,
        "embeddings.projection.weight": ("embeddings.embed_proj.weight",),
        "distances.table": (_TABLE,),
        "distances.norm.weight": (f"{_NORM}.weight",),
        "distances.norm.bias": (f"{_NORM}.bias",),
    },
    block_names={
        **bert.BERT.block_names,
        "attention.qkv.weight": tuple(
            f"{_ATTENTION}{part}_proj.weight" for part in ("query", "key", "value")
        ),
        "attention.qkv.bias": tuple(f"{_ATTENTION}{part}_proj.bias" for part in ("query", "key", "value")),
        "attention.position_key.weight": (f"{_KEY}.weight",),
        "attention.position_key.bias": (f"{_KEY}.bias",),
        "attention.position_query.weight": (f"{_QUERY}.weight",),
        "attention.position_query.bias": (f"{_QUERY}.bias",),
        "convolution.weight": (f"{_CONVOLUTION}.conv.weight",),
        "convolution.bias": (f"{_CONVOLUTION}.conv.bias",),
        "convolution_norm.weight": (f"{_CONVOLUTION}.LayerNorm.weight",),
        "convolution_norm.bias": (f"{_CONVOLUTION}.LayerNorm.bias",),
    },
    # Files keep tables that their config.json leaves unused.
    dropped=(*bert.BERT.dropped, "embeddings.position_embeddings.weight", _TABLE, f"{_NORM}.*"),
    heads={
        "cls.predictions.*": "masked words",
        "lm_predictions.*": "masked words",
        "mask_predictions.*": "replaced words",
        "classifier.*": "classes",
        "qa_outputs.*": "answers within a text",
    },
    prefixes=("deberta.",),
    predictors={
        "classification": classes(
            linear("pooler.dense", activation=configured("pooler_hidden_act")), linear("classifier")
        ),
        "token_classification": TOKEN_CLASSES,
        "masked_words": PredictorTable(
            (
                linear(
                    "cls.predictions.transform.dense",
                    "lm_predictions.lm_head.dense",
                    activation=configured("hidden_act"),
                ),
                norm("cls.predictions.transform.LayerNorm", "lm_predictions.lm_head.LayerNorm", default=1e-7),
                decoder(
                    ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
                    ("cls.predictions.bias", "lm_predictions.lm_head.bias"),
                ),
            )
        ),
    },
)
