"""Encoders of this project's own blocks, with any of their options: every parameter has its own name."""

from model.families.family import Family, Sources
from model.families.own.literal import read_config


class _OwnNames(dict[str, Sources]):
    """The name of each parameter is the same in a file, after a prefix."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self._prefix = prefix

    def __missing__(self, name: str) -> Sources:
        """Name the only tensor of a parameter."""
        return (self._prefix + name,)


HEADLIGHT = Family(
    name="headlight",
    read_config=read_config,
    names=_OwnNames(),
    block_names=_OwnNames("blocks.{}."),
)
