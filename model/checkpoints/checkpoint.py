"""Loads an encoder from config.json, safetensors and tokenizer.json, accounting for every tensor."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from model.checkpoints.cross_encoder import hidden_classifier
from model.checkpoints.folder import ModelFolder, read_folder
from model.checkpoints.peft.matrices import attach
from model.checkpoints.prediction import find_kind, has_classifier, read_predictor, used_names
from model.checkpoints.weights import FLOATS, Stored, list_tensors, read_tensors
from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.encoder.linear import Linear, StoredParts, joined
from model.errors import CheckpointError
from model.families.family import Family, Part
from model.files import present, shown
from model.heads.dense import Dense
from model.heads.predictor import LayerNorm, Norm, Predictor, RmsNorm
from model.tokenization.tokenizer import TextTokenizer

log = logging.getLogger(__name__)

_TABLE = "embeddings.token"
_NAMED = 8
"""How many tensors of each problem an error message names."""
Sources = Mapping[str, Sequence[tuple[Stored, Part]]]
"""Encoder parameter -> the parts of the checkpoint's tensors that make it up."""


@dataclass(frozen=True)
class Checkpoint:
    """A loaded model: float32 weights on the CPU, not yet prepacked.

    If loading was deferred, the matrices of its blocks are unread, and its token table is as it is stored.

    `stored` has the weights of the blocks' linear layers as the mapped files hold them, in their own dtypes,
    and `parts` every parameter of the encoder, by name; `weight_bytes` is the size of the files with weights.
    """

    folder: ModelFolder
    encoder: Encoder
    predictor: Predictor | None = None
    stored: StoredParts = field(default_factory=dict)
    parts: Mapping[str, Sequence[Tensor]] = field(default_factory=dict)
    weight_bytes: int = 0

    @property
    def tokenizer(self) -> TextTokenizer:
        """The model's own tokenizer."""
        return self.folder.tokenizer


def load_checkpoint(path: Path, *, strict: bool = False, deferred: bool = False) -> Checkpoint:
    """Load a checkpoint folder; raises CheckpointError if it cannot be served.

    `strict` is as in `read_folder`. If `deferred`, the matrices of the blocks are not read but left to
    `read_matrices`, so that they can be laid out one by one: two copies of all would take twice the memory.
    """
    folder = read_folder(path, strict=strict)
    found = list_tensors(folder.layout.transformer)
    folder = _with_frequencies(folder, found)
    tensors = _canonical(found, folder.family, folder.layout.transformer)
    folder = _with_projection(folder, tensors)
    predictor = read_predictor(folder, tensors)
    folder.check_head(predictor.info if predictor else None)
    if predictor is None and not present(path / "modules.json") and has_classifier(folder.family, tensors):
        folder = replace(folder, no_ranking=hidden_classifier(folder.raw.get("architectures")))
    encoder, stored, parts = _load_encoder(folder, found, predictor, deferred=deferred)
    if predictor is not None and predictor.info.kind == "masked_words":
        predictor = replace(predictor, final_norm=_final_norm(encoder))
    files = {*(one.file for one in found), *(one.weights for one in folder.adapters)}
    weight_bytes = sum(file.stat().st_size for file in files)
    return Checkpoint(folder, encoder, predictor, stored, parts, weight_bytes)


def _final_norm(encoder: Encoder) -> Norm | None:
    """Return the norm that an encoder applies after its last block, in numpy; None if there is none."""
    norm = encoder.final_norm
    match norm:
        case nn.LayerNorm():
            bias = None if norm.bias is None else norm.bias.detach().float().numpy()
            return LayerNorm(norm.weight.detach().float().numpy(), bias, norm.eps)
        case nn.RMSNorm():
            return RmsNorm(norm.weight.detach().float().numpy(), encoder.config.norm_eps)
    return None


def _with_frequencies(folder: ModelFolder, found: Sequence[Stored]) -> ModelFolder:
    """Replace the rotary frequencies in a folder's config by those stored among the weights, if any are.

    The model was trained with the stored ones, which may be rounded. Raises CheckpointError.
    """
    family, path, config = folder.family, folder.layout.transformer, folder.config
    if not family.frequencies or all(layer.rotary is None for layer in config.layers):
        return folder
    tensors = _canonical(found, family, path)
    stored = next((tensors[name] for name in family.frequencies if name in tensors), None)
    if stored is None:
        return folder
    count = {len(layer.rotary.frequencies) for layer in config.layers if layer.rotary is not None}
    if {stored.shape} != {(number,) for number in count} or stored.dtype not in FLOATS:
        raise CheckpointError(
            f"{path}: the tensor {stored.name} is {stored.dtype} {stored.shape}; it must have {max(count)} "
            "frequencies: use files from the same checkpoint."
        )
    frequencies = tuple(read_tensors([stored])[stored.name].float().tolist())
    layers = tuple(
        replace(layer, rotary=layer.rotary and replace(layer.rotary, frequencies=frequencies))
        for layer in config.layers
    )
    return replace(folder, config=replace(config, layers=layers))


def _with_projection(folder: ModelFolder, tensors: Mapping[str, Stored]) -> ModelFolder:
    """Put the family's projection, if it is stored, before the steps that follow a folder's pooling.

    It applies to every token, but as pooling is linear here, it can follow it. Raises CheckpointError.
    """
    stored, path = tensors.get(folder.family.projection or ""), folder.layout.transformer
    if stored is None:
        return folder
    hidden = folder.config.hidden_size
    if len(stored.shape) != 2 or stored.shape[1] != hidden or stored.dtype not in FLOATS:
        raise CheckpointError(
            f"{path}: the tensor {stored.name} is {stored.dtype} {stored.shape}; it must be a matrix with "
            f"{hidden} columns: use files from the same checkpoint."
        )
    pooling = folder.layout.pooling
    if len(pooling) > 1 or "max" in pooling or folder.layout.weighted:
        raise CheckpointError(
            f"{path}: the tensor {stored.name} projects every token, which is supported only with one "
            f"pooling mode other than max, here {', '.join(pooling)}, and without modules with weights: use "
            "files from the same checkpoint."
        )
    weight = read_tensors([stored])[stored.name].float().numpy()
    projection = Dense(weight, np.zeros(len(weight), np.float32), "Identity")
    return replace(folder, dense=(projection, *folder.dense), projection=projection)


def _load_encoder(
    folder: ModelFolder, found: Sequence[Stored], predictor: Predictor | None, *, deferred: bool
) -> tuple[Encoder, StoredParts, Mapping[str, Sequence[Tensor]]]:
    """Load an encoder's weights from its folder; a parameter stored as one float32 tensor is not copied.

    If `deferred`, the blocks' matrices stay unread, and the table of token embeddings stays as it is stored.
    Also returns the `stored` and the `parts` of a Checkpoint. The headers of the files are checked first, so
    nothing is allocated for weights that are missing or have the wrong shape.
    """
    with torch.device("meta"):
        encoder = Encoder(folder.config)
    sources = _match(found, encoder, folder, predictor)
    stored = {one.name: one for parts in sources.values() for one, _ in parts}
    tensors = read_tensors(list(stored.values()))
    by_parts = {
        ours: tuple(_rows(tensors[one.name], part) for one, part in parts) for ours, parts in sources.items()
    }
    if folder.family.norms_add_one:
        norms = [ours for ours in by_parts if ours.endswith("norm.weight")]
        by_parts |= {ours: tuple(part.float() + 1 for part in by_parts[ours]) for ours in norms}
    linears = {
        f"blocks.{name}.weight": module
        for name, module in encoder.blocks.named_modules()
        if isinstance(module, Linear)
    }
    left = linears.keys() if deferred else set()
    # Only the rows of a batch's tokens are read from the table, so they can be widened when they are read.
    # A float64 table is converted to float32 here: otherwise all layers would compute in float64.
    table = by_parts[_TABLE]
    mapped = (_TABLE,) if deferred and len(table) == 1 and table[0].dtype != torch.float64 else ()
    weights = {ours: by_parts[ours][0] for ours in mapped}
    weights |= {ours: joined(one) for ours, one in by_parts.items() if ours not in left | weights.keys()}
    # Not strict: blocks that share their weights are listed once, and `_match` has checked the names.
    encoder.load_state_dict(weights, assign=True, strict=False)
    if folder.adapters:
        parts = [(module, sources[name]) for name, module in linears.items()]
        attach(folder.adapters, parts, lambda name: _plain_name(name, folder.family))
    stored_parts = {module: by_parts[name] for name, module in linears.items()}
    return encoder.requires_grad_(requires_grad=False).eval(), stored_parts, by_parts


def _rows(tensor: Tensor, part: Part) -> Tensor:
    return tensor.chunk(part.count)[part.index]


def _match(
    found: Sequence[Stored], encoder: Encoder, folder: ModelFolder, predictor: Predictor | None
) -> Sources:
    """Match encoder parameters with stored tensors; raises CheckpointError for any that do not match.

    Every parameter must be stored, every stored tensor used or known to be dropped, and all shapes right.
    """
    family, path = folder.family, folder.layout.transformer
    tensors = _canonical(found, family, path)
    shapes = {name: tuple(parameter.shape) for name, parameter in encoder.named_parameters()}
    _check_refused(tensors, family, path)
    names = family.sources(shapes, folder.raw, tensors)
    used = {part.name for parts in names.values() for part in parts}
    predicting = set() if predictor is None else used_names(folder, predictor.info.kind, tensors)
    unused = tensors.keys() - used - predicting - {family.projection}
    heads = {n for n in unused if any(fnmatch(n, pattern) for pattern in family.heads)}
    unexpected = [n for n in unused - heads if not any(fnmatch(n, pattern) for pattern in family.dropped)]
    misshapen, unlike = _differing(tensors, names, shapes, encoder.config)
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
    if len(problems) == 1 and unexpected and _is_other(folder.raw):
        raise CheckpointError(
            f"{path}: {_listed(unexpected)} belong to the architecture {shown(folder.raw['architectures'])} "
            "of config.json, and headlight does not serve its heads: save only the encoder, with AutoModel "
            "of transformers, or remove these tensors."
        )
    if problems:
        raise CheckpointError(
            f"{path}: the weights do not match config.json; {'; '.join(problems)}: use files from the same "
            "checkpoint."
        )
    if heads:
        _say_dropped(path, family, heads)
    return {ours: [(tensors[part.name], part) for part in parts] for ours, parts in names.items()}


def _is_other(config: Mapping[str, Any]) -> bool:
    """Return whether a config.json names an architecture that is neither an encoder alone nor known."""
    listed = config.get("architectures")
    if not isinstance(listed, list) or not listed or find_kind(config) is not None:
        return False
    return not str(listed[0]).endswith(("Model", "Encoder"))


def _differing(
    tensors: Mapping[str, Stored],
    names: Mapping[str, Sequence[Part]],
    shapes: Mapping[str, tuple[int, ...]],
    config: EncoderConfig,
) -> tuple[list[str], list[str]]:
    """Compare shapes and dtypes with the config; returns a phrase for each shape and dtype that differs."""
    misshapen, unlike = [], []
    for ours, parts in names.items():
        rows, *columns = shapes[ours]
        by_part = [rows // len(parts)] * len(parts)
        if ".qkv." in ours and len(parts) == len(config.qkv_rows):
            layer = config.layer(int(ours.split(".")[1]))
            by_part = [*config.within(layer).qkv_rows]
        for part, number in zip(parts, by_part, strict=True):
            if part.name not in tensors:
                continue
            stored, expected = tensors[part.name], (number * part.count, *columns)
            if stored.shape != expected:
                misshapen.append(f"{part.name} {stored.shape} instead of {expected}")
            if stored.dtype not in FLOATS:
                unlike.append(f"{part.name} {stored.dtype}")
    return misshapen, unlike


def _canonical(found: Iterable[Stored], family: Family, folder: Path) -> dict[str, Stored]:
    """Rename tensors to their family's names; raises CheckpointError if two get the same name."""
    tensors: dict[str, Stored] = {}
    for stored in found:
        name = _plain_name(stored.name, family)
        if name in tensors:
            raise CheckpointError(
                f"{folder}: {shown(tensors[name].name)} and {shown(stored.name)} are two names for the same "
                f"tensor, {shown(name)}: save the checkpoint again with only one of them."
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


def _check_refused(names: Iterable[str], family: Family, folder: Path) -> None:
    """Raise CheckpointError for tensors that the family cannot serve."""
    for pattern, reason in family.refused.items():
        if which := [name for name in names if fnmatch(name, pattern)]:
            raise CheckpointError(f"{folder}: {reason} ({_listed(which)}).")


def _say_dropped(folder: Path, family: Family, heads: Iterable[str]) -> None:
    """Log which prediction heads of the checkpoint are not served."""
    names = sorted(heads)
    told = [what for pattern, what in family.heads.items() if any(fnmatch(n, pattern) for n in names)]
    log.warning(
        "%s: only the encoder is served; the head for %s (%s) is left out",
        folder,
        " and ".join(told),
        _listed(names),
    )


def _listed(names: Iterable[str]) -> str:
    """List the first few names, in order."""
    ordered = sorted(names)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(name if len(name) < 120 else shown(name) for name in ordered[:_NAMED]) + more
