"""Chooses the task that a graph is exported for, and merges its adapter: a graph has one set of weights."""

from dataclasses import replace

import torch

from export.errors import ExportError
from model.checkpoints.checkpoint import Checkpoint
from model.encoder.encoder import Encoder
from model.encoder.linear import Linear

WITHOUT = "none"
"""The choice of the weights without any adapter."""


def choose_task(checkpoint: Checkpoint, task: str | None) -> tuple[Checkpoint, str | None]:
    """Merge the adapter of a task into a checkpoint's weights; returns the task, None for WITHOUT.

    Raises ExportError if the model has adapters and no task is chosen, or does not have this task.
    """
    adapters = checkpoint.encoder.config.adapters
    if adapters is None:
        if task in (None, WITHOUT):
            return checkpoint, None
        raise ExportError(f"--task is {task}, but this model has no adapters: leave the option out.")
    names = ", ".join(adapters.tasks)
    if task is None:
        raise ExportError(
            f"The model has adapters for several tasks ({names}), but a graph can have only one: choose it "
            f"with --task, or use --task {WITHOUT} for the weights without adapters."
        )
    if task != WITHOUT and task not in adapters.tasks:
        raise ExportError(f"--task is {task}, which the model does not have: choose from {names}, {WITHOUT}.")
    chosen = None if task == WITHOUT else task
    number = None if chosen is None else adapters.tasks.index(chosen)
    return replace(checkpoint, encoder=merge_task(checkpoint.encoder, number)), chosen


def merge_task(encoder: Encoder, task: int | None) -> Encoder:
    """Return an encoder without adapters whose weights are W + s·BA of a task, or W if it is None.

    It shares the tensors that have no update with `encoder`, which must not be prepacked.
    """
    with torch.device("meta"):
        merged = Encoder(replace(encoder.config, adapters=None))
    weights = {name: x for name, x in encoder.state_dict().items() if name in merged.state_dict()}
    if task is not None:
        for name, module in encoder.named_modules(remove_duplicate=False):
            if isinstance(module, Linear) and module.adapters is not None:
                weights[f"{name}.weight"] = module.weight + module.adapters.update(task)
        for name, adapters in encoder.embeddings.table_adapters.items():
            weights[f"embeddings.{name}"] = weights[f"embeddings.{name}"] + adapters.update(task)
    merged.load_state_dict(weights, assign=True)
    return merged.requires_grad_(requires_grad=False).eval()
