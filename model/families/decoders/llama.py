"""Llama (Touvron et al. 2023), also bidirectional; Mistral (Jiang et al. 2023): a window in each layer."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import LayerConfig
from model.errors import CheckpointError
from model.families.decoders import decoder
from model.families.reading.options import check_heads
from model.fields import switch, whole
from model.files import shown


def read_llama(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a Llama `config.json`; raises CheckpointError for options that are not supported."""
    check_heads(config)
    bias, attention_bias = (switch(config, name, default=False) for name in ("mlp_bias", "attention_bias"))
    return decoder.read_decoder(
        config,
        decoder.head_size(config),
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        inner_bias=bias,
        outer_bias=bias,
        longest=whole(config, "max_position_embeddings", default=2048),
    )


def read_bidirectional(config: Mapping[str, Any]) -> EncoderConfig:
    """Read the `config.json` of a Llama in which every token attends to every other."""
    return read_llama({**config, "is_causal": False})


def read_mistral(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a Mistral `config.json`; raises CheckpointError for options that are not supported."""
    if config.get("layer_types") is not None:
        raise CheckpointError(
            f"layer_types is {shown(config['layer_types'])}; in this family all layers are alike: remove it."
        )
    size = decoder.head_size(config)
    return decoder.read_decoder(
        config,
        size,
        layers=(LayerConfig(_window(config), decoder.read_angles(config, size)),),
        longest=whole(config, "max_position_embeddings", default=131_072),
    )


def _window(config: Mapping[str, Any]) -> int:
    given = {"sliding_window": 4096, **config}
    return 0 if given["sliding_window"] is None else decoder.read_window(given)


LLAMA = decoder.family("llama", read_llama)
LLAMA_BIDIRECTIONAL = replace(
    LLAMA,
    name="llama_bidirec",
    read_config=read_bidirectional,
    predictors={"token_classification": decoder.TOKEN_CLASSES},
)
"""Its text classifiers are not served: `transformers` has none, and they pool unlike other decoders'."""
MISTRAL = replace(LLAMA, name="mistral", read_config=read_mistral, keeps_tokenizer=True)
