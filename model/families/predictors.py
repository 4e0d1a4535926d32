"""Tables of the layers that a family's checkpoints have above the encoder, for predictions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from model.errors import CheckpointError
from model.families.reading.options import activation, plain
from model.fields import epsilon
from model.heads.predictor import HeadPooling

Config = Mapping[str, Any]
Setting = Callable[[Config], str]

_CLASSES = {"gelu": "GELU", "gelu_tanh": "GELUTanh", "relu": "ReLU", "silu": "SiLU"}
"""The encoder's names of activations -> the names in `model.activations`."""


def configured(field: str, default: str = "gelu") -> Setting:
    """Return a setting that reads an activation from a field of config.json; raises CheckpointError."""

    def read(config: Config) -> str:
        if config.get(field) == "tanh":
            return "Tanh"
        return _CLASSES[activation(config, field, default)]

    return read


@dataclass(frozen=True, slots=True)
class LinearNames:
    """The names of a linear layer's tensors: the first that is stored is used; the bias may be missing.

    `activation` is a name in `model.activations`, or a function that reads one from the config.
    """

    weight: tuple[str, ...]
    bias: tuple[str, ...]
    activation: str | Setting = "Identity"


@dataclass(frozen=True, slots=True)
class NormNames:
    """The names of a layer norm's tensors; the bias may be missing. `epsilon` reads the config."""

    weight: tuple[str, ...]
    bias: tuple[str, ...]
    epsilon: Callable[[Config], float]


@dataclass(frozen=True, slots=True)
class PredictorTable:
    """The layers from hidden states to logits, in order.

    `pooling` reads how a sequence is first pooled to one vector; None: the layers run on every token.
    `padding` reads the id of the token that pooling by the last token skips; −1: none.
    """

    layers: tuple[LinearNames | NormNames, ...]
    pooling: Callable[[Config], HeadPooling | None] = lambda _: None
    padding: Callable[[Config], int] = lambda _: -1


def linear(*names: str, activation: str | Setting = "Identity") -> LinearNames:
    """Make a linear layer whose tensors `weight` and `bias` are below one of these names."""
    return LinearNames(_below(names, "weight"), _below(names, "bias"), activation)


def norm(*names: str, field: str = "layer_norm_eps", default: float = 1e-12) -> NormNames:
    """Make a layer norm, named likewise; `field` of config.json has its epsilon."""
    return NormNames(
        _below(names, "weight"), _below(names, "bias"), lambda config: epsilon(config, field, default=default)
    )


def decoder(weight: tuple[str, ...], bias: tuple[str, ...]) -> LinearNames:
    """Make the layer that predicts words: its weights are often those of the token embeddings."""
    return LinearNames(weight, bias)


def classes(*layers: LinearNames | NormNames) -> PredictorTable:
    """Make a table for classes of a sequence, predicted from its first token."""
    return PredictorTable(layers, lambda _: "cls")


def pooled_by(
    field: str, names: Mapping[str, HeadPooling], default: str = "cls"
) -> Callable[[Config], HeadPooling]:
    """Return a setting that reads the pooling before the layers from a field of config.json.

    `names` maps the family's names to poolings. The setting raises CheckpointError for other names.
    """

    def read(config: Config) -> HeadPooling:
        name = config.get(field, default)
        if not isinstance(name, str) or name not in names:
            allowed = " or ".join(f'"{one}"' for one in names)
            raise CheckpointError(f'{field} "{plain(name)}" is not supported, only {allowed}.')
        return names[name]

    return read


def _below(names: tuple[str, ...], part: str) -> tuple[str, ...]:
    return tuple(f"{name}.{part}" for name in names)


NEXT_WORD = PredictorTable((LinearNames(("lm_head.weight", "embed_tokens.weight"), ()),))
"""The matrix that decoders predict the next word with, which may be that of the token embeddings."""
LATE_INTERACTION = PredictorTable((linear("linear"),))
"""The layer of checkpoints in the form of Stanford's ColBERT, of any family."""


TOKEN_CLASSES = PredictorTable((linear("classifier"),))
"""The classes of tokens, as most families predict them."""
