"""What one pass of an encoder computes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from model.encoder.attention import Observer


@dataclass(frozen=True)
class Plan:
    """Which hidden states a pass returns, which layers are observed and how, and so where it ends.

    `states` are numbers of hidden states, from 0; layers count from 0 as well, and layer i makes hidden
    state i + 1. `observers` are called in their layers. `in_kernels` is for an executor that observes a layer
    by itself while it attends: what it observes there, in a form of its own.
    """

    states: Collection[int]
    observers: Mapping[int, Observer] = field(default_factory=dict)
    in_kernels: Mapping[int, Any] = field(default_factory=dict)

    @cached_property
    def blocks(self) -> int:
        """How many blocks run to their end: as far as the last state, or the last observed layer, needs."""
        return max(0, *self.states, self._last_observed)

    @property
    def ends_observing(self) -> bool:
        """Whether the attention of one more block is observed, and nothing after that is run."""
        return self._last_observed == self.blocks

    @cached_property
    def _last_observed(self) -> int:
        return max((*self.observers, *self.in_kernels), default=-1)
