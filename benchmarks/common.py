"""Shared by the benchmarks: the description of the machine, tables, and timing in turns."""

import argparse
import csv
import os
import platform
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from model.contract import Batch, Encoding, ModelInfo, SentenceWant, Want

# How many words texts have: log-normal, clipped.
_WORDS_MU, _WORDS_SIGMA = 2.9, 0.8
_WORDS_RANGE = (3, 180)

MB_PER_MIB = 2**20 / 1e6


@dataclass(frozen=True)
class Pair:
    """Two sentences and their similarity as judged by people, from 0 to 5."""

    score: float
    first: str
    second: str


def read_sts(path: Path) -> list[Pair]:
    """Read an STS file: genre, file, year, id, score, two sentences; columns after those are ignored.

    The file is tab-separated and quotes nothing: a quotation mark is part of its sentence.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [Pair(float(row[4]), row[5], row[6]) for row in rows if row]


def machine(dtype: str) -> list[tuple[str, str]]:
    """Name what the figures depend on."""
    return [
        ("CPU", cpu_name()),
        ("cores", f"{os.cpu_count()} ({torch.get_num_threads()} threads for a product)"),
        ("bfloat16 by", bfloat16_instructions()),
        ("torch", torch.__version__),
        ("dtype", dtype),
    ]


def cpu_name() -> str:
    """Read the processor's own name, with family and model where the name alone says little."""
    fields: dict[str, str] = {}
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    if "model name" not in fields:
        return platform.processor() or platform.machine()
    return f"{fields['model name']} (family {fields.get('cpu family')}, model {fields.get('model')})"


def bfloat16_instructions() -> str:
    """Say which instructions this CPU multiplies bfloat16 with."""
    capabilities = torch.cpu.get_capabilities()
    if capabilities.get("amx_bf16"):
        return "AMX (tiles)"
    if capabilities.get("avx512_bf16"):
        return "AVX512-BF16 (no AMX)"
    if capabilities.get("bf16"):
        return "Arm BF16"
    return "none: float32 instructions stand in"


def memory_mib(kind: str, pid: int | str = "self") -> float:
    """Read a line of /proc/PID/status in MiB, as `VmHWM` or `RssAnon`; NaN where there is none."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(rf"{kind}:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else float("nan")


def forget_peak(pid: int | str = "self") -> None:
    """Reset `VmHWM` to the resident memory of now; does nothing if that is not permitted."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def some_of(names: Sequence[str]) -> Callable[[str], list[str]]:
    """Make a reader of an argument that lists some of these names, with commas between them."""

    def read(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := [name for name in chosen if name not in names]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose from {', '.join(names)}")
        return chosen

    return read


def numbers(text: str) -> list[int]:
    """Read whole numbers separated by commas, for `argparse`."""
    return [int(number) for number in text.split(",") if number]


def print_facts(title: str, facts: Sequence[tuple[str, str]]) -> None:
    """Print a heading and lines of names and values."""
    width = max(len(name) for name, _ in facts)
    print(f"\n{title}")
    for name, value in facts:
        print(f"  {name:<{width}}  {value}")


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as wide as its cells, the first column to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    print(f"\n{title}")
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [
            f"{cell:>{width}}" if i else f"{cell:<{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip(), flush=True)


def take_turns(
    contestants: Mapping[str, Callable[[], object]], rounds: int, *, shortest_s: float = 0.01, seed: int = 0
) -> dict[str, list[float]]:
    """Time each contestant once in every round, in a new order each round: seconds per call.

    A disturbance of the machine then affects all of them, and ratios within a round stay fair. Every
    contestant is called twice as a warm-up. One that is faster than `shortest_s` is repeated to fill that
    time, and the mean counts.
    """
    repeats = {name: _repeats(call, shortest_s) for name, call in contestants.items()}
    order, shuffle = list(contestants), random.Random(seed).shuffle  # noqa: S311
    seconds: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            seconds[name].append(_time(contestants[name], repeats[name]))
    return seconds


def _repeats(call: Callable[[], object], shortest_s: float) -> int:
    call()
    return max(1, round(shortest_s / _time(call, 1)))


def _time(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> str:
    """Divide round by round, and show the median and in brackets the quartiles: `1.42 [1.40–1.45]`."""
    low, middle, high = np.quantile(np.divide(numerator, denominator), [0.25, 0.5, 0.75])
    return f"{middle:.2f} [{low:.2f}–{high:.2f}]"


def mixed_words(texts: int, seed: int = 0) -> list[int]:
    """Draw numbers of words like those of real texts: log-normal, 3 to 180."""
    words = np.random.default_rng(seed).lognormal(_WORDS_MU, _WORDS_SIGMA, texts)
    return [int(n) for n in np.clip(np.rint(words), *_WORDS_RANGE)]


def mixed_lengths(texts: int, limit: int, seed: int = 0) -> list[int]:
    """Draw lengths in tokens of such texts, one a word, with [CLS] and [SEP] around them."""
    return [min(words + 2, limit) for words in mixed_words(texts, seed)]


def random_ids(
    lengths: Sequence[int], vocab_size: int, cls_id: int, sep_id: int, seed: int = 0
) -> list[list[int]]:
    """Make texts of random tokens, [CLS] and [SEP] around them. Speed does not depend on which tokens."""
    draw = np.random.default_rng(seed)
    return [[cls_id, *draw.integers(1000, vocab_size, n - 2).tolist(), sep_id] for n in lengths]


def pack_ids(texts: Sequence[Sequence[int]], info: ModelInfo) -> Batch:
    """Pack token ids into a batch whose every text wants the model's own sentence vector."""
    ids = np.concatenate([np.asarray(text, dtype=np.int64) for text in texts])
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return Batch(ids, np.zeros_like(ids), np.concatenate(([0], ends)), (own_sentence(info),) * len(texts))


def pack_encodings(encodings: Sequence[Encoding], info: ModelInfo) -> Batch:
    """Pack tokenized texts into a batch whose every text wants the model's own sentence vector."""
    return Batch.pack(encodings, [own_sentence(info)] * len(encodings))


def own_sentence(info: ModelInfo) -> Want:
    """Ask for the sentence vector as the model itself makes it."""
    return Want(sentence=SentenceWant(modes=info.pooling, layers=(info.layers,), normalize=info.normalize))


@dataclass(frozen=True)
class Check:
    """A figure with one value per round, and the target for their median."""

    name: str
    values: Sequence[float]
    bound: float
    at_most: bool = False
    digits: int = 2

    @property
    def median(self) -> float:
        """The value that counts."""
        return float(np.median(self.values))

    @property
    def held(self) -> bool:
        """Whether the bound is."""
        return self.median <= self.bound if self.at_most else self.median >= self.bound


def print_checks(checks: Sequence[Check]) -> None:
    """Print the figures that have a target, and whether they reach it."""
    rows = []
    for check in checks:
        shown = [f"{v:.{check.digits}f}" for v in (check.median, min(check.values), max(check.values))]
        if len(check.values) == 1:
            shown[1:] = ["", ""]
        bound = f"{'≤' if check.at_most else '≥'} {check.bound:.{check.digits}f}"
        rows.append([check.name, *shown, bound, "yes" if check.held else "NO"])
    header = ["check", "median", "lowest", "highest", "bound", "held"]
    print_table("Checks", header, rows)
