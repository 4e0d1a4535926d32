"""What a checkpoint family has to say of itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from model.encoder.config import EncoderConfig


@dataclass(frozen=True)
class Family:
    """A literal table of weight names, and the reading of its `config.json`.

    `names`: our parameter -> the checkpoint's tensors, which are concatenated along their first axis
    when there are several. `block_names` is the same for each layer, `{}` standing for its number.
    `dropped` are tensors that checkpoints of this family may carry and an encoder has no use for, as
    `fnmatch` patterns. `heads` are those of what a checkpoint may predict from hidden states, each with what
    it predicts: they are dropped, too, and the log says so. `prefixes` may stand before every name.
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
