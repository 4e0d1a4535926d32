"""Low-rank updates of the weights for tasks (LoRA, Hu et al. 2021, §4.1), added while a batch runs.

The weights exist once for all tasks. A task's weight W + s·BA is never built: the tokens of its sequences get
s·(x Aᵀ) Bᵀ on top of x Wᵀ, so sequences of several tasks share a batch and the product with W.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.encoder.packing import Packing
from model.encoder.parts import Adapters


class TaskRows(NamedTuple):
    """Rows of a packed batch: the tokens of sequences of one task, counted from 0."""

    task: int
    rows: slice


def task_rows(tasks: Sequence[int | None], packing: Packing) -> list[TaskRows]:
    """Return the rows of each task, whose sequences must lie together; leave out those without a task."""
    rows, first = [], 0
    for task, members in groupby(tasks):
        last = first + len(list(members))
        if task is not None:
            rows.append(TaskRows(task, slice(packing.starts[first], packing.starts[last])))
        first = last
    return rows


class LinearAdapters(nn.Module):
    """The updates s·BA of the weight (out, in) of a linear layer.

    A is `down` (tasks, rank, in), and B is `up` (tasks, out, rank).
    """

    def __init__(self, inputs: int, outputs: int, config: Adapters) -> None:
        super().__init__()
        tasks = len(config.tasks)
        self.scale = config.scale
        self.down = nn.Parameter(torch.empty(tasks, config.rank, inputs), requires_grad=False)
        self.up = nn.Parameter(torch.empty(tasks, outputs, config.rank), requires_grad=False)

    @classmethod
    def of(cls, down: Tensor, up: Tensor) -> "LinearAdapters":
        """Make updates from existing matrices; `up` is already multiplied by the scale."""
        outputs, inputs = up.shape[1], down.shape[2]
        adapters = cls(inputs, outputs, Adapters(tuple(map(str, range(len(down)))), 0))
        adapters.down, adapters.up = (nn.Parameter(one, requires_grad=False) for one in (down, up))
        return adapters

    def add(self, y: Tensor, x: Tensor, tasks: Sequence[TaskRows]) -> None:
        """Add the updates of the tasks' rows to y = x Wᵀ + b, in place: x (T, in), y (T, out)."""
        for task, rows in tasks:
            y[rows].addmm_(x[rows] @ self.down[task].T, self.up[task].T, alpha=self.scale)

    def update(self, task: int) -> Tensor:
        """Return a task's update of the weight, (out, in)."""
        return self.scale * (self.up[task] @ self.down[task])


class TableAdapters(nn.Module):
    """The updates s·AB of a table (rows, size).

    A is `down` (tasks, rows, rank), and B is `up` (tasks, rank, size).
    """

    def __init__(self, count: int, size: int, config: Adapters) -> None:
        super().__init__()
        tasks = len(config.tasks)
        self.scale = config.scale
        self.down = nn.Parameter(torch.empty(tasks, count, config.rank), requires_grad=False)
        self.up = nn.Parameter(torch.empty(tasks, config.rank, size), requires_grad=False)

    def add(self, x: Tensor, ids: Tensor, tasks: Sequence[TaskRows]) -> None:
        """Add the updates of the tasks' rows in place to x (T, size), the table's rows `ids` (T,)."""
        for task, rows in tasks:
            x[rows].addmm_(F.embedding(ids[rows], self.down[task]), self.up[task], alpha=self.scale)

    def update(self, task: int) -> Tensor:
        """Return a task's update of the table, (rows, size)."""
        return self.scale * (self.down[task] @ self.up[task])
