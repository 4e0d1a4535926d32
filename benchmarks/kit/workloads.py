"""The workloads of the benchmarks, made from the sentences of an STS file.

- single: one sentence per request, 32 connections;
- mixed: 32 texts of mixed length per request, 4 connections;
- long: one text of 100 words per request, 16 connections;
- lone: one sentence per request, 1 connection.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import numpy as np

NAMES = ("single", "mixed", "long", "lone")

# How many words texts have: log-normal, clipped.
_WORDS_MU, _WORDS_SIGMA = 2.9, 0.8
_WORDS_RANGE = (3, 180)
_MIXED_TEXTS = 32
_LONG_WORDS = 100
_REQUESTS = {"single": 1024, "mixed": 64, "long": 256, "lone": 1024}


@dataclass(frozen=True)
class Workload:
    """A workload: `requests` are lists of texts, sent repeatedly over a number of `connections`."""

    name: str
    connections: int
    requests: Sequence[Sequence[str]]

    @property
    def texts(self) -> int:
        """How many texts a request has."""
        return len(self.requests[0])


def make_workloads(path: Path) -> dict[str, Workload]:
    """Make the four workloads from an STS file, the same in every call."""
    sentences = [text for pair in read_sts(path) for text in (pair.first, pair.second)]
    words = cycle(" ".join(sentences).split())
    singles = [[text] for text in sentences[: _REQUESTS["single"]]]
    lengths = iter(mixed_words(_REQUESTS["mixed"] * _MIXED_TEXTS))
    mixed = [
        [_take(words, count) for count in islice(lengths, _MIXED_TEXTS)] for _ in range(_REQUESTS["mixed"])
    ]
    long = [[_take(words, _LONG_WORDS)] for _ in range(_REQUESTS["long"])]
    return {
        "single": Workload("single", 32, singles),
        "mixed": Workload("mixed", 4, mixed),
        "long": Workload("long", 16, long),
        "lone": Workload("lone", 1, singles),
    }


def make_texts(path: Path, words: int, count: int) -> list[str]:
    """Join the sentences of an STS file and split them into texts of a number of words."""
    sentences = (text for pair in read_sts(path) for text in (pair.first, pair.second))
    running = cycle(" ".join(sentences).split())
    return [_take(running, words) for _ in range(count)]


def _take(words: Iterator[str], count: int) -> str:
    return " ".join(islice(words, count))


@dataclass(frozen=True)
class Pair:
    """Two sentences, the genre that they are of, and their similarity as judged by people, from 0 to 5."""

    score: float
    first: str
    second: str
    genre: str


def read_sts(path: Path) -> list[Pair]:
    """Read an STS file: genre, file, year, id, score, two sentences; columns after those are ignored.

    The file is tab-separated and quotes nothing: a quotation mark is part of its sentence.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [Pair(float(row[4]), row[5], row[6], row[0]) for row in rows if row]


def mixed_words(texts: int, seed: int = 0) -> list[int]:
    """Draw numbers of words like those of real texts: log-normal, 3 to 180."""
    words = np.random.default_rng(seed).lognormal(_WORDS_MU, _WORDS_SIGMA, texts)
    return [int(n) for n in np.clip(np.rint(words), *_WORDS_RANGE)]


def mixed_lengths(texts: int, limit: int, seed: int = 0) -> list[int]:
    """Draw lengths in tokens of such texts, one a word, with [CLS] and [SEP] around them."""
    return [min(words + 2, limit) for words in mixed_words(texts, seed)]
