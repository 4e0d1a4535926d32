"""The workloads of the benchmarks, made from the sentences of an STS file.

- single: one sentence per request, 32 connections;
- mixed: 32 texts of mixed length per request, 4 connections;
- long: one text of 100 words per request, 16 connections;
- lone: one sentence per request, 1 connection.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from benchmarks.common import mixed_words, read_sts

NAMES = ("single", "mixed", "long", "lone")

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
