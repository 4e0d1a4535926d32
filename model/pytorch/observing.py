"""Observes the attention of a batch while it runs: the layers and sequences that its wants select."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor

from model.contract import Output, Want
from model.encoder.attention import Bias, SelfAttention
from model.encoder.interventions import BlockedEdges, EdgeWords, HeadScale
from model.encoder.packing import Packing, Run
from model.encoder.plan import Plan
from model.encoder.sharing import Start
from model.inspection.maps import MapObserver
from model.inspection.statistics import StatisticsObserver
from model.inspection.vectors import AttentionObserver, joined, observers
from model.progress import Progress
from model.pytorch.kernels.observations import Observations, Slots
from model.pytorch.kernels.passes import Attended
from model.pytorch.native_layer import NativeLayer
from model.pytorch.tensor_layer import TensorLayer
from model.pytorch.tensor_operations import TensorOperations

Observer = AttentionObserver | StatisticsObserver
Recorder = MapObserver | StatisticsObserver


class _Change(NamedTuple):
    """What changes the attention of some sequences: the task of their adapters, edges, scales of heads."""

    task: int | None
    edges: EdgeWords
    scales: tuple[HeadScale, ...]


def blocked_edges(want: Want) -> tuple[BlockedEdges, ...]:
    """Return the edges of attention that are blocked in a sequence."""
    return () if want.interventions is None else want.interventions.edges


def _scaled_heads(want: Want) -> tuple[HeadScale, ...]:
    """Return the changes of heads if norms of outputs are wanted, which alone show them."""
    shown = want.attention is not None and "output_norm" in want.attention.vectors
    return want.interventions.heads if shown and want.interventions is not None else ()


class BatchObserver:
    """Computes the attention results that the sequences of a batch want, layer by layer.

    Consecutive sequences with the same length, want and blocked edges are observed together; `tasks` is the
    number of the adapter that each sequence runs with, by default none. Their results depend only on their
    own queries, keys and values, not on the rest of the batch.
    """

    def __init__(
        self,
        packing: Packing,
        wants: Sequence[Want],
        device: torch.device,
        *,
        kernels: bool = False,
        tasks: Sequence[int | None] = (),
    ) -> None:
        """Group the wants; `kernels` says whether native kernels run, which can record while they attend."""
        self._probed: dict[int, list[tuple[Observer, Run, int, _Change]]] = defaultdict(list)
        """Layer -> observers of its queries, keys and values, each with its run, its first sequence, and the
        change of its sequences."""
        self._recorded: dict[int, list[tuple[Recorder, int]]] = defaultdict(list)
        """Layer -> observers that the native kernels fill, each with its first sequence."""
        self._wants = len(wants)
        changed = [want.interventions for want in wants]
        self._interventions = changed if any(changed) else ()
        self._kernels = kernels
        self._slots: dict[
            int, tuple[Slots, Slots | None]
        ] = {}  # by the observer's id; the same in each layer
        self._found: dict[int, list[tuple[Observer, int]]] = defaultdict(list)
        """Sequence -> where its maps, vectors and statistics are."""
        ops = TensorOperations(device)
        edges = [blocked_edges(want) for want in wants] if self._interventions else [()] * len(wants)
        scales = [_scaled_heads(want) for want in wants] if self._interventions else [()] * len(wants)
        keys = [
            (length, want.attention, want.summary, task, blocked, scaled)
            for length, want, task, blocked, scaled in zip(
                packing.lengths, wants, tasks or [None] * len(wants), edges, scales, strict=True
            )
        ]
        first = 0
        for (length, attention, summary, task, blocked, scaled), members in groupby(keys):
            change = _Change(task, EdgeWords(blocked, length), scaled)
            count = len(list(members))
            run = Run(packing.starts[first], count, length)
            if attention is not None:
                for observer in observers(attention, count, length, ops):
                    self._add(observer, run, first, change)
            if summary is not None:
                self._add(StatisticsObserver(summary, count, length, ops), run, first, change)
            first += count

    def _add(self, observer: Observer, run: Run, first: int, change: "_Change") -> None:
        for i in range(run.count):
            self._found[first + i].append((observer, i))
        for layer in observer.layers:
            if self._kernels and _plain(observer):
                self._recorded[layer].append((observer, first))
            else:
                self._probed[layer].append((observer, run, first, change))

    def plan(
        self, states: Collection[int], heads: int, progress: Progress, starts: Sequence[Start | None] = ()
    ) -> Plan:
        """Plan a pass that returns hidden `states` and observes the selected layers of `heads` heads.

        `starts` are passed on to the plan.
        """
        observers = {number: partial(self._observe, number, progress) for number in self._probed}
        recorded = {number: self._record(number, heads) for number in self._recorded}
        return Plan(states, observers, recorded, progress, self._interventions, starts)

    def _record(self, number: int, heads: int) -> Observations:
        """Tell the native kernels what to record of a layer with `heads` heads, and where to put it."""
        observations = Observations(self._wants, heads)
        for observer, first in self._recorded[number]:
            if id(observer) not in self._slots:
                self._slots[id(observer)] = _slots(observer, heads)
            some, rows = self._slots[id(observer)]
            if isinstance(observer, StatisticsObserver):
                observations.statistics(first, observer.buffer(number), some, observer.special)
            elif observer.thumbnails is not None and rows is not None:
                cells = observer.thumbnails.buffer(observer.layers.index(number))
                observations.thumbnails(first, cells, some, rows, observer.thumbnails.spans)
            else:
                weights, finite = observer.buffer(number)
                observations.weights(first, weights, some, rows, finite)
        return observations

    def _observe(
        self,
        number: int,
        progress: Progress,
        attention: SelfAttention,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Bias | None,
        attended: Attended | None = None,
    ) -> None:
        """Observe one layer by its queries, keys and values, (T, H, D); `attended` can attend again."""
        for observer, run, first, change in self._probed[number]:
            rows = slice(run.start, run.stop)
            shape = (run.count, run.length, *q.shape[1:])
            edges = change.edges.layer(number)
            q_run, k_run, v_run = (x[rows].view(shape) for x in (q, k, v))
            scales = [one for one in change.scales if one.layer == number]
            layer = TensorLayer(
                attention, q_run, k_run, v_run, bias, change.task, progress, edges or None, scales
            )
            # `attended` knows nothing of blocked edges.
            again = None if edges else attended
            observer.observe(number, layer if again is None else NativeLayer.of(layer, again, first))

    def output(self, index: int) -> Output:
        """Return the attention results of one sequence; an empty output if it wants none."""
        output = Output()
        for observer, position in self._found.get(index, ()):
            found = observer.output(position)
            output = joined(output, found if isinstance(found, Output) else Output(summary=found))
        return output


def _slots(observer: Recorder, heads: int) -> tuple[Slots, Slots | None]:
    """Return which of the `heads`, and which rows of maps, a kernel records; None for all rows.

    For thumbnails, the place of a row is its cell.
    """
    some = Slots(observer.heads, heads)
    if isinstance(observer, StatisticsObserver):
        return some, None
    if (pooled := observer.thumbnails) is not None:
        return some, Slots(pooled.rows, observer.length, pooled.cell_of_row)
    return some, None if observer.queries is None else Slots(observer.queries, observer.length)


def _plain(observer: Observer) -> TypeGuard[Recorder]:
    """Whether a native kernel can record the observer's results directly."""
    return isinstance(observer, MapObserver | StatisticsObserver) and observer.plain
