"""Options that the `config.json` of several families have in common."""

from collections.abc import Mapping
from typing import Any

from model.encoder.parts import Activation
from model.errors import CheckpointError
from model.fields import whole
from model.files import shown

_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def activation(config: Mapping[str, Any], name: str, default: str = "gelu") -> Activation:
    """Read an activation by the names that checkpoints use; raises CheckpointError."""
    value = config.get(name, default)
    if not isinstance(value, str) or value not in _ACTIVATIONS:
        raise CheckpointError(f'{name} "{plain(value)}" is not one of {", ".join(_ACTIVATIONS)}.')
    return _ACTIVATIONS[value]


def check_encoder(config: Mapping[str, Any]) -> None:
    """Raise CheckpointError for a decoder."""
    if config.get("is_decoder"):
        raise CheckpointError("is_decoder is set: headlight serves encoders, but this is a decoder.")


def check_absolute(config: Mapping[str, Any], *others: str) -> None:
    """Raise CheckpointError for position embeddings other than absolute ones and `others`, by name."""
    kind, allowed = config.get("position_embedding_type", "absolute"), ("absolute", *others)
    if kind not in allowed:
        listed = " or ".join(f'"{name}"' for name in allowed)
        raise CheckpointError(f'position_embedding_type "{plain(kind)}" is not supported, only {listed}.')


def check_heads(
    config: Mapping[str, Any], size: str = "hidden_size", heads: str = "num_attention_heads"
) -> None:
    """Raise CheckpointError if the fields for the hidden size and the number of heads do not go together."""
    hidden_size = whole(config, size, like="hidden_size")
    num_heads = whole(config, heads, like="num_attention_heads")
    if hidden_size % num_heads:
        raise CheckpointError(f"{size} {hidden_size} is not a multiple of {heads} {num_heads}.")


def padding_id(config: Mapping[str, Any], *, default: int) -> int:
    """Read `pad_token_id`; raises CheckpointError."""
    value = config.get("pad_token_id", default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CheckpointError(f"pad_token_id is {shown(value)}; it must be a whole number of at least 0.")
    return value


def check_at_least(name: str, value: int, least: int) -> None:
    """Raise CheckpointError for a number below `least`."""
    if value < least:
        raise CheckpointError(f"{name} is {value}; it must be at least {least}.")


def plain(value: object) -> str:
    """Format a short string as it is, and anything else as `shown` does."""
    return value if isinstance(value, str) and len(value) < 40 else shown(value)
