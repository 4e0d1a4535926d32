"""Long late chunking, written out: windows of token ids, and the means of chunks over their vectors."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Span = tuple[int, int]


def windows_of(tokens: int, room: int, overlap: int) -> list[Span]:
    """Windows of `room` tokens, each `room − overlap` after the one before; the last ends with the text."""
    found = [(0, room)]
    while found[-1][1] < tokens:
        end = min(found[-1][0] + room - overlap + room, tokens)
        found.append((end - room, end))
    return found


def context(window: Span, span: Span, tokens: int) -> float:
    """The tokens around a span in a window, on the side with fewer; the end of a text lacks none."""
    before = span[0] - window[0] if window[0] else np.inf
    behind = window[1] - span[1] if window[1] < tokens else np.inf
    return min(before, behind) if window[0] <= span[0] and span[1] <= window[1] else -1.0


def choice(windows: Sequence[Span], span: Span, tokens: int) -> int | None:
    """The first window with most context of a span, of all of them; None if none has it as a whole."""
    found = [context(window, span, tokens) for window in windows]
    return int(np.argmax(found)) if max(found) >= 0 else None


def long_chunks(
    states_of: Callable[[Sequence[int]], Array],
    ids: Sequence[int],
    around: tuple[Sequence[int], Sequence[int]],
    limit: int,
    overlap: int | None,
    spans: Sequence[Span],
) -> Array:
    """The mean of each span of the ids of a text: (spans, C).

    `states_of` runs the tokens of one window, which `around` has the first and the last of.
    """
    before, behind = around
    room = limit - len(before) - len(behind)
    windows = windows_of(len(ids), room, room // 4 if overlap is None else overlap)
    states = [states_of([*before, *ids[a:b], *behind])[len(before) :] for a, b in windows]

    def vectors(span: Span) -> Array:
        window = choice(windows, span, len(ids))
        if window is None:
            return np.concatenate([vectors((i, i + 1)) for i in range(*span)])
        start = windows[window][0]
        return states[window][span[0] - start : span[1] - start]

    return np.array([vectors(span).astype(np.float64).mean(0) for span in spans])
