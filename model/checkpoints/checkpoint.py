"""A folder with config.json, safetensors and tokenizer.json -> an encoder, every tensor accounted for."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

import torch
from torch import Tensor

from model.checkpoints.folder import ModelFolder, read_folder
from model.checkpoints.weights import FLOATS, Stored, list_tensors, read_tensors
from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.errors import CheckpointError
from model.families import FAMILIES
from model.families.family import Family
from model.files import shown
from model.tokenization.tokenizer import TextTokenizer

log = logging.getLogger(__name__)

_NAMED = 8
"""How many tensors of a kind a refusal names."""
Sources = Mapping[str, Sequence[Stored]]
"""Our parameter -> the checkpoint's tensors that it is made of."""


@dataclass(frozen=True)
class Checkpoint:
    """A loaded model: float32 weights on the CPU, not yet laid out for running."""

    folder: ModelFolder
    encoder: Encoder

    @property
    def tokenizer(self) -> TextTokenizer:
        """The model's own."""
        return self.folder.tokenizer


def load_checkpoint(path: Path) -> Checkpoint:
    """Load a checkpoint folder; raises CheckpointError, in one sentence, when it cannot be served."""
    folder = read_folder(path)
    return Checkpoint(folder, _load_encoder(folder))


def _load_encoder(folder: ModelFolder) -> Encoder:
    """Give an encoder the weights of its folder, without copying those stored alone.

    Nothing is built before the headers of the files say that its weights are there, and of which shapes.
    """
    config, place, family = folder.config, folder.layout.transformer, FAMILIES[folder.model_type]
    sources = _match(list_tensors(place), family, config, place)
    tensors = read_tensors([stored for parts in sources.values() for stored in parts])
    weights = {ours: _joined([tensors.pop(p.name) for p in parts]) for ours, parts in sources.items()}
    with torch.device("meta"):
        encoder = Encoder(config)
    encoder.load_state_dict(weights, assign=True)
    return encoder.requires_grad_(requires_grad=False).eval()


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return (parts[0] if len(parts) == 1 else torch.cat(list(parts))).float()


def _match(found: Sequence[Stored], family: Family, config: EncoderConfig, folder: Path) -> Sources:
    """Account for every tensor: ours found, theirs used or known to be dropped, all of the right shape."""
    tensors = _canonical(found, family, folder)
    # However many layers there are to be: of more than there are tensors, the first is missing already.
    layers = min(config.num_layers, len(tensors) + 1)
    names = family.sources(layers)
    used = {name for parts in names.values() for name in parts}
    unused = tensors.keys() - used
    heads = {n for n in unused if any(fnmatch(n, pattern) for pattern in family.heads)}
    unexpected = [n for n in unused - heads if not any(fnmatch(n, pattern) for pattern in family.dropped)]
    misshapen, unlike = _differing(tensors, names, config)
    problems = [
        f"{label}: {_listed(which)}"
        for label, which in (
            ("missing", used - tensors.keys()),
            ("unexpected", unexpected),
            ("misshapen", misshapen),
            (f"of a dtype that is none of {', '.join(FLOATS)}", unlike),
        )
        if which
    ]
    if problems:
        raise CheckpointError(
            f"{folder}: the weights do not fit its config.json; {'; '.join(problems)}: put the files of one "
            "checkpoint together."
        )
    if heads:
        _say_dropped(folder, family, heads)
    return {ours: [tensors[name] for name in parts] for ours, parts in names.items()}


def _differing(
    tensors: Mapping[str, Stored], names: Mapping[str, Sequence[str]], config: EncoderConfig
) -> tuple[list[str], list[str]]:
    """Compare shapes and dtypes with those that the config asks for: a phrase for each that is off."""
    with torch.device("meta"):
        shapes = {n: tuple(p.shape) for n, p in Encoder(replace(config, num_layers=1)).named_parameters()}
    misshapen, unlike = [], []
    for ours, parts in names.items():
        _, block, rest = ours.partition("blocks.")
        shape = shapes[f"blocks.0.{rest.partition('.')[2]}" if block else ours]
        expected = (shape[0] // len(parts), *shape[1:])
        for stored, name in [(tensors[name], name) for name in parts if name in tensors]:
            if stored.shape != expected:
                misshapen.append(f"{name} {stored.shape} instead of {expected}")
            if stored.dtype not in FLOATS:
                unlike.append(f"{name} {stored.dtype}")
    return misshapen, unlike


def _canonical(found: Iterable[Stored], family: Family, folder: Path) -> dict[str, Stored]:
    """Call every tensor as its family does; raises CheckpointError where two have the same name then."""
    tensors: dict[str, Stored] = {}
    for stored in found:
        name = _plain_name(stored.name, family)
        if name in tensors:
            raise CheckpointError(
                f"{folder}: {shown(tensors[name].name)} and {shown(stored.name)} are both {shown(name)}: "
                "save the checkpoint again, with one of them."
            )
        tensors[name] = stored
    return tensors


def _plain_name(name: str, family: Family) -> str:
    """Take off the family's prefix, and call LayerNorm's parts as they have been called since 2019."""
    for prefix in family.prefixes:
        name = name.removeprefix(prefix)
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _say_dropped(folder: Path, family: Family, heads: Iterable[str]) -> None:
    """Log what the checkpoint was trained to predict, and that its encoder is served without it."""
    names = sorted(heads)
    told = [what for pattern, what in family.heads.items() if any(fnmatch(n, pattern) for n in names)]
    log.warning(
        "%s is served for its encoder; its head for %s (%s) is left out",
        folder,
        " and ".join(told),
        _listed(names),
    )


def _listed(names: Iterable[str]) -> str:
    """Name the first of many, in order."""
    ordered = sorted(names)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(name if len(name) < 120 else shown(name) for name in ordered[:_NAMED]) + more
