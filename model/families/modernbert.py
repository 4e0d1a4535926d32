"""ModernBERT (Warner et al. 2024): rotary positions, windows in most layers, norms first, gated GELU."""

from collections.abc import Mapping
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import LayerConfig
from model.errors import CheckpointError
from model.families.family import Family
from model.families.predictors import PredictorTable, configured, decoder, linear, norm, pooled_by
from model.families.reading.options import activation, check_at_least, check_heads, plain
from model.families.reading.rotary import read_rotary
from model.fields import epsilon, switch, whole
from model.files import shown

_FULL, _SLIDING = "full_attention", "sliding_attention"
_BASES = {_FULL: ("global_rope_theta", 160_000.0), _SLIDING: ("local_rope_theta", 10_000.0)}


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a ModernBERT `config.json`; raises CheckpointError for options that are not supported."""
    check_heads(config)
    bias = switch(config, "mlp_bias", default=False)
    attention_bias = switch(config, "attention_bias", default=False)
    return EncoderConfig(
        vocab_size=whole(config, "vocab_size"),
        hidden_size=whole(config, "hidden_size"),
        num_layers=whole(config, "num_hidden_layers"),
        num_heads=whole(config, "num_attention_heads"),
        intermediate_size=whole(config, "intermediate_size"),
        positions="none",
        norm="pre",
        norm_bias=switch(config, "norm_bias", default=False),
        norm_eps=epsilon(config, "norm_eps", default=1e-5),
        activation=activation(config, "hidden_activation"),
        gated=True,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        inner_bias=bias,
        outer_bias=bias,
        layers=tuple(_layers(config)),
        longest=whole(config, "max_position_embeddings", default=8192),
    )


def _layers(config: Mapping[str, Any]) -> list[LayerConfig]:
    """Read the window and the rotary base of each layer; the first layer has no attention norm."""
    size = whole(config, "hidden_size") // whole(config, "num_attention_heads")
    parameters = config.get("rope_parameters") or {}
    rotary = {}
    for kind, (name, default) in _BASES.items():
        own = parameters.get(kind) if isinstance(parameters, dict) else None
        rotary[kind] = read_rotary({"rope_parameters": own, "rope_theta": config.get(name)}, size, default)
    width = whole(config, "local_attention", like="max_position_embeddings", default=128)
    check_at_least("local_attention", width, 2)
    windows = {_FULL: 0, _SLIDING: width // 2}
    return [
        LayerConfig(windows[kind], rotary[kind], attention_norm=number > 0)
        for number, kind in enumerate(_kinds(config))
    ]


def _kinds(config: Mapping[str, Any]) -> list[str]:
    """Read the kind of each layer: as listed, or full attention in every n-th layer."""
    layers, listed = whole(config, "num_hidden_layers"), config.get("layer_types")
    if listed is None:
        step = whole(config, "global_attn_every_n_layers", like="num_hidden_layers", default=3)
        return [_SLIDING if number % step else _FULL for number in range(layers)]
    if not isinstance(listed, list) or len(listed) != layers:
        raise CheckpointError(
            f"layer_types is {shown(listed)}; it must list a kind for each of the {layers} layers."
        )
    for kind in listed:
        if kind not in (_FULL, _SLIDING):
            raise CheckpointError(f'layer_types has "{plain(kind)}"; a kind is "{_FULL}" or "{_SLIDING}".')
    return listed


_LAYER = "layers.{}."
_HEAD = (
    linear("head.dense", activation=configured("classifier_activation")),
    norm("head.norm", field="norm_eps", default=1e-5),
)

MODERNBERT = Family(
    name="modernbert",
    keeps_tokenizer=True,
    read_config=read_config,
    names={
        "embeddings.token": ("embeddings.tok_embeddings.weight",),
        "embeddings.norm.weight": ("embeddings.norm.weight",),
        "embeddings.norm.bias": ("embeddings.norm.bias",),
        "final_norm.weight": ("final_norm.weight",),
        "final_norm.bias": ("final_norm.bias",),
    },
    block_names={
        "attention.qkv.weight": (f"{_LAYER}attn.Wqkv.weight",),
        "attention.qkv.bias": (f"{_LAYER}attn.Wqkv.bias",),
        "attention.output.weight": (f"{_LAYER}attn.Wo.weight",),
        "attention.output.bias": (f"{_LAYER}attn.Wo.bias",),
        "attention_norm.weight": (f"{_LAYER}attn_norm.weight",),
        "attention_norm.bias": (f"{_LAYER}attn_norm.bias",),
        "feed_forward.inner.weight": (f"{_LAYER}mlp.Wi.weight",),
        "feed_forward.inner.bias": (f"{_LAYER}mlp.Wi.bias",),
        "feed_forward.outer.weight": (f"{_LAYER}mlp.Wo.weight",),
        "feed_forward.outer.bias": (f"{_LAYER}mlp.Wo.bias",),
        "feed_forward_norm.weight": (f"{_LAYER}mlp_norm.weight",),
        "feed_forward_norm.bias": (f"{_LAYER}mlp_norm.bias",),
    },
    heads={"head.*": "classes or masked words", "decoder.*": "masked words", "classifier.*": "classes"},
    prefixes=("model.",),
    predictors={
        "classification": PredictorTable(
            (*_HEAD, linear("classifier")), pooled_by("classifier_pooling", {"cls": "cls", "mean": "mean"})
        ),
        "token_classification": PredictorTable((*_HEAD, linear("classifier"))),
        "masked_words": PredictorTable(
            (*_HEAD, decoder(("decoder.weight", "embeddings.tok_embeddings.weight"), ("decoder.bias",)))
        ),
    },
)
