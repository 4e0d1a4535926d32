"""Reads the matrices of adapters, and gives them to the linear layers that they update."""

from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor

from model.checkpoints.peft.tasks import Adapter
from model.checkpoints.weights import FLOATS, Stored, read_header, read_tensors
from model.encoder.adapters import LinearAdapters
from model.encoder.linear import Linear
from model.errors import CheckpointError
from model.families.family import Part
from model.files import shown

_BASE = "base_model.model."
"""The prefix of every name in a file saved by peft."""
_MATRICES = (".lora_A.weight", ".lora_B.weight")
_FEW_NUMBERS, _MOST_PADDED = 2**26, 8
"""Matrices padded to the largest rank may have so many numbers, or so many times those in the files."""
_MADE_FOR = "use the adapters that were made for this model"

Parts = Sequence[tuple[Stored, Part]]
"""The stored tensors, or rows of them, that make up a weight."""
Pairs = Mapping[str, tuple[Tensor, Tensor]]
"""A (rank, in) and B (out, rank), by the name of the stored weight that they update."""


def attach(
    adapters: Sequence[Adapter], linears: Collection[tuple[Linear, Parts]], plain: Callable[[str], str]
) -> None:
    """Set the adapters of linear layers from the files of all tasks.

    `linears` are the layers, each with the parts of its weight, and `plain` maps the name of a stored tensor
    to the family's name. Raises CheckpointError for a matrix that belongs to none of them or does not fit.
    """
    shapes = {part.name: stored.shape for _, parts in linears for stored, part in parts}
    by_task = [_scaled(adapter, shapes, plain) for adapter in adapters]
    ranks = [_rank([part.name for _, part in parts], by_task) for _, parts in linears]
    sizes = [
        rank * (parts[0][0].shape[1] + len(linear.weight))
        for rank, (linear, parts) in zip(ranks, linears, strict=True)
    ]
    numbers = len(adapters) * sum(sizes)
    if numbers > max(
        _FEW_NUMBERS,
        _MOST_PADDED * sum(a.numel() + b.numel() for pairs in by_task for a, b in pairs.values()),
    ):
        raise CheckpointError(
            f"{adapters[0].weights.parent.parent}: the ranks of the adapters differ so much that padding "
            f"them all to the largest rank would take {numbers} numbers, most of them 0: serve the largest "
            "adapter in a folder of its own."
        )
    for rank, (linear, parts) in zip(ranks, linears, strict=True):
        if rank:
            made = [_joined(pairs, parts, rank) for pairs in by_task]
            down, up = (torch.stack(matrices) for matrices in zip(*made, strict=True))
            linear.adapters = LinearAdapters.of(down, up)


def _rank(names: Sequence[str], by_task: Sequence[Pairs]) -> int:
    """Return the largest rank that a layer has in any task.

    If a layer joins several weights, such as those of queries, keys and values, their ranks add up.
    """
    return max(sum(len(pairs[name][0]) for name in names if name in pairs) for pairs in by_task)


def _joined(pairs: Pairs, parts: Parts, rank: int) -> tuple[Tensor, Tensor]:
    """Join the matrices of one layer's parts: A stacked in rows, B along a block diagonal.

    So B·A has the product of each part in that part's rows. Returns A (rank, in) and B (out, rank).
    """
    heights = [stored.shape[0] // part.count for stored, part in parts]
    down = torch.zeros(rank, parts[0][0].shape[1])
    up = torch.zeros(sum(heights), rank)
    row = first = 0
    for (_, part), height in zip(parts, heights, strict=True):
        if part.name in pairs:
            a, b = pairs[part.name]
            end = first + len(a)
            down[first:end] = a
            up[row : row + height, first:end] = b.chunk(part.count)[part.index]
            first = end
        row += height
    return down, up


def _scaled(adapter: Adapter, shapes: Mapping[str, Sequence[int]], plain: Callable[[str], str]) -> Pairs:
    """Read one task's matrices as float32, B multiplied by the scale."""
    stored: dict[str, dict[str, Stored]] = {}
    for one in read_header(adapter.weights):
        kind = next((kind for kind in _MATRICES if one.name.endswith(kind)), None)
        name = plain(one.name.removeprefix(_BASE).removesuffix(kind or "") + ".weight")
        if kind is None or name not in shapes:
            raise CheckpointError(
                f"{adapter.weights}: {shown(one.name)} does not belong to a linear layer of the encoder's "
                f"blocks, and an adapter can update nothing else: {_MADE_FOR}."
            )
        if kind in stored.setdefault(name, {}):
            raise CheckpointError(
                f"{adapter.weights}: {shown(one.name)} and {shown(stored[name][kind].name)} are the same "
                f"matrix: {_MADE_FOR}."
            )
        stored[name][kind] = one
    for name, kinds in stored.items():
        _check(adapter, name, kinds, shapes[name])
    read = read_tensors([one for kinds in stored.values() for one in kinds.values()])
    pairs = {}
    for name, kinds in stored.items():
        a, b = (read[kinds[kind].name].float() for kind in _MATRICES)
        pairs[name] = (a, adapter.scale * b)
    return pairs


def _check(adapter: Adapter, name: str, kinds: Mapping[str, Stored], shape: Sequence[int]) -> None:
    """Raise CheckpointError unless both matrices of a weight are there and fit its shape."""
    outputs, inputs = shape
    for kind, expected in zip(_MATRICES, ((adapter.rank, inputs), (outputs, adapter.rank)), strict=True):
        found = kinds.get(kind)
        if found is None:
            raise CheckpointError(f"{adapter.weights}: {name} has no {kind.strip('.')}: {_MADE_FOR}.")
        if found.shape != expected or found.dtype not in FLOATS:
            raise CheckpointError(
                f"{adapter.weights}: the tensor {shown(found.name)} is {found.dtype} {found.shape}; it must "
                f"have the shape {expected} and one of the dtypes {', '.join(FLOATS)}: {_MADE_FOR}."
            )
