"""A folder with config.json, safetensors and tokenizer.json -> an encoder, every tensor accounted for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from model.encoder import Encoder
from model.errors import CheckpointError
from model.families import FAMILIES
from model.families.family import Family
from model.layout import Layout, read_json, read_layout
from model.tokenizer import TextTokenizer
from model.types import ModelInfo

_DENSE_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.activation.Sigmoid": nn.Sigmoid,
    "torch.nn.modules.linear.Identity": nn.Identity,
}


@dataclass(frozen=True)
class Checkpoint:
    """A loaded model: float32 weights on the CPU, not yet laid out for running.

    `dense` maps pooled vectors (B, E) to sentence vectors (B, sentence_size); it is the identity for
    models without linear layers after the pooling.
    """

    family: str
    encoder: Encoder
    tokenizer: TextTokenizer
    dense: nn.Sequential
    layout: Layout

    def describe(self, *, backend: str, device: str, dtype: str) -> ModelInfo:
        """Say what is served and how it runs."""
        config, layout = self.encoder.config, self.layout
        pooled = config.hidden_size * len(layout.pooling)
        linears = [module for module in self.dense.modules() if isinstance(module, nn.Linear)]
        return ModelInfo(
            family=self.family,
            layers=config.num_layers,
            heads=config.num_heads,
            hidden_size=config.hidden_size,
            max_length=self.tokenizer.max_length,
            pooling=layout.pooling,
            normalize=layout.normalize,
            sentence_size=linears[-1].out_features if linears else pooled,
            dense=bool(linears),
            prompts=layout.prompts,
            default_prompt_name=layout.default_prompt_name,
            include_prompt=layout.include_prompt,
            backend=backend,
            device=device,
            dtype=dtype,
        )


def load_checkpoint(folder: Path) -> Checkpoint:
    """Load a checkpoint folder; raises CheckpointError, in one sentence, when it cannot be served."""
    layout = read_layout(folder)
    raw = read_json(layout.transformer / "config.json")
    family = FAMILIES.get(str(raw.get("model_type")))
    if family is None:
        raise CheckpointError(
            f"{layout.transformer / 'config.json'}: model_type {raw.get('model_type')!r} is not one of the "
            f"supported families: {', '.join(FAMILIES)}."
        )
    encoder = load_encoder(layout.transformer, family, raw)
    limits = [n for n in (layout.max_length, encoder.config.position_limit) if n is not None]
    tokenizer = TextTokenizer.from_file(
        layout.transformer / "tokenizer.json",
        max_length=min(limits, default=512),
        lower_case=layout.lower_case,
    )
    if tokenizer.vocab_size > encoder.config.vocab_size:
        raise CheckpointError(
            f"{folder}: the tokenizer knows {tokenizer.vocab_size} tokens and the model embeds "
            f"{encoder.config.vocab_size}: they do not belong together."
        )
    pooled = encoder.config.hidden_size * len(layout.pooling)
    return Checkpoint(
        family=family.name,
        encoder=encoder,
        tokenizer=tokenizer,
        dense=_load_dense_layers(layout.dense, pooled),
        layout=layout,
    )


def load_encoder(folder: Path, family: Family, raw_config: Mapping[str, Any]) -> Encoder:
    """Build a family's encoder and give it the weights of a folder, without copying those stored alone."""
    try:
        config = family.read_config(raw_config)
    except CheckpointError as error:
        raise CheckpointError(f"{folder / 'config.json'}: {error}") from error
    except KeyError as error:
        raise CheckpointError(f"{folder / 'config.json'}: the field {error} is missing.") from error
    with torch.device("meta"):
        encoder = Encoder(config)
    shapes = {name: tuple(parameter.shape) for name, parameter in encoder.named_parameters()}
    weights = _match(_read_tensors(folder), family, config.num_layers, shapes, folder)
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


def _load_dense_layers(folders: Sequence[Path], size: int) -> nn.Sequential:
    """Load the linear layers that follow the pooling, the first of which takes vectors of `size`."""
    layers = nn.Sequential()
    for folder in folders:
        config = read_json(folder / "config.json")
        if config.get("in_features") != size or not isinstance(config.get("out_features"), int):
            raise CheckpointError(
                f"{folder / 'config.json'}: in_features is {config.get('in_features')} and out_features "
                f"{config.get('out_features')}, where vectors of {size} components arrive."
            )
        layers.append(_load_dense(folder, config))
        size = config["out_features"]
    return layers


def _load_dense(folder: Path, config: Mapping[str, Any]) -> nn.Sequential:
    """Load a sentence-transformers Dense module: a linear layer and its activation."""
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in _DENSE_ACTIVATIONS or config.get("use_residual"):
        raise CheckpointError(
            f"{folder / 'config.json'}: a Dense layer with activation_function {activation!r} and "
            f"use_residual {bool(config.get('use_residual'))} is not supported; the activations are "
            f"{', '.join(_DENSE_ACTIVATIONS)}, without a residual."
        )
    names = [config.get(key) for key in ("module_input_name", "module_output_name")]
    if any(name not in (None, "sentence_embedding") for name in names):
        raise CheckpointError(
            f"{folder / 'config.json'}: a Dense layer from {names[0]} to {names[1]} is not supported, "
            "only one of the sentence_embedding."
        )
    linear = nn.Linear(config["in_features"], config["out_features"], bias=config.get("bias", True))
    tensors = {name.removeprefix("linear."): t.float() for name, t in _read_tensors(folder).items()}
    try:
        linear.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"{folder}: the weights do not fit its config.json; {error}.") from error
    return nn.Sequential(linear.requires_grad_(requires_grad=False), _DENSE_ACTIVATIONS[activation]())
