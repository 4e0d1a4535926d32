"""Nomic's BERT (Nussbaum et al. 2024): rotary positions, gated SiLU or a mixture of experts."""

from collections.abc import Mapping
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import Activation, LayerConfig, Mixture, Rotary
from model.errors import CheckpointError
from model.families.bert.bert import BERT
from model.families.family import Either, Family, either_below
from model.families.reading.options import activation, check_heads, plain
from model.families.reading.rotary import positive, read_rotary
from model.fields import epsilon, switch, whole
from model.files import shown

_FEED_FORWARDS: dict[str, tuple[Activation, bool]] = {
    "gelu": ("gelu", False),
    "geglu": ("gelu", True),
    "swiglu": ("silu", True),
}
"""`activation_function` -> the activation, and whether it is gated. "gelu_new" and the like are left out:
despite these names, Nomic's code computes the exact GELU for them."""
_OTHER_CODE = ("prenorm", "parallel_block", "use_rms_norm", "causal", "rotary_head_dim")
"""Switches of Nomic's config that would make an encoder unlike any known text encoder."""
_OTHER_EXPERTS = ("moe_normalize_expert_weights", "num_shared_experts", "expert_choice_router")
"""Options that change what a mixture of experts computes."""
_GATE_STEP = 256
"""The intermediate size of a gated network is rounded up to a multiple of this."""


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a `config.json` in Nomic's own form, or in that of transformers; raises CheckpointError."""
    return _read_own(config) if "n_embd" in config else _read_native(config)


def _read_native(config: Mapping[str, Any]) -> EncoderConfig:
    check_heads(config)
    heads, hidden_size = whole(config, "num_attention_heads"), whole(config, "hidden_size")
    size = config.get("head_dim") or hidden_size // heads
    size = whole({"head_dim": size}, "head_dim", like="hidden_size")
    return EncoderConfig(
        vocab_size=whole(config, "vocab_size"),
        hidden_size=hidden_size,
        num_layers=whole(config, "num_hidden_layers"),
        num_heads=heads,
        intermediate_size=whole(config, "intermediate_size"),
        head_dim=size,
        positions="none",
        segments=whole(config, "type_vocab_size", least=0, default=2),
        norm_eps=epsilon(config, "layer_norm_eps", default=1e-12),
        activation=activation(config, "hidden_act", "silu"),
        gated=True,
        qkv_bias=False,
        output_bias=False,
        inner_bias=False,
        outer_bias=False,
        layers=(LayerConfig(rotary=read_rotary(config, size, 1000.0)),),
        longest=whole(config, "max_position_embeddings", default=2048),
    )


def _read_own(config: Mapping[str, Any]) -> EncoderConfig:
    """Read the form of Nomic's code, whose names and defaults are those of GPT-2 (Radford et al. 2019)."""
    check_heads(config, "n_embd", "n_head")
    _check_own(config)
    kind, gated = _feed_forward(config)
    heads, hidden_size = whole(config, "n_head", like="num_attention_heads"), _hidden_size(config)
    rotary = _rotary(config, hidden_size // heads)
    bias = switch(config, "qkv_proj_bias", default=True)
    longest = _longest(config, rotary)
    return EncoderConfig(
        vocab_size=_vocab_size(config),
        hidden_size=hidden_size,
        num_layers=whole(config, "n_layer", like="num_hidden_layers"),
        num_heads=heads,
        intermediate_size=_intermediate_size(config, gated=gated),
        positions="none" if rotary else "learned",
        max_positions=longest,
        segments=whole(config, "type_vocab_size", least=0, default=2),
        norm_eps=epsilon(config, "layer_norm_epsilon", default=1e-5),
        activation=kind,
        gated=gated,
        qkv_bias=bias,
        output_bias=bias,
        inner_bias=switch(config, "mlp_fc1_bias", default=True),
        outer_bias=switch(config, "mlp_fc2_bias", default=True),
        layers=_layers(config, rotary, kind, gated=gated),
        longest=longest,
    )


def _layers(
    config: Mapping[str, Any], rotary: Rotary | None, kind: Activation, *, gated: bool
) -> tuple[LayerConfig, ...]:
    """Read the layers: one config for all, or experts in the second of every `moe_every_n_layers` layers."""
    experts, step = (
        whole({name: config.get(name) or 0}, name, like="num_hidden_layers", least=0)
        for name in ("num_experts", "moe_every_n_layers")
    )
    if not (experts and step):
        return (LayerConfig(rotary=rotary),)
    if gated or kind != "gelu":
        raise CheckpointError('num_experts is set: the activation_function of experts must be "gelu".')
    for name in _OTHER_EXPERTS:
        if config.get(name):
            raise CheckpointError(f"{name} is set: this is not supported.")
    chosen = whole(config, "moe_top_k", like="num_hidden_layers", default=1)
    mixture = Mixture(experts, chosen)
    layers = whole(config, "n_layer", like="num_hidden_layers")
    return tuple(
        LayerConfig(rotary=rotary, mixture=mixture if n % step == 1 else None) for n in range(layers)
    )


def _check_own(config: Mapping[str, Any]) -> None:
    """Raise CheckpointError for an option of Nomic's code that would change the encoder."""
    for name in _OTHER_CODE:
        if switch(config, name, default=False):
            raise CheckpointError(f"{name} is set: this is not supported.")
    if config.get("rotary_emb_scale_base") is not None:
        raise CheckpointError("rotary_emb_scale_base is set: rotary positions that decay are not supported.")
    if config.get("num_heads_kv") not in (None, config["n_head"]):
        raise CheckpointError(f"num_heads_kv is {shown(config['num_heads_kv'])}; it must equal n_head.")


def _hidden_size(config: Mapping[str, Any]) -> int:
    return whole(config, "n_embd", like="hidden_size")


def _feed_forward(config: Mapping[str, Any]) -> tuple[Activation, bool]:
    """Return the activation, and whether the feed-forward network is gated."""
    name = config.get("activation_function", "gelu_new")
    if not isinstance(name, str) or name not in _FEED_FORWARDS:
        raise CheckpointError(
            f'activation_function "{plain(name)}" is not one of {", ".join(_FEED_FORWARDS)}.'
        )
    return _FEED_FORWARDS[name]


def _intermediate_size(config: Mapping[str, Any], *, gated: bool) -> int:
    size = config.get("n_inner")
    if size is None:
        size = 8 * _hidden_size(config) // 3 if gated else 4 * _hidden_size(config)
    size = whole({"n_inner": size}, "n_inner", like="intermediate_size")
    return -(-size // _GATE_STEP) * _GATE_STEP if gated else size


def _vocab_size(config: Mapping[str, Any]) -> int:
    """Return the rows of the token table: the size of the vocabulary, rounded up as in Nomic's code."""
    step = whole(config, "pad_vocab_size_multiple", like="vocab_size", default=1)
    return -(-whole(config, "vocab_size") // step) * step


def _rotary(config: Mapping[str, Any], head_size: int) -> Rotary | None:
    """Read the rotary positions; None for learned ones."""
    fraction = config.get("rotary_emb_fraction", 0.0)
    if fraction == 0 and not isinstance(fraction, bool):
        return None
    size = head_size * positive({"rotary_emb_fraction": fraction}, "rotary_emb_fraction")
    if size % 2:
        raise CheckpointError(
            f"rotary_emb_fraction is {fraction}, which rotates {size:g} of the {head_size} components of a "
            "head; the number of rotated components must be even."
        )
    base = positive({"rotary_emb_base": config.get("rotary_emb_base", 10_000.0)}, "rotary_emb_base")
    interleaved = switch(config, "rotary_emb_interleaved", default=False)
    return Rotary.of(int(size), base, interleaved=interleaved)


def _longest(config: Mapping[str, Any], rotary: Rotary | None) -> int:
    """Read the length of the longest text, in tokens.

    With `rotary_scaling_factor`, it is at most the length in training: beyond that, Nomic's code enlarges the
    base with the longest text of a batch, so that the states of a text would depend on its batch.
    """
    positions = config.get("n_positions", 1024)
    if rotary is not None and isinstance(positions, int) and positions <= 0:
        positions = 2048
    positions = whole({"n_positions": positions}, "n_positions", like="max_position_embeddings")
    if rotary is None or not config.get("rotary_scaling_factor", 1.0):
        return positions
    trained = whole(config, "max_trained_positions", like="max_position_embeddings", default=2048)
    return min(positions, trained)


_OWN, _NATIVE = "encoder.layers.{}.", "layers.{}."


_either = either_below(_OWN, _NATIVE)

NOMIC_BERT = Family(
    name="nomic_bert",
    tokenizer="BertTokenizer",
    read_config=read_config,
    names={
        "embeddings.token": ("embeddings.word_embeddings.weight",),
        "embeddings.position": ("embeddings.position_embeddings.weight",),
        "embeddings.segment": ("embeddings.token_type_embeddings.weight",),
        "embeddings.norm.weight": Either((("emb_ln.weight",), ("embeddings.LayerNorm.weight",))),
        "embeddings.norm.bias": Either((("emb_ln.bias",), ("embeddings.LayerNorm.bias",))),
    },
    block_names={
        "attention.qkv.weight": Either(
            (
                (f"{_OWN}attn.Wqkv.weight",),
                tuple(f"{_NATIVE}self_attn.{part}_proj.weight" for part in "qkv"),
            )
        ),
        "attention.qkv.bias": (f"{_OWN}attn.Wqkv.bias",),
        "attention.output.weight": _either("attn.out_proj.weight", "self_attn.o_proj.weight"),
        "attention.output.bias": (f"{_OWN}attn.out_proj.bias",),
        "attention_norm.weight": _either("norm1.weight", "post_attention_layernorm.weight"),
        "attention_norm.bias": _either("norm1.bias", "post_attention_layernorm.bias"),
        "feed_forward.inner.weight": Either(
            (
                (f"{_OWN}mlp.fc12.weight", f"{_OWN}mlp.fc11.weight"),  # the gate and the value
                tuple(f"{_NATIVE}mlp.{part}_proj.weight" for part in ("gate", "up")),
                (f"{_OWN}mlp.fc1.weight",),
            )
        ),
        "feed_forward.inner.bias": Either(
            ((f"{_OWN}mlp.fc12.bias", f"{_OWN}mlp.fc11.bias"), (f"{_OWN}mlp.fc1.bias",))
        ),
        "feed_forward.router.weight": (f"{_OWN}mlp.router.layer.weight",),
        "feed_forward.first": (f"{_OWN}mlp.experts.mlp.w1",),
        "feed_forward.second": (f"{_OWN}mlp.experts.mlp.w2",),
        "feed_forward.bias": (f"{_OWN}mlp.experts.bias",),
        "feed_forward.outer.weight": _either("mlp.fc2.weight", "mlp.down_proj.weight"),
        "feed_forward.outer.bias": (f"{_OWN}mlp.fc2.bias",),
        "feed_forward_norm.weight": _either("norm2.weight", "post_mlp_layernorm.weight"),
        "feed_forward_norm.bias": _either("norm2.bias", "post_mlp_layernorm.bias"),
    },
    # The pooler, like the heads, follows the encoder and is not served.
    dropped=("pooler.dense.weight", "pooler.dense.bias"),
    heads={"cls.predictions.*": "masked words", "classifier.*": "classes"},
    prefixes=("nomic_bert.", "bert."),
    predictors=BERT.predictors,
)
