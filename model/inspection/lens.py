"""The logit lens: which words a model's predictor reads from the hidden states of each layer.

nostalgebraist (2020), "interpreting GPT: the logit lens"; here for models that predict masked words.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.arrays import Array, IntArray, Operations
from model.choices import LensWant
from model.contract import FloatArray
from model.heads.predictor import Predictor, apply
from model.heads.running import Heads
from model.progress import Progress

Arrays = dict[str, NDArray[Any]]

# How many rows run together: enough that reading the vocabulary's matrix costs each of them little.
_ROWS = 512
_LOGITS_AT_ONCE = 2**20


class _Part(NamedTuple):
    """Some rows of a hidden state of a sequence, and where among all rows of the lens they begin."""

    sequence: int
    layer: int
    rows: IntArray
    start: int


class _Words(NamedTuple):
    """The words with the largest logits of rows: ids and logits (rows, k), ln Σ exp of all logits (rows,)."""

    ids: NDArray[np.int32]
    logits: FloatArray
    total: NDArray[np.float64]


def lenses_of(
    wants: Sequence[LensWant | None],
    state: Callable[[int, int], FloatArray],
    last: int,
    heads: Heads,
    progress: Progress,
) -> dict[int, Arrays]:
    """Compute the lenses of a batch: index of a sequence that wants one -> its arrays, by name.

    `state(i, layer)` reads a hidden state of sequence i, float32 (N, C); `last` is the number of the last
    one. Each block of logits counts as a step of `progress`; raises Stopped if it was stopped.
    """
    wanting = {i: want for i, want in enumerate(wants) if want is not None}
    if not wanting:
        return {}
    return dict(lens_words(wanting, state, last, heads.predicting, heads.ops, progress))


def lens_words(
    wants: Mapping[int, LensWant],
    state: Callable[[int, int], FloatArray],
    last: int,
    predictor: Predictor,
    ops: Operations,
    progress: Progress,
) -> Iterator[tuple[int, Arrays]]:
    """Do what `lenses_of` does, for the sequences that want a lens.

    Those that want equally many words run together: with one that wants more, all would search for as many.
    """

    def run(parts: Sequence[_Part], most: int) -> _Words:
        inputs = [_predicted_from(part, state, last, predictor, ops) for part in parts]
        return _largest(predictor, ops.join(inputs, 0), most, ops, progress)

    for top_k in sorted({want.top_k for want in wants.values()}):
        alike = {i: want for i, want in wants.items() if want.top_k == top_k}
        yield from _words_of(alike, top_k, run)


def _words_of(
    wants: Mapping[int, LensWant], most: int, run: Callable[[Sequence[_Part], int], _Words]
) -> Iterator[tuple[int, Arrays]]:
    """Yield the arrays of sequences that want `most` words of each hidden state."""
    layers = {i: np.unique(want.layers) for i, want in wants.items()}
    rows = {i: np.unique(want.rows) for i, want in wants.items()}
    sizes = [len(layers[i]) * len(rows[i]) for i in wants]
    bounds = np.append(0, np.cumsum(sizes))
    found = _Words(
        np.empty((bounds[-1], most), np.int32),
        np.empty((bounds[-1], most), np.float32),
        np.empty(bounds[-1], np.float64),
    )
    for parts in _together(_parts(layers, rows)):
        some = slice(parts[0].start, parts[-1].start + len(parts[-1].rows))
        found.ids[some], found.logits[some], found.total[some] = run(parts, most)
    for (i, want), (start, stop) in zip(wants.items(), pairwise(bounds.tolist()), strict=True):
        places = np.arange(start, stop).reshape(len(layers[i]), len(rows[i]))
        chosen = np.ix_(np.searchsorted(layers[i], want.layers), np.searchsorted(rows[i], want.rows))
        yield i, _arrays(found, places[chosen])


def _arrays(found: _Words, places: IntArray) -> Arrays:
    """Make the arrays of the words of some rows, in the shape of `places`."""
    logits = found.logits[places]
    with np.errstate(invalid="ignore"):  # the check of outputs finds what is not finite
        shares = np.exp(logits - found.total[places][..., None])
    return {
        "lens_ids": found.ids[places],
        "lens_logits": logits,
        "lens_probabilities": shares.astype(np.float32),
    }


def _parts(layers: Mapping[int, IntArray], rows: Mapping[int, IntArray]) -> Iterator[_Part]:
    """Yield the rows of all sequences, layer by layer, in parts of at most `_ROWS`."""
    start = 0
    for i, some in layers.items():
        for layer in some.tolist():
            for first in range(0, len(rows[i]), _ROWS):
                part = rows[i][first : first + _ROWS]
                yield _Part(i, layer, part, start)
                start += len(part)


def _together(parts: Iterator[_Part]) -> Iterator[list[_Part]]:
    """Group parts that run together: those that end in the same block of `_ROWS` rows of all."""
    for _, group in groupby(parts, lambda part: (part.start + len(part.rows) - 1) // _ROWS):
        yield list(group)


def _predicted_from(
    part: _Part, state: Callable[[int, int], FloatArray], last: int, predictor: Predictor, ops: Operations
) -> Array:
    """Return the predictor's inputs for some rows, (rows, C)."""
    x = ops.array(state(part.sequence, part.layer)[part.rows])
    if part.layer < last and predictor.final_norm is not None:
        return apply(predictor.final_norm, x, ops)
    return x


def _largest(predictor: Predictor, x: Array, most: int, ops: Operations, progress: Progress) -> _Words:
    """Find the `most` words with the largest logits for each row of (rows, C)."""
    count = len(x)
    words = _Words(
        np.zeros((count, most), np.int32),
        np.full((count, most), -np.inf, np.float32),
        np.full(count, -np.inf),
    )
    step = max(most, _LOGITS_AT_ONCE // count)
    for some, logits in predictor.by_words(x, ops, step):
        with np.errstate(invalid="ignore"):  # where a logit is not finite, the total is not
            np.logaddexp(words.total, ops.log_sum_exp(logits), out=words.total)
        _merge(words, *ops.candidates(logits, words.logits[:, -1], most), some.start)
        progress.step()
    return words


def _merge(words: _Words, rows: IntArray, columns: IntArray, logits: FloatArray, first: int) -> None:
    """Merge the logits of more words, whose ids are `columns` + `first`, into the largest found so far."""
    changed = np.unique(rows)
    if not len(changed):
        return
    most = words.ids.shape[1]
    all_rows = np.append(np.repeat(changed, most), rows)
    all_logits = np.append(words.logits[changed], logits)
    all_ids = np.append(words.ids[changed], (columns + first).astype(np.int32))
    order = np.lexsort((all_ids, -all_logits, all_rows))
    starts = np.searchsorted(all_rows[order], changed)
    chosen = order[starts[:, None] + np.arange(most)]  # (changed, most)
    words.ids[changed], words.logits[changed] = all_ids[chosen], all_logits[chosen]
