"""Groups labelled tokens into spans, exactly as `transformers`' TokenClassificationPipeline does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray

Grouping = Literal["simple", "first", "average", "max"]
"""Which labels the tokens of a word get: each its own, or all that of the first token, of the mean of their
scores, or of the token with the largest score (`aggregation_strategy` of the pipeline)."""

Integers = NDArray[np.int64]
_OUTSIDE = "O"


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens `first` to `last`, both included, of one label; `score` is the mean over words or tokens."""

    label: str
    score: np.float32
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SpanLabels:
    """The labels of a token classifier, read as tags B- and I-, which begin and continue a span.

    A label without a tag continues a span. `tags` are equal for labels that may share a span; `names` are the
    names of spans: the labels without what comes before their first hyphen.
    """

    names: tuple[str, ...]
    tags: Integers
    begins: NDArray[np.bool_]

    @classmethod
    def of(cls, labels: Sequence[str]) -> "SpanLabels":
        """Read the labels."""
        kinds = [label[2:] if label.startswith(("B-", "I-")) else label for label in labels]
        numbers = {kind: i for i, kind in enumerate(dict.fromkeys(kinds))}
        return cls(
            tuple(label.split("-", 1)[-1] for label in labels),
            np.array([numbers[kind] for kind in kinds], np.int64),
            np.array([label.startswith("B-") for label in labels], bool),
        )


def find_spans(
    scores: FloatArray, continues: Sequence[bool], labels: SpanLabels, grouping: Grouping
) -> list[Span]:
    """Group the tokens of one text into spans by their scores (n, labels); tokens outside are left out.

    `continues` says which tokens continue the word before them. Neighbouring words with the same tag form a
    span, unless the later one begins another.
    """
    if not len(scores):
        return []
    starts = np.arange(len(scores)) if grouping == "simple" else _word_starts(continues)
    classes, best = _decide(scores, starts, grouping)
    tags = labels.tags[classes]
    begins = np.ones(len(starts), bool)
    begins[1:] = (tags[1:] != tags[:-1]) | labels.begins[classes[1:]]
    first_words = np.flatnonzero(begins)
    after_words = np.append(first_words[1:], len(starts))
    means = np.add.reduceat(best, first_words) / (after_words - first_words).astype(np.float32)
    after_tokens = np.append(starts[1:], len(scores))
    spans = zip(
        classes[first_words].tolist(),
        means,
        starts[first_words].tolist(),
        (after_tokens[after_words - 1] - 1).tolist(),
        strict=True,
    )
    return [Span(labels.names[label], *rest) for label, *rest in spans if labels.names[label] != _OUTSIDE]


def _word_starts(continues: Sequence[bool]) -> Integers:
    begins = ~np.array(continues, bool)
    begins[0] = True  # even if the start of its word was truncated
    return np.flatnonzero(begins)


def _decide(scores: FloatArray, starts: Integers, grouping: Grouping) -> tuple[Integers, FloatArray]:
    """Choose the label of each word, and its score; `starts` are the first tokens of the words."""
    chosen: NDArray[Any]
    match grouping:
        case "simple" | "first":
            chosen = scores[starts]
        case "average":
            counts = np.diff(np.append(starts, len(scores)))
            chosen = np.add.reduceat(scores, starts) / counts.astype(np.float32)[:, None]
        case "max":
            chosen = scores[_largest(scores.max(-1), starts)]
    classes = chosen.argmax(-1)
    return classes, chosen[np.arange(len(starts)), classes]


def _largest(values: FloatArray, starts: Integers) -> Integers:
    """Find the first token with the largest value in each word."""
    counts = np.diff(np.append(starts, len(values)))
    words = np.repeat(np.arange(len(starts)), counts)
    candidates = np.flatnonzero(values == np.maximum.reduceat(values, starts)[words])
    return candidates[np.unique(words[candidates], return_index=True)[1]]
