"""Reads a text with more tokens than the model reads, in overlapping windows that its chunks are taken from.

This is long late chunking (Günther et al. 2024). Each window has the special tokens and the prompt that the
text alone would have, and positions of its own. All are full: the last one ends with the text.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from model.contract import ChunksWant, Encoding, FloatArray, Output, Want
from service.tasks.errors import OptionError

T = TypeVar("T")
Span = tuple[int, int]
"""A half-open range of positions among the tokens of the whole input."""
Finish = Callable[[FloatArray, ChunksWant], FloatArray]
WINDOW_BYTES = 64
"""Bytes of a token in a window: its places in the lists of columns."""
_PART = 4
"""By default, one part in this many of a window is repeated in the next."""


@dataclass(frozen=True)
class LongWindows:
    """The windows over one text, whose tokens are those of `encoding`.

    Each has the first `lead` and the last `tail` tokens of `encoding`, which are special or of the prompt,
    and between them `room` tokens of the text, from the window's position in `starts` on.
    """

    encoding: Encoding
    lead: int
    tail: int
    room: int
    starts: Sequence[int]
    left: bool = False
    """Whether a truncated text keeps its end, which is the last window, and not its beginning."""

    @property
    def tokens(self) -> int:
        """How many tokens run, if all windows do."""
        return len(self.starts) * (self.lead + self.room + self.tail)

    @property
    def spans(self) -> list[Span]:
        """The tokens of the text in each window."""
        return [(start, start + self.room) for start in self.starts]

    @property
    def truncated(self) -> Encoding:
        """The tokens of the truncated text."""
        return self.encodings[self.main]

    @property
    def main(self) -> int:
        """The number of the window that is the same as the truncated text."""
        return len(self.starts) - 1 if self.left else 0

    @cached_property
    def cuts(self) -> Sequence[int]:
        """The start of each window's own part, whose tokens have no more context elsewhere; then the end."""
        between = ((one + other + self.room - 1) // 2 + 1 for one, other in pairwise(self.starts))
        return [self.starts[0], *between, self.starts[-1] + self.room]

    @cached_property
    def encodings(self) -> list[Encoding]:
        """The sequence of each window."""
        return [self._window(start) for start in self.starts]

    def _window(self, start: int) -> Encoding:
        whole, end = self.encoding, len(self.encoding) - self.tail

        def cut(column: Sequence[T]) -> list[T]:
            return [*column[: self.lead], *column[start : start + self.room], *column[end:]]

        return replace(
            whole,
            token_ids=cut(whole.token_ids),
            segment_ids=cut(whole.segment_ids),
            tokens=cut(whole.tokens),
            offsets=cut(whole.offsets),
            word_ids=cut(whole.word_ids),
            special=cut(whole.special),
            truncated=True,
        )

    def within(self, window: int, span: Span) -> Span:
        """Return the positions within a window of a span of the text."""
        moved = self.lead - self.starts[window]
        return span[0] + moved, span[1] + moved

    def choose(self, span: Span) -> int | None:
        """Return the window with most context on that side of a span that has less; None if none contains it.

        At the beginning and the end of the text, no context is missing. Of equal windows the first is chosen.
        """
        first, after = span
        low = bisect_left(self.starts, after - self.room)
        high = bisect_right(self.starts, first) - 1
        if low > high:
            return None
        # From window to window, context grows until the span is in the middle, and then shrinks.
        middle = bisect_left(self.starts, (first + after - self.room) / 2)
        near = {min(max(window, low), high) for window in (low, middle - 1, middle, high)}
        return max(sorted(near), key=lambda window: self._context(window, span))

    def _context(self, window: int, span: Span) -> float:
        start, last = self.starts[window], len(self.starts) - 1
        before = span[0] - start if window else math.inf
        behind = start + self.room - span[1] if window < last else math.inf
        return min(before, behind)

    def owner(self, token: int) -> int:
        """Return the window that is chosen for a single token."""
        return bisect_right(self.cuts, token) - 1


@dataclass(frozen=True, slots=True)
class _Part:
    """A chunk: the mean `first` (window, row) alone, or with the own parts of `windows` and with `last`."""

    tokens: int
    first: tuple[int, int]
    last: tuple[int, int] | None = None
    windows: Span = (0, 0)


class WindowedChunks:
    """The chunks of one text, each from the window that has most of its context.

    A chunk that fits in no window is the mean of its tokens, each from the window with most of its context.
    """

    def __init__(self, windows: LongWindows, spans: Sequence[Span], want: ChunksWant) -> None:
        """Choose windows for chunks with these `spans`; `want` says what follows their means."""
        self.windows = windows
        self._want = want
        self._rows: list[dict[Span, int]] = [{} for _ in windows.starts]
        self._parts = [self._part(span) for span in spans]
        if any(part.last for part in self._parts):
            self._owned = [self._row(i, part)[1] for i, part in enumerate(pairwise(windows.cuts))]

    @property
    def rows(self) -> int:
        """How many means are computed."""
        return sum(map(len, self._rows))

    def sequences(self, main: Want) -> list[tuple[Encoding, Want]]:
        """Return the windows that run, and what each must return; `main` is the truncated text's want."""
        plain = replace(main, sentence=None, heads=())
        found = []
        for window in self._needed(main):
            base = main if window == self.windows.main else plain
            spans = tuple(self.windows.within(window, span) for span in self._rows[window])
            want = replace(base, heads=(*base.heads, ChunksWant(spans, means=True)))
            found.append((self.windows.encodings[window], want))
        return found

    def join(self, outputs: Sequence[Output], main: Want, finish: Finish) -> Output:
        """Make the output of the text from those of the windows that ran; `finish` is the backend's."""
        found = dict(zip(self._needed(main), outputs, strict=True))
        means = {window: output.heads["chunks"] for window, output in found.items()}
        vectors = finish(self._means(means), self._want)
        tokens = np.concatenate([*self._tokens(outputs)], axis=1) if main.token_layers else None
        own = found.get(self.windows.main, Output())
        finite = all(output.finite for output in outputs)
        return replace(own, heads={**own.heads, "chunks": vectors}, tokens=tokens, finite=finite)

    def _needed(self, main: Want) -> list[int]:
        """Return the windows from which something is wanted, or the main one if nothing is.

        A text of white space has tokens with some tokenizers, but no chunks.
        """
        every = bool(main.token_layers)
        own = self.windows.main if main.sentence is not None or main.heads else None
        found = [i for i, rows in enumerate(self._rows) if every or rows or i == own]
        return found or [self.windows.main]

    def _part(self, span: Span) -> _Part:
        first, after = span
        window = self.windows.choose(span)
        if window is not None:
            return _Part(after - first, self._row(window, span))
        cuts, one, other = self.windows.cuts, self.windows.owner(first), self.windows.owner(after - 1)
        begun, ended = self._row(one, (first, cuts[one + 1])), self._row(other, (cuts[other], after))
        return _Part(after - first, begun, ended, (one + 1, other))

    def _row(self, window: int, span: Span) -> tuple[int, int]:
        """Return the window and the row in it for the mean of a span, which several chunks may need."""
        rows = self._rows[window]
        return window, rows.setdefault(span, len(rows))

    def _means(self, means: Mapping[int, FloatArray]) -> FloatArray:
        """Return the mean of each chunk: float32 (chunks, C)."""
        found = np.empty((len(self._parts), next(iter(means.values())).shape[1]), np.float32)
        sums = self._sums(means) if any(part.last for part in self._parts) else None
        for row, part in zip(found, self._parts, strict=True):
            if part.last is None or sums is None:
                row[:] = means[part.first[0]][part.first[1]]
                continue
            one, other = part.windows
            total = sums[other] - sums[one]
            for window, index in (part.first, part.last):
                total += self._lengths[window][index] * means[window][index].astype(np.float64)
            row[:] = total / part.tokens
        return found

    @cached_property
    def _lengths(self) -> list[list[int]]:
        return [[after - first for first, after in rows] for rows in self._rows]

    def _sums(self, means: Mapping[int, FloatArray]) -> NDArray[np.float64]:
        """Return running sums over the parts of all windows: (windows + 1, C)."""
        sums = np.zeros((len(means) + 1, means[0].shape[1]))
        for window, index in enumerate(self._owned):
            tokens = self._lengths[window][index]
            sums[window + 1] = sums[window] + tokens * means[window][index].astype(np.float64)
        return sums

    def _tokens(self, outputs: Sequence[Output]) -> Iterator[FloatArray]:
        """Yield the vectors of all tokens (layers, …, C), each from the window with most of its context."""
        states, last = [output.tokens for output in outputs if output.tokens is not None], len(outputs) - 1
        for window, (state, part) in enumerate(zip(states, pairwise(self.windows.cuts), strict=True)):
            first, after = self.windows.within(window, part)
            yield state[:, 0 if window == 0 else first : None if window == last else after]


def windows_over(
    encodings: Sequence[Encoding],
    max_length: int,
    overlap: int | None,
    most: int,
    place: Callable[[int], str] = "inputs.{}".format,
    *,
    left: bool = False,
) -> list[LongWindows | None]:
    """Return the windows over each text, None if the model reads it as a whole; at most `most` in all.

    Each but the first repeats at least `overlap` tokens of the one before, a quarter of its room by default.
    Raises OptionError if there are too many, for an overlap as long as a window's room, and for a prompt that
    leaves no room. `place` names the option of a text, given its index.
    """
    found: list[LongWindows | None] = []
    count = 0
    for index, encoding in enumerate(encodings):
        windows = None
        if encoding.original_length > max_length:
            windows = _windows(encoding, max_length, overlap, place(index), most, left=left)
        count += 1 if windows is None else len(windows.starts)
        if count > most:
            raise _too_many(place(index), count, most)
        found.append(windows)
    return found


def _windows(
    encoding: Encoding, max_length: int, overlap: int | None, option: str, most: int, *, left: bool
) -> LongWindows:
    special, size = encoding.special, len(encoding)
    lead = max(encoding.prompt_length, next((i for i in range(size) if not special[i]), size))
    tail = next((i for i in range(size) if not special[size - 1 - i]), size)
    room, tokens = max_length - lead - tail, encoding.original_length - lead - tail
    if room < 1:
        raise _no_room(option, lead + tail, max_length)
    repeated = room // _PART if overlap is None else overlap
    if repeated >= room:
        raise _no_overlap(repeated, room)
    count = 1 + -(-(tokens - room) // (room - repeated))
    if encoding.truncated or count > most:  # the rest of its tokens was only counted
        raise _too_many(option, count, most)
    starts = [lead + min(i * (room - repeated), tokens - room) for i in range(count)]
    return LongWindows(encoding, lead, tail, room, starts, left)


def _no_room(option: str, around: int, limit: int) -> OptionError:
    return OptionError(
        lambda name: (
            f"The prompt and special tokens of {name(option)} take {around} tokens, but the model reads at "
            f"most {limit}: no room is left for the text. Choose a shorter prompt."
        ),
        option=option,
        actual=around,
        limit=limit,
    )


def _no_overlap(overlap: int, room: int) -> OptionError:
    return OptionError(
        lambda name: (
            f"{name('overlap')} is {overlap}, but a window has only {room} tokens of the text: choose 0 to "
            f"{room - 1}."
        ),
        option="overlap",
        actual=overlap,
        limit=room - 1,
    )


def _too_many(option: str, count: int, most: int) -> OptionError:
    return OptionError(
        lambda name: (
            f"The texts up to {name(option)} need at least {count} windows, and the limit is {most}: send "
            f"them in several requests, or choose a smaller `{name('overlap')}`."
        ),
        option=option,
        kind="too-many-inputs",
        actual=count,
        limit=most,
    )
