"""jina-embeddings-v3 (Sturua et al. 2024): XLM-RoBERTa with rotary positions, and adapters for tasks.

There are two forms: that of `transformers`, without adapters, and the original one, which jina's code reads
and whose `model_type` is "xlm-roberta". That code stores the adapters of a weight as its parametrization.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import LayerConfig, Rotary
from model.errors import CheckpointError
from model.families.bert import bert
from model.families.bert.roberta import ROBERTA
from model.families.family import Either, Family, Sources
from model.families.reading.adapters import read_adapters
from model.families.reading.options import plain
from model.families.reading.rotary import positive, read_rotary
from model.fields import epsilon, whole
from model.files import shown


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read the `config.json` of `transformers`; raises CheckpointError for options that are not supported."""
    encoder = bert.read_config({"type_vocab_size": 1, "max_position_embeddings": 8194, **config})
    return replace(
        encoder,
        positions="none",
        norm_eps=epsilon(config, "layer_norm_eps", default=1e-5),
        layers=(LayerConfig(rotary=read_rotary(config, encoder.head_size, 20_000.0)),),
        longest=whole(config, "max_position_embeddings", default=8194),
    )


_UNSUPPORTED = ("rotary_emb_dim", "rotary_emb_scale_base", "rotary_emb_interleaved")
"""Options of jina's code that no published config sets."""


def read_original_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read the `config.json` of jina's code; raises CheckpointError for options that are not supported."""
    positions = config.get("position_embedding_type", "rotary")
    if positions != "rotary":
        raise CheckpointError(
            f'position_embedding_type "{plain(positions)}" is not supported with jina\'s code, only "rotary".'
        )
    for name in _UNSUPPORTED:
        if config.get(name):
            raise CheckpointError(f"{name} is {shown(config[name])}, which is not supported; remove it.")
    encoder = read_config({**config, "position_embedding_type": "absolute"})
    base = positive({"rotary_emb_base": 10_000.0, **config}, "rotary_emb_base")
    rotary = Rotary.of(encoder.head_size, base)
    return replace(encoder, layers=(LayerConfig(rotary=rotary),), adapters=read_adapters(config))


# The names of transformers, and those of the original checkpoints.
_LAYER, _ORIGINAL = "layers.{}.", "encoder.layers.{}."
_NO_TASKS = (
    "the checkpoint has LoRA adapters, which headlight does not read with model_type jina_embeddings_v3: "
    "use the original checkpoint, jinaai/jina-embeddings-v3"
)
_UPDATED = "parametrizations.weight."
"""The prefix of a weight and of its adapters, in checkpoints with adapters."""


def _either(native: str, original: str) -> Either:
    return _stored((_LAYER + native,), _ORIGINAL + original)


def _stored(native: Sources, original: str) -> Either:
    """Return the names a tensor may have in `transformers` and in original checkpoints."""
    layer, _, kind = original.rpartition(".")
    options: tuple[Sources, ...] = (native, (original,))
    return Either((*options, (f"{layer}.{_UPDATED}original",)) if kind == "weight" else options)


def _qkv(kind: str) -> Either:
    return _stored(
        tuple(f"{_LAYER}self_attn.{part}_proj.{kind}" for part in "qkv"), f"{_ORIGINAL}mixer.Wqkv.{kind}"
    )


def _adapters(layers: Mapping[str, str], below: str = "") -> dict[str, Sources]:
    """Return the names of the adapters' matrices A and B; `layers` maps our names to the original ones."""
    return {
        f"{ours}.{part}": (f"{below}{theirs}.{_UPDATED}0.lora_{letter}",)
        for ours, theirs in layers.items()
        for part, letter in (("down", "A"), ("up", "B"))
    }


JINA_V3 = Family(
    name="jina_embeddings_v3",
    read_config=read_config,
    names={
        "embeddings.token": _stored(
            ("embeddings.word_embeddings.weight",), "embeddings.word_embeddings.weight"
        ),
        "embeddings.segment": _stored(
            ("embeddings.token_type_embeddings.weight",), "embeddings.token_type_embeddings.weight"
        ),
        "embeddings.norm.weight": Either((("embeddings.LayerNorm.weight",), ("emb_ln.weight",))),
        "embeddings.norm.bias": Either((("embeddings.LayerNorm.bias",), ("emb_ln.bias",))),
    },
    block_names={
        "attention.qkv.weight": _qkv("weight"),
        "attention.qkv.bias": _qkv("bias"),
        "attention.output.weight": _either("self_attn.o_proj.weight", "mixer.out_proj.weight"),
        "attention.output.bias": _either("self_attn.o_proj.bias", "mixer.out_proj.bias"),
        "attention_norm.weight": _either("post_attention_layernorm.weight", "norm1.weight"),
        "attention_norm.bias": _either("post_attention_layernorm.bias", "norm1.bias"),
        "feed_forward.inner.weight": _either("mlp.fc1.weight", "mlp.fc1.weight"),
        "feed_forward.inner.bias": _either("mlp.fc1.bias", "mlp.fc1.bias"),
        "feed_forward.outer.weight": _either("mlp.fc2.weight", "mlp.fc2.weight"),
        "feed_forward.outer.bias": _either("mlp.fc2.bias", "mlp.fc2.bias"),
        "feed_forward_norm.weight": _either("post_mlp_layernorm.weight", "norm2.weight"),
        "feed_forward_norm.bias": _either("post_mlp_layernorm.bias", "norm2.bias"),
    },
    dropped=("pooler.dense.weight", "pooler.dense.bias"),
    heads=ROBERTA.heads,
    predictors=ROBERTA.predictors,
    refused={"*parametrizations.*": _NO_TASKS, "*.lora_*": _NO_TASKS},
    prefixes=("roberta.",),
)

JINA_V3_ORIGINAL = replace(
    JINA_V3,
    name="jina_xlm_roberta",
    tokenizer="XLMRobertaTokenizer",
    read_config=read_original_config,
    names={
        **JINA_V3.names,
        **_adapters(
            {
                "embeddings.adapters.token": "embeddings.word_embeddings",
                "embeddings.adapters.segment": "embeddings.token_type_embeddings",
            }
        ),
    },
    block_names={
        **JINA_V3.block_names,
        **_adapters(
            {
                "attention.qkv.adapters": "mixer.Wqkv",
                "attention.output.adapters": "mixer.out_proj",
                "feed_forward.inner.adapters": "mlp.fc1",
                "feed_forward.outer.adapters": "mlp.fc2",
            },
            _ORIGINAL,
        ),
    },
    dropped=("pooler.dense.*",),
    refused={},
)
