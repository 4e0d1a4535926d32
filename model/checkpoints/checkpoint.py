"""Loads an encoder from config.json, safetensors and tokenizer.json, accounting for every tensor."""

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
"""How many tensors of each problem an error message names."""
Sources = Mapping[str, Sequence[Stored]]
"""Encoder parameter -> the checkpoint's tensors that make it up."""


@dataclass(frozen=True)
class Checkpoint:
    """A loaded model: float32 weights on the CPU, not yet prepacked."""

    folder: ModelFolder
    encoder: Encoder

    @property
    def tokenizer(self) -> TextTokenizer:
        """The model's own tokenizer."""
        return self.folder.tokenizer


def load_checkpoint(path: Path) -> Checkpoint:
    """Load a checkpoint folder; raises CheckpointError if it cannot be served."""
    folder = read_folder(path)
    return Checkpoint(folder, _load_encoder(folder))


def _load_encoder(folder: ModelFolder) -> Encoder:
    """Load an encoder's weights from its folder; a parameter stored as one float32 tensor is not copied.

    The headers of the files are checked first, so nothing is allocated for weights that are missing or have
    the wrong shape.
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
    """Match encoder parameters with stored tensors; raises CheckpointError for any that do not match.

    Every parameter must be stored, every stored tensor used or known to be dropped, and all shapes right.
    """
    tensors = _canonical(found, family, folder)
    # A config may claim any number of layers: with more layers than tensors, one is missing in any case.
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
            (f"of a dtype other than {', '.join(FLOATS)}", unlike),
        )
        if which
    ]
    if problems:
        raise CheckpointError(
            f"{folder}: the weights do not fit its config.json; {'; '.join(problems)}: use the files of one "
            "checkpoint."
        )
    if heads:
        _say_dropped(folder, family, heads)
    return {ours: [tensors[name] for name in parts] for ours, parts in names.items()}


def _differing(
    tensors: Mapping[str, Stored], names: Mapping[str, Sequence[str]], config: EncoderConfig
) -> tuple[list[str], list[str]]:
    """Compare shapes and dtypes with the config: returns a phrase for each that differs."""
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
    """Rename tensors to their family's names; raises CheckpointError if two get the same name."""
    tensors: dict[str, Stored] = {}
    for stored in found:
        name = _plain_name(stored.name, family)
        if name in tensors:
            raise CheckpointError(
                f"{folder}: {shown(tensors[name].name)} and {shown(stored.name)} are both {shown(name)}: "
                "save the checkpoint again with only one of them."
            )
        tensors[name] = stored
    return tensors


def _plain_name(name: str, family: Family) -> str:
    """Remove the family's prefix, and use the current names of LayerNorm's parts (older: gamma, beta)."""
    for prefix in family.prefixes:
        name = name.removeprefix(prefix)
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _say_dropped(folder: Path, family: Family, heads: Iterable[str]) -> None:
    """Log which prediction heads of the checkpoint are not served."""
    names = sorted(heads)
    told = [what for pattern, what in family.heads.items() if any(fnmatch(n, pattern) for n in names)]
    log.warning(
        "%s: only its encoder is served; its head for %s (%s) is left out",
        folder,
        " and ".join(told),
        _listed(names),
    )


def _listed(names: Iterable[str]) -> str:
    """List the first few names, in order."""
    ordered = sorted(names)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(name if len(name) < 120 else shown(name) for name in ordered[:_NAMED]) + more
