"""The description of a checkpoint family."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from model.contract import HeadKind
from model.encoder.config import EncoderConfig
from model.families.predictors import PredictorTable


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of a stored tensor: part `index` of `count` equal parts along its first axis."""

    name: str
    index: int = 0
    count: int = 1


Sources = tuple[str | Part, ...]
"""The tensors, or parts of tensors, that make up a parameter, concatenated along their first axis."""


@dataclass(frozen=True, slots=True)
class Either:
    """Alternative names in checkpoints of a family: the first whose tensors are all stored is used."""

    options: tuple[Sources, ...]


def either_below(first: str, second: str) -> Callable[[str, str], Either]:
    """Return a function that makes an `Either` of two names, one below `first`, one below `second`."""
    return lambda name, other: Either(((first + name,), (second + other,)))


@dataclass(frozen=True)
class Family:
    """A literal table of weight names, and a reader of the family's `config.json`.

    `names` maps encoder parameters to the checkpoint's tensors. `block_names` is the same for each layer,
    with `{}` for the layer's number, or for the `numbers` of a layer if the checkpoint counts otherwise. A
    table may list parameters that an encoder has only with some configs. `dropped` are `fnmatch` patterns of
    tensors that checkpoints may contain but an encoder does not need. `heads` maps patterns of prediction
    heads to what they predict: they are dropped too, with a line in the log. Any of `prefixes` may precede
    all names. `frequencies` are the names that a tensor with the rotary frequencies may have, which overrides
    `config.json`. `predictors` are the heads that are served, by what they predict. `refused` maps patterns
    of tensors that change what is computed to the reason why they cannot be served. `masks_embeddings`:
    tokens that are not attended to are zero from the embeddings on. `tokenizer` is the tokenizer class if a
    folder's files name none; with `keeps_tokenizer`, its tokenizer.json is used as it is, whatever they name.
    `norms_add_one`: norms multiply by 1 + the stored weight. `projection` is the name of a matrix by which
    the last hidden state of every token is multiplied before the pooling, if it is stored. `default_task` is
    the adapter, among those in files of their own, for sequences for which no task is named.
    """

    name: str
    read_config: Callable[[Mapping[str, Any]], EncoderConfig]
    names: Mapping[str, Sources | Either]
    block_names: Mapping[str, Sources | Either]
    dropped: tuple[str, ...] = ()
    heads: Mapping[str, str] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ()
    frequencies: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    predictors: Mapping[HeadKind, PredictorTable] = field(default_factory=dict)
    numbers: Callable[[Mapping[str, Any], int], tuple[int, ...]] = lambda _, layer: (layer,)
    masks_embeddings: bool = False
    tokenizer: str = ""
    keeps_tokenizer: bool = False
    norms_add_one: bool = False
    projection: str | None = None
    default_task: str | None = None

    def sources(
        self, parameters: Iterable[str], config: Mapping[str, Any], stored: Container[str]
    ) -> dict[str, tuple[Part, ...]]:
        """Look up the stored tensors that make up each of an encoder's parameters.

        `config` is the checkpoint's `config.json`, and `stored` are its tensors.
        """
        found = {}
        for ours in parameters:
            _, block, rest = ours.partition("blocks.")
            if block:
                layer, _, name = rest.partition(".")
                found[ours] = _choose(self.block_names[name], self.numbers(config, int(layer)), stored)
            else:
                found[ours] = _choose(self.names[ours], (), stored)
        return found


def _choose(sources: Sources | Either, numbers: tuple[int, ...], stored: Container[str]) -> tuple[Part, ...]:
    options = sources.options if isinstance(sources, Either) else (sources,)
    listed = [tuple(_numbered(source, numbers) for source in option) for option in options]
    return next((parts for parts in listed if all(part.name in stored for part in parts)), listed[0])


def _numbered(source: str | Part, numbers: tuple[int, ...]) -> Part:
    part = Part(source) if isinstance(source, str) else source
    return replace(part, name=part.name.format(*numbers))
