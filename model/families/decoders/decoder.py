"""What decoders have in common: rotary positions, RMS norms first, gated feed-forward, shared keys."""

from collections.abc import Callable, Mapping
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import LayerConfig, Rotary
from model.errors import CheckpointError
from model.families.family import Family, Sources
from model.families.predictors import LinearNames, PredictorTable, linear
from model.families.reading.options import activation, check_at_least, plain
from model.families.reading.rotary import read_rotary
from model.fields import epsilon, switch, whole
from model.files import shown

FULL, SLIDING = "full_attention", "sliding_attention"
_LAYER = "layers.{}."

NAMES: dict[str, Sources] = {
    "embeddings.token": ("embed_tokens.weight",),
    "final_norm.weight": ("norm.weight",),
}
BLOCK_NAMES: dict[str, Sources] = {
    "attention.qkv.weight": tuple(f"{_LAYER}self_attn.{part}_proj.weight" for part in "qkv"),
    "attention.qkv.bias": tuple(f"{_LAYER}self_attn.{part}_proj.bias" for part in "qkv"),
    "attention.query_norm.weight": (f"{_LAYER}self_attn.q_norm.weight",),
    "attention.key_norm.weight": (f"{_LAYER}self_attn.k_norm.weight",),
    "attention.output.weight": (f"{_LAYER}self_attn.o_proj.weight",),
    "attention.output.bias": (f"{_LAYER}self_attn.o_proj.bias",),
    "attention_norm.weight": (f"{_LAYER}input_layernorm.weight",),
    "feed_forward.inner.weight": tuple(f"{_LAYER}mlp.{part}_proj.weight" for part in ("gate", "up")),
    "feed_forward.inner.bias": tuple(f"{_LAYER}mlp.{part}_proj.bias" for part in ("gate", "up")),
    "feed_forward.outer.weight": (f"{_LAYER}mlp.down_proj.weight",),
    "feed_forward.outer.bias": (f"{_LAYER}mlp.down_proj.bias",),
    "feed_forward_norm.weight": (f"{_LAYER}post_attention_layernorm.weight",),
}
DROPPED = ("layers.*.self_attn.rotary_emb.inv_freq",)
"""Rotary frequencies in older checkpoints, which config.json gives as well."""
HEADS = {"lm_head.*": "the next word", "score.*": "classes"}
TOKEN_CLASSES = PredictorTable((linear("score"),))


def classes(padding: int = -1) -> PredictorTable:
    """Return the table of classes of a sequence; `padding` is `pad_token_id` where config.json has none."""

    def read(config: Mapping[str, Any]) -> int:
        given = config.get("pad_token_id", padding)
        return (
            -1
            if given is None
            else whole({"pad_token_id": given}, "pad_token_id", like="vocab_size", least=-1)
        )

    return PredictorTable((LinearNames(("score.weight",), ()),), lambda _: "last", read)


def family(name: str, read_config: Callable[[Mapping[str, Any]], EncoderConfig], **others: Any) -> Family:
    """Return a family whose weights have the names that decoders share; `others` are fields of Family."""
    fields: dict[str, Any] = {
        "names": NAMES,
        "block_names": BLOCK_NAMES,
        "dropped": DROPPED,
        "heads": HEADS,
        "prefixes": ("model.",),
        "predictors": {"classification": classes(), "token_classification": TOKEN_CLASSES},
    }
    return Family(name=name, read_config=read_config, **fields | others)


def read_decoder(
    config: Mapping[str, Any], size: int, *, base: float = 10_000.0, **others: Any
) -> EncoderConfig:
    """Read the fields that decoders share in `config.json`; raises CheckpointError for unsupported ones.

    `size` is the size of a head, `base` the rotary base if config.json has none; `others` are fields of
    EncoderConfig.
    """
    heads = whole(config, "num_attention_heads")
    shares = config.get("num_key_value_heads") is not None
    fields: dict[str, Any] = {
        "vocab_size": whole(config, "vocab_size"),
        "hidden_size": whole(config, "hidden_size"),
        "num_layers": whole(config, "num_hidden_layers"),
        "num_heads": heads,
        "intermediate_size": whole(config, "intermediate_size"),
        "head_dim": size,
        "num_kv_heads": whole(config, "num_key_value_heads", like="num_attention_heads") if shares else heads,
        "positions": "none",
        "embedding_norm": False,
        "norm": "pre",
        "norm_kind": "rms",
        "norm_eps": epsilon(config, "rms_norm_eps", default=1e-6),
        "gated": True,
        "qkv_bias": False,
        "output_bias": False,
        "inner_bias": False,
        "outer_bias": False,
        "causal": is_causal(config),
        "longest": whole(config, "max_position_embeddings", default=32768),
    }
    if "activation" not in others:
        fields["activation"] = activation(config, "hidden_act", "silu")
    if "layers" not in others:
        fields["layers"] = (LayerConfig(rotary=read_angles(config, size, base)),)
    return EncoderConfig(**fields | others)


def head_size(config: Mapping[str, Any], *, default: int | None = None) -> int:
    """Read the size of a head, by default hidden size / number of heads; raises CheckpointError."""
    given = config.get("head_dim")
    if given is None and default is None:
        hidden, heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
        if hidden % heads:
            raise CheckpointError(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}.")
        return hidden // heads
    return whole({"head_dim": default if given is None else given}, "head_dim", like="hidden_size")


def is_causal(config: Mapping[str, Any]) -> bool:
    """Read whether tokens attend to none after them: `is_causal`, or `use_bidirectional_attention`."""
    return switch(config, "is_causal", default=True) and not is_bidirectional(config)


def is_bidirectional(config: Mapping[str, Any]) -> bool:
    """Read `use_bidirectional_attention`, which may be null; raises CheckpointError."""
    name = "use_bidirectional_attention"
    return config.get(name) is not None and switch(config, name, default=False)


def read_angles(config: Mapping[str, Any], size: int, base: float = 10_000.0) -> Rotary:
    """Read rotary positions that turn whole heads; raises CheckpointError for others."""
    for given in (config, config.get("rope_parameters"), config.get("rope_scaling")):
        fraction = given.get("partial_rotary_factor") if isinstance(given, dict) else None
        if fraction not in (None, 1, 1.0):
            raise CheckpointError(
                f"partial_rotary_factor is {shown(fraction)}; in this family it must be 1.0: whole heads "
                "are rotated."
            )
    return read_rotary(config, size, base)


def read_window(config: Mapping[str, Any], *, exclusive: bool | None = None) -> int:
    """Read how far a token sees in a layer with a window, as transformers does; raises CheckpointError.

    An `exclusive` window, by default a causal one, counts the token itself.
    """
    width = whole(config, "sliding_window", like="max_position_embeddings")
    exclusive = is_causal(config) if exclusive is None else exclusive
    check_at_least("sliding_window", width, 2 if exclusive else 1)
    return width - 1 if exclusive else width


def read_kinds(
    config: Mapping[str, Any], default: list[str], kinds: tuple[str, str] = (FULL, SLIDING)
) -> list[str]:
    """Read the kind of each layer, one of two, from `layer_types`; returns `default` if that is missing.

    Raises CheckpointError for other kinds.
    """
    listed, layers = config.get("layer_types"), whole(config, "num_hidden_layers")
    if listed is None:
        return default
    if not isinstance(listed, list) or len(listed) != layers:
        raise CheckpointError(
            f"layer_types is {shown(listed)}; it must list a kind for each of the {layers} layers."
        )
    for kind in listed:
        if kind not in kinds:
            raise CheckpointError(f'layer_types has "{plain(kind)}"; a kind is "{kinds[0]}" or "{kinds[1]}".')
    return listed
