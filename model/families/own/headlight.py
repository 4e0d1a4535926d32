"""Encoders of this project's own blocks, with any options: tensors are named as the parameters are."""

from model.families.family import Family, Sources
from model.families.own.literal import read_config


class _OwnNames(dict[str, Sources]):
    """The names of the parameters in a file: their own names after a prefix."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self._prefix = prefix

    def __missing__(self, name: str) -> Sources:
        """Return the name of a parameter's only tensor."""
        return (self._prefix + name,)


HEADLIGHT = Family(
    name="headlight",
    read_config=read_config,
    names=_OwnNames(),
    block_names=_OwnNames("blocks.{}."),
)
