"""Adapters in the form of peft: folders as its `save_pretrained` writes them, and what they do.

A task's weight is W + s·BA (Hu et al. 2021, §4.1); s is `lora_alpha` / r, or / √r with `use_rslora`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from tests.references.families import Written

CONFIG = {
    "peft_type": "LORA",
    "task_type": "FEATURE_EXTRACTION",
    "base_model_name_or_path": "org/model",
    "bias": "none",
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "lora_dropout": 0.1,
    "modules_to_save": None,
    "rank_pattern": {},
    "alpha_pattern": {},
    "use_dora": False,
    "use_rslora": False,
}
"""What peft writes where nothing is chosen."""


@dataclass(frozen=True)
class Task:
    """The adapter of one task; `modules` are the ends of the names of those that have one."""

    rank: int
    alpha: float
    modules: Sequence[str]
    root: bool = False

    @property
    def scale(self) -> float:
        """What B A is multiplied by."""
        return self.alpha / (self.rank**0.5 if self.root else self.rank)


@dataclass(frozen=True)
class Adapted:
    """A saved model, and the updates of its weights by task."""

    written: Written
    updates: Mapping[str, Mapping[str, Tensor]]

    @property
    def folder(self) -> Path:
        """The folder."""
        return self.written.folder

    def run(
        self, ids: Sequence[int], segments: Sequence[int], task: str | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Hidden states (L + 1, N, C) and attention weights (L, H, N, N) of one input, alone."""
        with self.merged(task):
            return self.written.run(ids, segments)

    @contextmanager
    def merged(self, task: str | None) -> Iterator[None]:
        """Have the model run with the weights of a task inside the `with` block."""
        weights = dict(self.written.model.named_parameters())
        updates = self.updates[task] if task else {}
        before = {name: weights[name].detach().clone() for name in updates}
        with torch.no_grad():
            for name, update in updates.items():
                weights[name] += update
        try:
            yield
        finally:
            with torch.no_grad():
                for name, weight in before.items():
                    weights[name].copy_(weight)


def write_adapters(written: Written, tasks: Mapping[str, Task]) -> Adapted:
    """Write an adapter of random matrices for each task beside a saved model."""
    generator = torch.Generator().manual_seed(1)
    updates: dict[str, dict[str, Tensor]] = {}
    for name, task in tasks.items():
        folder = written.folder / "adapters" / name
        folder.mkdir(parents=True)
        stored: dict[str, Tensor] = {}
        updates[name] = {}
        for weight, parameter in written.model.named_parameters():
            module = weight.removesuffix(".weight")
            if parameter.ndim != 2 or not module.endswith(tuple(f".{one}" for one in task.modules)):
                continue
            outputs, inputs = parameter.shape
            a = torch.randn(task.rank, inputs, generator=generator) / inputs**0.5
            b = torch.randn(outputs, task.rank, generator=generator) / task.rank**0.5
            stored[f"base_model.model.{module}.lora_A.weight"] = a
            stored[f"base_model.model.{module}.lora_B.weight"] = b
            updates[name][weight] = task.scale * (b.double() @ a.double()).float()
        save_file(stored, folder / "adapter_model.safetensors", {"format": "pt"})
        chosen = {
            "r": task.rank,
            "lora_alpha": task.alpha,
            "use_rslora": task.root,
            "target_modules": list(task.modules),
        }
        (folder / "adapter_config.json").write_text(json.dumps({**CONFIG, **chosen}))
    return Adapted(written, updates)


def change_adapter(folder: Path, task: str, **changes: Any) -> None:
    """Change fields of an adapter's config."""
    file = folder / "adapters" / task / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
