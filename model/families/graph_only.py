"""Families that run only as a graph: their `config.json` is read only for sizes.

The graph defines the computation. Headlight needs to know only how long a text may be, and the shape of the
hidden states.
"""

from collections.abc import Mapping
from typing import Any

from model.encoder.config import EncoderConfig
from model.errors import CheckpointError
from model.fields import whole
from model.files import shown

# The names of one size in different configs, the usual name first.
_NAMES = {
    "vocab_size": ("vocab_size",),
    "hidden_size": ("hidden_size", "dim", "d_model", "n_embd"),
    "num_hidden_layers": ("num_hidden_layers", "n_layers", "num_layers", "n_layer"),
    "num_attention_heads": ("num_attention_heads", "n_heads", "num_heads", "n_head"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions", "max_trained_positions"),
}
_OFFSET = ("data2vec-text", "xmod")
"""Families whose positions start after the padding id, so that fewer positions remain for a text."""


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read the sizes in a `config.json` of any family; raises CheckpointError, or KeyError for a field.

    `position_limit` is the maximum length of a text in tokens, None if the file does not give one.
    `intermediate_size` is not used and set to 1.
    """
    sizes = {name: _size(config, name) for name in _NAMES if name != "max_position_embeddings"}
    told = any(config.get(name) is not None for name in _NAMES["max_position_embeddings"])
    positions = _size(config, "max_position_embeddings") - _first(config) if told else None
    if positions is not None and positions < 1:
        raise CheckpointError(
            f"max_position_embeddings leaves {positions} positions for a text; it must leave at least 1."
        )
    return EncoderConfig(
        vocab_size=sizes["vocab_size"],
        hidden_size=sizes["hidden_size"],
        num_layers=sizes["num_hidden_layers"],
        num_heads=sizes["num_attention_heads"],
        intermediate_size=1,
        positions="none" if positions is None else "learned",
        max_positions=positions or 1,
        segments=whole(config, "type_vocab_size", least=0, default=1),
        norm_eps=0.0,
    )


def _size(config: Mapping[str, Any], name: str, *, default: int | None = None) -> int:
    """Read a size under the first of its names that the config has."""
    called = next((other for other in _NAMES[name] if config.get(other) is not None), name)
    return whole(config, called, like=name, default=default)


def _first(config: Mapping[str, Any]) -> int:
    """Return the number of unused positions, which are those up to the padding id."""
    if config.get("model_type") not in _OFFSET:
        return 0
    padding = config.get("pad_token_id", 1)
    if not isinstance(padding, int) or isinstance(padding, bool) or padding < 0:
        raise CheckpointError(f"pad_token_id is {shown(padding)}; it must be a whole number of at least 0.")
    return padding + 1
