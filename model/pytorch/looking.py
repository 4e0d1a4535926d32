"""Observes a pass: plans which layers, and which sequences' queries and keys there."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TypeGuard

import torch
from torch import Tensor

from model.contract import Output, Want
from model.encoder.attention import SelfAttention
from model.encoder.packing import Packing, Run
from model.encoder.plan import Plan
from model.inspection.blocks import Layer
from model.inspection.maps import Maps, Rollout
from model.inspection.summaries import Summaries
from model.pytorch.kernels.looks import Looks, Slots

Look = Maps | Rollout | Summaries


class Looking:
    """Computes, in each layer, what sequences want of its attention, and nothing else.

    Neighbouring sequences of one length that want the same are observed together; what is computed depends
    on their own queries, keys and values alone, not on the batch they are in.
    """

    def __init__(
        self, packing: Packing, wants: Sequence[Want], device: torch.device, *, native: bool = False
    ) -> None:
        """Sort what is wanted; `native` is whether native kernels observe layers while they attend."""
        self._layers: dict[int, list[tuple[Look, Run]]] = defaultdict(list)
        self._in_kernels: dict[int, list[tuple[Maps | Summaries, int]]] = defaultdict(list)
        """Layer -> what kernels observe of it while they attend, and of which sequences: from this one on."""
        self._wants = len(wants)
        self._native = native
        self._slots: dict[int, tuple[Slots, Slots | None]] = {}  # by id: the same in each layer
        self._maps: dict[int, tuple[Maps | Rollout, int]] = {}  # sequence -> where its maps are
        self._summaries: dict[int, tuple[Summaries, int]] = {}
        keys = [
            (length, want.attention, want.summary)
            for length, want in zip(packing.lengths, wants, strict=True)
        ]
        first = 0
        for (length, attention, summary), members in groupby(keys):
            count = len(list(members))
            run = Run(packing.starts[first], count, length)
            if attention is not None:
                kind = Rollout if attention.aggregate == "rollout" else Maps
                maps = kind(attention, count, length)
                self._maps.update((first + i, (maps, i)) for i in range(count))
                self._add(maps, run, first)
            if summary is not None:
                summaries = Summaries(summary, count, length, device)
                self._summaries.update((first + i, (summaries, i)) for i in range(count))
                self._add(summaries, run, first)
            first += count

    def _add(self, look: Look, run: Run, first: int) -> None:
        for layer in look.layers:
            if self._native and _plain(look):
                self._in_kernels[layer].append((look, first))
            else:
                self._layers[layer].append((look, run))

    def plan(self, states: Collection[int], heads: int) -> Plan:
        """Plan a pass that returns hidden states and observes what is wanted of layers with `heads` heads."""
        observers = {number: partial(self._observe, number) for number in self._layers}
        return Plan(states, observers, {number: self._looks(number, heads) for number in self._in_kernels})

    def _looks(self, number: int, heads: int) -> Looks:
        """Say what kernels observe while a layer attends."""
        looks = Looks(self._wants, heads)
        for look, first in self._in_kernels[number]:
            if id(look) not in self._slots:
                self._slots[id(look)] = _slots(look, heads)
            chosen, rows = self._slots[id(look)]
            if isinstance(look, Summaries):
                looks.statistics(first, look.buffer(number), chosen, look.special)
            else:
                weights, finite = look.buffer(number)
                looks.weights(first, weights, chosen, rows, finite)
        return looks

    def _observe(
        self, number: int, attention: SelfAttention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None
    ) -> None:
        """Observe one layer; see `Observer`."""
        for look, run in self._layers[number]:
            rows = slice(run.start, run.stop)
            shape = (run.count, run.length, *q.shape[1:])
            mine = Layer(attention, q[rows].view(shape), k[rows].view(shape), v[rows].view(shape), bias)
            look.look(number, mine)

    def of(self, index: int) -> Output:
        """Give what one sequence wants of attention; nothing where it wants nothing."""
        output = Output()
        if index in self._maps:
            maps, place = self._maps[index]
            output = maps.of(place)
        if index in self._summaries:
            summaries, place = self._summaries[index]
            output = replace(output, summary=summaries.of(place))
        return output


def _slots(look: Maps | Summaries, heads: int) -> tuple[Slots, Slots | None]:
    """Say which of the `heads`, and which rows of maps, a kernel computes; None is all of them."""
    if isinstance(look, Summaries) or look.queries is None:
        return Slots(look.heads, heads), None
    return Slots(look.heads, heads), Slots(look.queries, look.length)


def _plain(look: Look) -> TypeGuard[Maps | Summaries]:
    """Whether a kernel gives what is wanted, as it is wanted."""
    return isinstance(look, Maps | Summaries) and look.plain
