"""Describes how sequences of different lengths are packed into one tensor without padding."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.encoder.attending.padded_runs import PaddedRun, make_padded_runs
from model.encoder.sharing import Prefix


@dataclass(frozen=True, slots=True)
class Run:
    """`count` consecutive sequences of equal `length`, starting at packed token `start`.

    No token attends to the last `unattended` tokens of each sequence.

    The tokens of a run are a (count, length) rectangle without padding, so batched products run on a view
    of them. Sorting a batch by length makes runs few and long.
    """

    start: int
    count: int
    length: int
    unattended: int = 0

    @property
    def stop(self) -> int:
        """The index of the packed token after the run."""
        return self.start + self.count * self.length


@dataclass(frozen=True)
class Packing:
    """The position of each sequence in a packed batch.

    `unattended` says for each how many of its last tokens attend to the others, but are attended to by none;
    it is empty if there are no such tokens. `prefixes` says for each which tokens of another it begins with;
    only the tokens after these are packed and counted as its own. Only native kernels support prefixes.
    """

    lengths: tuple[int, ...]
    unattended: tuple[int, ...] = ()
    prefixes: tuple[Prefix | None, ...] = ()
    _boundaries: dict[torch.device, Tensor] = field(default_factory=dict, repr=False, compare=False)
    _neighbours: dict[tuple[torch.device, int], tuple[Tensor, Tensor]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(
        cls,
        lengths: Iterable[int],
        unattended: Iterable[int] = (),
        prefixes: Iterable[Prefix | None] = (),
    ) -> "Packing":
        """Describe sequences of these lengths, end to end."""
        return cls(tuple(lengths), tuple(unattended), tuple(prefixes))

    @cached_property
    def starts(self) -> Sequence[int]:
        """The first packed token of each sequence, and T at the end: B + 1 numbers."""
        return [0, *accumulate(self.lengths)]

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """`starts` as int64 (B + 1,) on the CPU."""
        return np.array(self.starts, np.int64)

    @cached_property
    def before(self) -> Sequence[int]:
        """How many tokens of its prefix come before each sequence's own."""
        return [one.length if one else 0 for one in self.prefixes or (None,) * len(self.lengths)]

    @cached_property
    def longest(self) -> int:
        """The length of the longest sequence, with its prefix; 0 without sequences."""
        if not self.prefixes:
            return max(self.lengths, default=0)
        return max(map(sum, zip(self.lengths, self.before, strict=True)))

    @cached_property
    def runs(self) -> Sequence[Run]:
        """Groups of consecutive sequences with the same length and the same number of unattended tokens."""
        runs, start = [], 0
        unattended = self.unattended or (0,) * len(self.lengths)
        for (length, hidden), group in groupby(zip(self.lengths, unattended, strict=True)):
            run = Run(start, sum(1 for _ in group), length, hidden)
            runs.append(run)
            start = run.stop
        return runs

    @cached_property
    def padded_runs(self) -> list[PaddedRun]:
        """Consecutive sequences of similar length, grouped and padded to one length."""
        return make_padded_runs(self.lengths)

    def parts(self, tokens: int) -> Iterator[tuple[int, "Packing"]]:
        """Cut the batch into parts of about `tokens` each; yields a part's first sequence, and its packing.

        Parts have whole sequences, so a long one is a part of its own.
        """
        count = round(self.tokens / tokens)
        if count < 2:
            yield 0, self
            return
        most, first = self.tokens / count, 0
        for last in range(1, len(self.lengths) + 1):
            if last == len(self.lengths) or self.starts[last + 1] - self.starts[first] > most:
                yield first, Packing(self.lengths[first:last], self.unattended[first:last])
                first = last

    @property
    def tokens(self) -> int:
        """T, the number of packed tokens."""
        return self.starts[-1]

    def boundaries(self, device: torch.device) -> Tensor:
        """Return `starts` as int32 (B + 1,) on a device; copied there once."""
        if device not in self._boundaries:
            self._boundaries[device] = torch.tensor(self.starts, dtype=torch.int32, device=device)
        return self._boundaries[device]

    def positions(self, device: torch.device, padding: int = 0) -> Tensor:
        """Return the position of each token in its sequence, 0 for padding rows: int64 (T + padding,)."""
        positions = np.zeros(self.tokens + padding, np.int64)
        first = np.subtract(self.starts[:-1], self.before) if self.prefixes else self.starts[:-1]
        positions[: self.tokens] = np.arange(self.tokens) - np.repeat(first, self.lengths)
        return torch.from_numpy(positions).to(device)  # (T + padding,)

    def neighbours(self, device: torch.device, padding: int = 0) -> tuple[Tensor, Tensor]:
        """Return how many tokens are before and after each in its sequence, 0 for padding rows.

        Both are int64 (T + padding,), and are copied to a device once.
        """
        key = device, padding
        if key not in self._neighbours:
            before = self.positions(torch.device("cpu"), padding)
            ends = np.zeros(self.tokens + padding, np.int64)
            ends[: self.tokens] = np.repeat(self.lengths, self.lengths) - 1
            after = torch.from_numpy(ends) - before
            self._neighbours[key] = before.to(device), after.to(device)  # (T + padding,) each
        return self._neighbours[key]
