"""EmbeddingGemma 2 (2026), of which only the text part is served: an encoder of Gemma's blocks.

Every layer attends in both directions; those without a window have other heads than the rest.
Values are normalised, scores are not scaled, and each layer gets inputs of its own from the embeddings. A
projection makes the final vectors.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import LayerConfig
from model.errors import CheckpointError
from model.families.decoders import decoder
from model.families.decoders.decoder import FULL, SLIDING
from model.families.decoders.gemma import GEMMA3
from model.families.reading.options import activation
from model.fields import switch, whole
from model.files import shown

_SIZES = {"head_dim": "hidden_size", "num_key_value_heads": "num_attention_heads"}
"""The fields that may differ from layer to layer, and the fields whose bounds they have."""
_BASES = {FULL: 1_000_000.0, SLIDING: 10_000.0}


def read_text(config: Mapping[str, Any]) -> EncoderConfig:
    """Read the `config.json` of the text part; raises CheckpointError for what is not supported."""
    config = {"num_key_value_heads": 2, **config}
    bias = switch(config, "attention_bias", default=False)
    return decoder.read_decoder(
        config,
        decoder.head_size(config, default=256),
        activation=activation(config, "hidden_activation", "gelu_pytorch_tanh"),
        norm="sandwich",
        qk_norm="rms",
        value_norm=True,
        scale=1.0,
        qkv_bias=bias,
        output_bias=bias,
        causal=False,
        scale_embeddings=True,
        layers=_layers(config),
        longest=whole(config, "max_position_embeddings", default=262_144),
        per_layer_size=whole(config, "hidden_size_per_layer_input", like="hidden_size", default=512),
    )


def read_whole(config: Mapping[str, Any]) -> EncoderConfig:
    """Read the text part of a `config.json` for texts, images and sounds; raises CheckpointError."""
    text = config.get("text_config")
    if not isinstance(text, dict):
        raise CheckpointError(f"text_config is {shown(text)}; it must be an object.")
    return read_text(text)


def _layers(config: Mapping[str, Any]) -> tuple[LayerConfig, ...]:
    """Read the window, the heads and the angles of each layer."""
    count = whole(config, "num_hidden_layers")
    step = whole(config, "sliding_window_pattern", like="num_hidden_layers", default=6)
    kinds = decoder.read_kinds(config, [SLIDING if number % step else FULL for number in range(1, count + 1)])
    if kinds[-1] != FULL:
        raise CheckpointError(f'layer_types ends in "{SLIDING}"; the last layer must be "{FULL}".')
    own, layers = _own_sizes(config, kinds), []
    for number, kind in enumerate(kinds):
        sizes = {**{name: config.get(name) for name in _SIZES}, **own.get(number, {})}
        size = decoder.head_size(sizes, default=256)
        keys = whole(sizes, "num_key_value_heads", like="num_attention_heads")
        window = whole(config, "sliding_window", like="max_position_embeddings") if kind == SLIDING else 0
        layers.append(LayerConfig(window, _angles(config, kind, size), head_dim=size, num_kv_heads=keys))
    return tuple(layers)


def _angles(config: Mapping[str, Any], kind: str, size: int) -> Any:
    """Read the rotary positions of a kind of layer, for heads of this size."""
    listed = config.get("rope_parameters")
    own = listed.get(kind) if isinstance(listed, dict) else listed
    return decoder.read_angles({"rope_parameters": own}, size, _BASES[kind])


def _own_sizes(config: Mapping[str, Any], kinds: list[str]) -> dict[int, Mapping[str, Any]]:
    """Read which sizes differ in which layers; raises CheckpointError for any but those of heads.

    Without `per_layer_config`, layers without a window take the fields with "global" in their names.
    """
    listed = config.get("per_layer_config")
    if listed is None:
        given = {"global_head_dim": 512, "num_global_key_value_heads": 1, **config}
        names = "global_head_dim", "num_global_key_value_heads"
        sizes = {one: given[name] for one, name in zip(_SIZES, names, strict=True)}
        return {number: sizes for number, kind in enumerate(kinds) if kind == FULL}
    numbers = {str(number): number for number in range(len(kinds))}
    if not isinstance(listed, dict) or not listed.keys() <= numbers.keys():
        raise CheckpointError(
            f"per_layer_config is {shown(listed)}; it must map layer numbers, from 0 to {len(kinds) - 1}, "
            "to objects."
        )
    for number, one in listed.items():
        if not isinstance(one, dict) or not one.keys() <= _SIZES.keys():
            raise CheckpointError(
                f"per_layer_config of layer {number} is {shown(one)}; only {' and '.join(_SIZES)} may differ "
                "from layer to layer."
            )
    return {numbers[number]: one for number, one in listed.items()}


TEXT = replace(
    GEMMA3,
    name="embedding_gemma2_text",
    read_config=read_text,
    names={
        **GEMMA3.names,
        "per_layer_inputs.projection.weight": ("ple.per_layer_model_projection.weight",),
        "per_layer_inputs.norm.weight": ("ple.per_layer_projection_norm.weight",),
    },
    block_names={
        **GEMMA3.block_names,
        "per_layer.inner.weight": ("layers.{}.ple_block.per_layer_input_gate.weight",),
        "per_layer.outer.weight": ("layers.{}.ple_block.per_layer_projection.weight",),
        "per_layer.norm.weight": ("layers.{}.ple_block.post_per_layer_input_norm.weight",),
        "per_layer.scale": ("layers.{}.layer_scalar",),
    },
    dropped=("vision_tower.*", "audio_tower.*", "embed_vision.*", "embed_audio.*"),
    heads={},
    predictors={},
    prefixes=("model.", "language_model."),
    norms_add_one=False,
    projection="embedding_projection.weight",
)
WHOLE = replace(TEXT, name="embedding_gemma2", read_config=read_whole)
