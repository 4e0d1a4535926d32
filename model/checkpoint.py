"""A folder with config.json, safetensors and tokenizer.json -> an encoder, every tensor accounted for."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.encoder import Encoder
from model.errors import CheckpointError
from model.families.family import Family
from model.folder import ModelFolder, read_folder
from model.layout import read_json
from model.tokenizer import TextTokenizer


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
    """Build an encoder and give it the weights of its folder, without copying those stored alone."""
    config, place = folder.config, folder.layout.transformer
    with torch.device("meta"):
        encoder = Encoder(config)
    shapes = {name: tuple(parameter.shape) for name, parameter in encoder.named_parameters()}
    weights = _match(_read_tensors(place), folder.family, config.num_layers, shapes, place)
    encoder.load_state_dict(weights, assign=True)
    return encoder.requires_grad_(requires_grad=False).eval()


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """Read every tensor of model.safetensors, or of the shards that its index lists."""
    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.exists():
        shards = read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise CheckpointError(f"{index} has no weight_map: save the checkpoint again.")
        names = sorted(set(shards.values()))
    elif not (folder / names[0]).exists():
        found = ", ".join(sorted(p.name for p in folder.glob("*.bin"))) or "none"
        raise CheckpointError(
            f"{folder / names[0]} is missing: only safetensors are read (pickled weights here: {found})."
        )
    tensors: dict[str, Tensor] = {}
    for name in names:
        try:
            (folder / name).open("rb").close()  # safetensors calls missing what may not be read
            with safe_open(folder / name, framework="pt") as file:
                tensors.update({key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{folder / name} cannot be read: {error}.") from error
    return tensors


def _match(
    tensors: dict[str, Tensor],
    family: Family,
    num_layers: int,
    shapes: Mapping[str, tuple[int, ...]],
    folder: Path,
) -> dict[str, Tensor]:
    """Account for every tensor: ours found, theirs used or known to be dropped, all of the right shape."""
    tensors = {_canonical(name, family): tensor for name, tensor in tensors.items()}
    sources = family.sources(num_layers)
    used = {name for names in sources.values() for name in names}
    missing = sorted(used - tensors.keys())
    unexpected = sorted(
        name for name in tensors.keys() - used if not any(fnmatch(name, d) for d in family.dropped)
    )
    weights, misshapen = {}, []
    for ours, names in sources.items():
        parts = [tensors[name] for name in names if name in tensors]
        if len(parts) != len(names):
            continue
        expected = (shapes[ours][0] // len(names), *shapes[ours][1:])
        wrong = [(n, tuple(p.shape)) for n, p in zip(names, parts, strict=True) if tuple(p.shape) != expected]
        misshapen += [f"{name} {shape} instead of {expected}" for name, shape in wrong]
        if not wrong:
            weights[ours] = (parts[0] if len(parts) == 1 else torch.cat(parts)).float()
    problems = [
        f"{label}: {', '.join(names)}"
        for label, names in (("missing", missing), ("unexpected", unexpected), ("misshapen", misshapen))
        if names
    ]
    if problems:
        raise CheckpointError(f"{folder}: the weights do not fit its config.json; {'; '.join(problems)}.")
    return weights


def _canonical(name: str, family: Family) -> str:
    """Take off the family's prefix, and call LayerNorm's parts as they have been called since 2019."""
    for prefix in family.prefixes:
        name = name.removeprefix(prefix)
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
