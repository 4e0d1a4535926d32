"""Gradients of scores by the embeddings of their tokens, in float32 and with the weights of the file.

However the model runs otherwise, they take a pass of their own, forward and back through its blocks, which
are read from the mapped file one by one. Points of many lines share it (Sundararajan et al. 2017, eq. 1).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from model.contract import Batch, Output, Want
from model.encoder.adapters import TaskRows, task_rows
from model.encoder.block import Block
from model.encoder.encoder import Encoder, embed_packed
from model.encoder.interventions import GradientPoint
from model.encoder.linear import joined
from model.encoder.packing import Packing
from model.progress import Progress
from model.pytorch.differentiable import Scores

_KEPT = 2**26
"""The most numbers that a pass keeps of its layers, 256 megabytes; else layers run again on the way back."""


@dataclass(frozen=True)
class _Line:
    """The points of a pass that differ only in their share; `members` are their numbers in the batch.

    The texts of each side lie end to end, from the row in `starts` on.
    """

    want: Want
    point: GradientPoint
    members: Sequence[int]
    starts: Sequence[int]

    def read(self, rows: Tensor) -> list[Tensor]:
        """Cut the sides out of rows (T, …): (S, n, …) for each, with S points."""
        count = len(self.members)
        return [
            rows[start : start + count * side.length].view(count, side.length, *rows.shape[1:])
            for start, side in zip(self.starts, self.point.sides, strict=True)
        ]


@dataclass(frozen=True)
class _Rows:
    """The rows of one pass: their ids, those of the baseline, and segments, int64 (T,); shares (T,)."""

    ids: Tensor
    baselines: Tensor
    segments: Tensor
    shares: Tensor
    packing: Packing
    tasks: list[TaskRows]


class Gradients:
    """Computes what `GradientPoint`s ask for; `parts` are those of the encoder's parameters in a file."""

    def __init__(
        self,
        encoder: Encoder,
        parts: Mapping[str, Sequence[Tensor]],
        scores: Scores,
        tasks: Mapping[str, int],
    ) -> None:
        self._encoder = encoder
        self._parts = parts
        self._scores = scores
        self._tasks = tasks

    def run(self, batch: Batch, members: Sequence[int], progress: Progress) -> dict[int, Output]:
        """Run the sequences of a batch that want a gradient, in one pass; returns their outputs by number.

        Raises Stopped, between two layers, if `progress` is to stop.
        """
        rows, lines = self._pack(batch, members)
        with torch.no_grad():
            x, change = self._embed(rows)
        read = {layer for line in lines for layer in line.want.states(self._encoder.config.num_layers)}
        values, gradient = self._descend(x, rows, lines, read, progress)
        products = (gradient.double() * change).sum(-1).float().cpu()  # (T,)
        outputs = {}
        for line, some in zip(lines, values, strict=True):
            by_point = torch.cat(line.read(products), 1).numpy()  # (S, N)
            scores = some.detach().cpu().numpy()
            for place, number in enumerate(line.members):
                heads = {"gradient": by_point[place], "value": scores[place : place + 1]}
                outputs[number] = Output(heads=heads)
        return outputs

    def _pack(self, batch: Batch, members: Sequence[int]) -> tuple[_Rows, list[_Line]]:
        """Sort the texts of sequences by line and side."""
        bounds = batch.cu_seqlens.tolist()
        alike: dict[Want, list[int]] = defaultdict(list)
        for number in members:
            want = batch.wants[number]
            point = self._scores.located(_point(want), batch.input_ids[slice(*bounds[number : number + 2])])
            alike[replace(want, gradient=replace(point, share=0.0))].append(number)
        lines, places, lengths, unattended, tasks = [], [], [], [], []
        start = 0
        for want, numbers in sorted(alike.items(), key=lambda item: self._task(item[0])):
            point, starts = _point(want), []
            before = 0
            for side in point.sides:
                starts.append(start)
                for number in numbers:
                    first = bounds[number] + before
                    places.append(slice(first, first + side.length))
                before += side.length
                start += side.length * len(numbers)
                lengths += [side.length] * len(numbers)
                unattended += [side.unattended] * len(numbers)
                tasks += [None if want.task is None else self._tasks[want.task]] * len(numbers)
            lines.append(_Line(want, point, numbers, starts))
        packing = Packing.of(lengths, unattended if any(unattended) else ())
        baselines, shares = _baselines(batch, members)
        ids, moved, segments, of_rows = (
            torch.from_numpy(np.concatenate([values[place] for place in places])).to(self._encoder.device)
            for values in (batch.input_ids, baselines, batch.segment_ids, shares)
        )
        return _Rows(ids, moved, segments, of_rows, packing, task_rows(tasks, packing)), lines

    def _task(self, want: Want) -> int:
        return -1 if want.task is None else self._tasks[want.task]

    def _embed(self, rows: _Rows) -> tuple[Tensor, Tensor]:
        """Return hidden state 0 at the points, (T, C), and its change from baseline to input, in float64."""
        embed = partial(
            embed_packed,
            self._encoder.embeddings,
            segment_ids=rows.segments,
            packing=rows.packing,
            tasks=rows.tasks,
            counted=rows.ids,
        )
        x = embed(rows.ids)  # (T, C)
        moves = (rows.ids != rows.baselines)[:, None]
        change = torch.where(moves, x - embed(rows.baselines), 0.0)  # (T, C)
        return x - (1 - rows.shares[:, None]).to(x.dtype) * change, change.double()

    def _descend(
        self, x: Tensor, rows: _Rows, lines: Sequence[_Line], read: set[int], progress: Progress
    ) -> tuple[list[Tensor], Tensor]:
        """Return the scores of each line (S,), and the gradient of all by hidden state 0, `x` (T, C)."""
        run = self._runner(rows, len(x))
        keeps = self._numbers(rows.packing, max(read)) <= _KEPT
        passed: list[tuple[Tensor, Tensor | None]] = []
        states = {0: x}
        for number in range(max(read)):
            given = states[number].requires_grad_()
            with torch.set_grad_enabled(keeps):
                state = run(number, given)
            passed.append((given, state if keeps else None))
            states[number + 1] = state.detach()
            progress.step(layers=1)
        leaves = {number: states[number].detach().requires_grad_() for number in read}
        with torch.enable_grad():
            values = [
                self._scores({n: line.read(leaf) for n, leaf in leaves.items()}, line.want, line.point)
                for line in lines
            ]
            total = torch.cat(values).sum()
        found = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
        gradient = found[max(read)]
        for number in reversed(range(max(read))):
            given, kept = passed.pop()
            with torch.enable_grad():
                # A number: given `gradient` itself, PyTorch would import SymPy for a check, for a second.
                product = ((run(number, given) if kept is None else kept) * gradient).sum()
            (gradient,) = torch.autograd.grad(product, given)
            gradient = gradient + found[number] if number in found else gradient
            progress.step()
        return values, gradient

    def _runner(self, rows: _Rows, count: int) -> Callable[[int, Tensor], Tensor]:
        """Return a function that runs a layer, by its number: (T, C) to (T, C)."""
        encoder, packing = self._encoder, rows.packing
        angles, biases = encoder.angles(packing, count), encoder.biases(packing)
        return lambda number, x: encoder.run_block(
            number, self._block(number), x, packing, angles, biases, rows.tasks
        )

    def _block(self, number: int) -> Block:
        """Read the block of a layer; a weight that is stored as one float32 tensor is not copied."""
        config = self._encoder.config
        own = config.shared[number] if config.shared else number
        with torch.device("meta"):
            block = Block(config, own)
        table = self._encoder.embeddings.token
        dtype = torch.float64 if table.dtype == torch.float64 else torch.float32
        weights = {
            name: joined(self._parts[f"blocks.{own}.{name}"]).to(table.device, dtype)
            for name, _ in block.named_parameters()
        }
        block.load_state_dict(weights, assign=True)
        return block.requires_grad_(requires_grad=False).eval()

    def _numbers(self, packing: Packing, layers: int) -> int:
        """Estimate an upper bound of the numbers that autograd keeps of some layers."""
        config = self._encoder.config
        experts = max(layer.mixture.experts if layer.mixture else 1 for layer in config.layers)
        of_token = 8 * config.hidden_size + 4 * experts * config.intermediate_size
        of_token += 3 * config.num_heads * max(packing.lengths)
        return layers * packing.tokens * of_token


def _point(want: Want) -> GradientPoint:
    if want.gradient is None:
        raise ValueError("this sequence wants no gradient")
    return want.gradient


def _baselines(batch: Batch, members: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of the baselines, int64 (T,), and the share of each token, float64 (T,)."""
    ids, shares = batch.input_ids.copy(), np.ones(len(batch.input_ids))
    for number in members:
        point, start = _point(batch.wants[number]), int(batch.cu_seqlens[number])
        ids[start + np.array(point.tokens, np.int64)] = point.baseline
        shares[start : int(batch.cu_seqlens[number + 1])] = point.share
    return ids, shares
