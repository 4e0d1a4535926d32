"""The description of a checkpoint family."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from model.encoder.config import EncoderConfig


@dataclass(frozen=True)
class Family:
    """A literal table of weight names, and a reader of the family's `config.json`.

    `names` maps each encoder parameter to the checkpoint's tensors; several are concatenated along their
    first axis. `block_names` is the same for each layer, with `{}` for the layer's number. `dropped` are
    `fnmatch` patterns of tensors that checkpoints may contain but an encoder does not need. `heads` maps
    patterns of prediction heads to what they predict: they are dropped too, with a line in the log. Any of
    `prefixes` may precede all names.
    """

    name: str
    read_config: Callable[[Mapping[str, Any]], EncoderConfig]
    names: Mapping[str, tuple[str, ...]]
    block_names: Mapping[str, tuple[str, ...]]
    dropped: tuple[str, ...]
    heads: Mapping[str, str]
    prefixes: tuple[str, ...]

    def sources(self, num_layers: int) -> dict[str, tuple[str, ...]]:
        """Write the table out for every layer."""
        blocks = {
            f"blocks.{layer}.{ours}": tuple(theirs.format(layer) for theirs in sources)
            for layer in range(num_layers)
            for ours, sources in self.block_names.items()
        }
        return {**self.names, **blocks}
