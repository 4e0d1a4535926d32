"""The plan of one pass through an encoder: what it returns, observes and changes, and its progress."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from model.encoder.attention import Observer
from model.encoder.interventions import Interventions
from model.encoder.sharing import Start
from model.progress import Progress


@dataclass(frozen=True)
class Plan:
    """Which hidden states a pass returns, which layers it observes, and therefore where it ends.

    `states` are numbers of hidden states, from 0. Layers count from 0 too: layer i produces hidden state
    i + 1. `observers` are called in their layers. `in_kernels` are observations that an executor makes
    itself while a layer attends, in a form that only the executor reads. `progress` counts the layers that
    are finished, and can end the pass after one of them. `interventions` has what is changed in each of the
    packed sequences, or None; it is empty if nothing is changed in any. `starts` says where an executor may
    begin each sequence, None with its embeddings; the sequences are in the order of these states, and
    `starts` is empty if all begin with their embeddings. `read` lists the tokens of each sequence that are
    read in the last hidden state, None for all; it is empty if all tokens of all sequences are. An executor
    that ignores `starts` and `read` computes the same.
    """

    states: Collection[int]
    observers: Mapping[int, Observer] = field(default_factory=dict)
    in_kernels: Mapping[int, Any] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    interventions: Sequence[Interventions | None] = ()
    starts: Sequence[Start | None] = ()
    read: Sequence[Sequence[int] | None] = ()

    @cached_property
    def blocks(self) -> int:
        """How many blocks run completely: enough for the last state and the last observed layer's input."""
        return max(0, *self.states, self._last_observed)

    @property
    def ends_observing(self) -> bool:
        """Whether the pass observes the attention of one more block and then stops."""
        return self._last_observed == self.blocks

    @cached_property
    def _last_observed(self) -> int:
        return max((*self.observers, *self.in_kernels), default=-1)
