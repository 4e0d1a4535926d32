"""Finds the adapters of a folder, and reads what `adapter_config.json` says of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import Adapters
from model.errors import CheckpointError
from model.fields import switch, whole
from model.files import is_inside, present, read_json, shown
from model.keys.files import ADAPTERS

FOLDER, WEIGHTS = "adapters", "adapter_model.safetensors"
_TASKS, _MOST_ALPHA = 64, 2**20
_MERGE = "merge the adapter into the weights (`merge_and_unload` of peft) and serve that folder"
# Options that change more than the low-rank updates, and are refused if they are set.
_OFF = (
    *("use_dora", "fan_in_fan_out", "lora_bias", "use_qalora", "modules_to_save", "rank_pattern"),
    *("alpha_pattern", "layer_replication", "trainable_token_indices", "target_parameters"),
    *("alora_invocation_tokens", "arrow_config", "kasa_config", "use_bdlora", "velora_config"),
    *("monteclora_config", "lora_ga_config", "megatron_config"),
)
# Options that are read below or change nothing: the matrices tell which layers they update.
_HARMLESS = (
    *("peft_type", "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision"),
    *("inference_mode", "r", "target_modules", "exclude_modules", "lora_alpha", "lora_dropout", "bias"),
    *("use_rslora", "init_lora_weights", "layers_to_transform", "layers_pattern", "megatron_core"),
    *("loftq_config", "eva_config", "corda_config", "qalora_group_size", "ensure_weight_tying"),
    *("runtime_config", "lora_dtype"),
)
_INITIAL = ("gaussian", "eva", "orthogonal")
"""Ways to initialize the matrices that leave the weights they update as they are."""


@dataclass(frozen=True)
class Adapter:
    """One task's adapter: its file of matrices, their rank, and what their product is multiplied by."""

    task: str
    weights: Path
    rank: int
    scale: float


def find_adapters(transformer: Path, config: Mapping[str, Any], default: str | None) -> list[Adapter]:
    """Read the adapters below a transformer's folder, in the order of its `task_names`, else by name.

    Empty if there are none. Raises CheckpointError if a model with a `default` task lists tasks but has none,
    or if an adapter is not supported.
    """
    folder = transformer / FOLDER
    named = config.get("task_names")
    if named is not None and not (isinstance(named, list) and all(isinstance(one, str) for one in named)):
        raise CheckpointError(
            f"{transformer / 'config.json'}: task_names is {shown(named)}; it must be a list of names."
        )
    if not present(folder):
        if default is not None and named:
            raise CheckpointError(
                f"{folder} is missing; it must have the adapters that task_names in "
                f"{transformer / 'config.json'} lists: fetch the model again, with all its files."
            )
        return []
    try:
        found = sorted(path.name for path in folder.iterdir() if present(path / ADAPTERS))
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {error.strerror}.") from error
    if len(found) > _TASKS:
        raise CheckpointError(f"{folder} has {len(found)} adapters; the limit is {_TASKS}: remove some.")
    if named is not None and sorted(named) != found:
        raise CheckpointError(
            f"{transformer / 'config.json'}: task_names is {shown(named)}, but {folder} has {shown(found)}: "
            "use files from the same checkpoint."
        )
    outside = [one for one in (folder, *(folder / task for task in found)) if not is_inside(one, transformer)]
    if outside:
        raise CheckpointError(
            f"{outside[0]} is a link to a place outside {transformer}: move the adapters into that folder."
        )
    return [_read(folder / task, task) for task in named or found]


def with_adapters(config: EncoderConfig, adapters: Sequence[Adapter], default: str | None) -> EncoderConfig:
    """Add the tasks of a folder's adapters to the encoder's config; raises CheckpointError on a conflict."""
    stored = config.adapters
    if stored is not None and (bool(adapters) == bool(stored.rank)):
        raise CheckpointError(
            f"config.json has adapters of rank {stored.rank}, and the folder has {len(adapters)} adapters "
            "of peft: use files from the same checkpoint."
        )
    if not adapters:
        return config
    tasks = tuple(adapter.task for adapter in adapters)
    return replace(config, adapters=Adapters(tasks, 0, default=default if default in tasks else None))


def _read(folder: Path, task: str) -> Adapter:
    file = folder / ADAPTERS
    config = read_json(file)
    try:
        return Adapter(task, folder / WEIGHTS, *_rank_and_scale(config))
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from error


def _rank_and_scale(config: Mapping[str, Any]) -> tuple[int, float]:
    if config.get("peft_type") != "LORA":
        kind = shown(config.get("peft_type"))
        raise CheckpointError(f'peft_type is {kind}; only "LORA" is supported: {_MERGE}.')
    for name, value in config.items():
        if value and name not in _HARMLESS:
            known = "is not supported" if name in _OFF else "headlight does not know"
            raise CheckpointError(f"{name[:80]} is {shown(value)}, which {known}: {_MERGE}.")
    if config.get("bias", "none") != "none":
        raise CheckpointError(f'bias is {shown(config["bias"])}; only "none" is supported: {_MERGE}.')
    initial = config.get("init_lora_weights", True)
    if not isinstance(initial, bool) and initial not in _INITIAL:
        raise CheckpointError(
            f"init_lora_weights is {shown(initial)}, which changes the weights that the adapter updates: "
            f"{_MERGE}."
        )
    rank = whole(config, "r", like="hidden_size", default=8)
    alpha = config.get("lora_alpha", 8)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha <= _MOST_ALPHA:
        raise CheckpointError(
            f"lora_alpha is {shown(alpha)}; it must be a number above 0, and at most {_MOST_ALPHA}."
        )
    root = switch(config, "use_rslora", default=False)
    return rank, alpha / (math.sqrt(rank) if root else rank)
