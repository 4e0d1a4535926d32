"""Reads how a sentence-transformers folder pools the words that its model predicts."""

from pathlib import Path

from model.errors import CheckpointError
from model.files import read_json, shown
from model.heads.sparse import Splade

_STRATEGIES = ("max", "sum")
_ACTIVATIONS = ("relu", "log1p_relu")


def read_splade(folder: Path) -> Splade:
    """Read the folder of a SpladePooling module; raises CheckpointError for what is not supported."""
    file = folder / "config.json"
    config = read_json(file)
    strategy, activation = config.get("pooling_strategy", "max"), config.get("activation_function", "relu")
    for name, value, known in (
        ("pooling_strategy", strategy, _STRATEGIES),
        ("activation_function", activation, _ACTIVATIONS),
    ):
        if value not in known:
            raise CheckpointError(f"{file}: {name} is {shown(value)}; it must be one of {', '.join(known)}.")
    return Splade(strategy, twice=activation == "log1p_relu")
