"""Chooses the task that a graph is exported for: a graph has one set of weights."""

from dataclasses import replace

from export.errors import ExportError
from export.merging import merge_task
from model.checkpoints.checkpoint import Checkpoint

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
            f"The model has adapters for several tasks ({names}), and a graph is exported for one: choose it "
            f"with --task, or --task {WITHOUT} for the weights without adapters."
        )
    if task != WITHOUT and task not in adapters.tasks:
        raise ExportError(f"--task is {task}, which the model does not have: choose from {names}, {WITHOUT}.")
    chosen = None if task == WITHOUT else task
    number = None if chosen is None else adapters.tasks.index(chosen)
    return replace(checkpoint, encoder=merge_task(checkpoint.encoder, number)), chosen
