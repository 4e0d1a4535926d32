"""Qwen2 (Yang et al. 2024): biases of queries, keys and values; Qwen3 (2025): norms of queries and keys."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import LayerConfig
from model.errors import CheckpointError
from model.families.decoders import decoder
from model.families.decoders.decoder import FULL, SLIDING
from model.fields import switch, whole


def read_qwen3(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a Qwen3 `config.json`; raises CheckpointError for options that are not supported."""
    bias = switch(config, "attention_bias", default=False)
    size = decoder.head_size(config, default=128)
    return decoder.read_decoder(
        config, size, qk_norm="rms", qkv_bias=bias, output_bias=bias, layers=_layers(config, size)
    )


def read_bidirectional(config: Mapping[str, Any]) -> EncoderConfig:
    """Read the `config.json` of a Qwen3 in which every token attends to every other."""
    return read_qwen3({**config, "is_causal": False, "use_bidirectional_attention": None})


def read_qwen2(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a Qwen2 `config.json`; raises CheckpointError for options that are not supported."""
    size = decoder.head_size(config)
    return decoder.read_decoder(config, size, qkv_bias=True, layers=_layers(config, size))


def _layers(config: Mapping[str, Any], size: int) -> tuple[LayerConfig, ...]:
    """Read the window of each layer; with `use_sliding_window`, all from `max_window_layers` on have one."""
    rotary, layers = decoder.read_angles(config, size), whole(config, "num_hidden_layers")
    windowed = (
        switch(config, "use_sliding_window", default=False) and config.get("sliding_window", 0) is not None
    )
    kinds = [FULL] * layers
    if windowed:
        first = whole(config, "max_window_layers", like="num_hidden_layers", least=0, default=28)
        kinds[first:] = [SLIDING] * len(kinds[first:])
    kinds = decoder.read_kinds(config, kinds)
    if SLIDING not in kinds:
        return (LayerConfig(rotary=rotary),)
    if not windowed:
        raise CheckpointError(
            f'layer_types has "{SLIDING}", but use_sliding_window or sliding_window turns the window off: '
            "use files from the same checkpoint."
        )
    if decoder.is_bidirectional(config):
        raise CheckpointError(
            "use_bidirectional_attention is true, but it does not define how layers with a sliding window "
            "attend: set sliding_window to null, or set is_causal to false instead."
        )
    window = decoder.read_window({"sliding_window": 4096, **config})
    return tuple(LayerConfig(window if kind == SLIDING else 0, rotary) for kind in kinds)


QWEN3 = decoder.family(
    "qwen3",
    read_qwen3,
    tokenizer="Qwen2Tokenizer",
    projection="linear.weight",  # of voyage-4-nano
)
JINA_V5 = replace(QWEN3, name="jina_embeddings_v5", default_task="retrieval")
"""Qwen3 with adapters in the form of peft; jina's code takes no text without a task."""
PPLX = replace(QWEN3, name="bidirectional_pplx_qwen3", read_config=read_bidirectional)
QWEN2 = decoder.family("qwen2", read_qwen2, tokenizer="Qwen2Tokenizer")
