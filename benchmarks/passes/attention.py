"""Measures the cost of observing attention, compared with plain encoding in the same process.

Plain encoding is `TorchBackend.run` of eight sequences (`--texts`) that want their sentence vectors. Each
row of the table wants these vectors and also:

- one head: one map of one middle layer, float32;
- CLS row: the row of the first token, of every layer and head;
- maps float16, maps float32, maps uint8: every map of every layer, in that type;
- maps npz: the float16 maps, written to an archive piece by piece, as the service sends it;
- summary: every statistic of every layer and head, without a map;
- value norm: every map, of the norms of the weighted values;
- thumbnails: those of every map, of 64 × 64 cells;
- rollout: the one map of all layers; rollout row: its first row;
- top 5: the five largest weights of each row;
- words: every map, averaged over the heads, for words of one, one, one and three pieces in turn.

Plain encoding and one of the rows take turns in pairs, in shuffled order, after a warm-up. Each ratio is from
one pair; the table shows the median, the quartiles in brackets, and the target.

A second table compares the peak resident memory of a process that computes summaries of the longest texts
with that of a process that only encodes them.

The models are the embedded one and one with random weights, as large as BERT's base model (12 layers, 768
wide); `--folder` measures a model of your own instead, up to its length. Freed memory is kept as in the
service. Set `GOMP_SPINCOUNT=2000` before the command, so that threads wait as in the service: on shared cores
this matters more than the measured cost.

    python -m benchmarks.passes.attention [--dtype float32] [--lengths 128,512] [--rows summary,…]
"""

import argparse
import ctypes
import multiprocessing
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.batches import own_sentence, pack_ids, random_ids
from benchmarks.kit.command_line import parser_for, some_of
from benchmarks.kit.turns import take_turns
from model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from model.checkpoints.source import EMBEDDED, resolve
from model.choices import Axis
from model.contract import AttentionWant, Batch, ModelInfo, SummaryWant, Want
from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.pytorch.backend import TorchBackend
from service.replies.style import AnswerStyle
from service.replies.writing import write
from service.system.process import keep_freed_memory
from service.tasks.results import Expected
from service.tasks.view import View

MODELS = (EMBEDDED, "random-base")
_BATCH = 8
_VOCABULARY = 30_522
"""BERT's, which both models have."""
_PIECES = (1, 1, 1, 3)
_NPZ = "maps npz"
_MOST_MB = 50
"""What a summary may need beyond plain encoding."""
_ANY = ("bfloat16", "float32")
BOUNDS: dict[tuple[str, str, int], float] = {
    **{("one head", dtype, length): 1.05 for dtype in _ANY for length in (128, 512)},
    **{("CLS row", dtype, length): 1.03 for dtype in _ANY for length in (128, 512)},
    **{("summary", dtype, length): 1.15 for dtype in _ANY for length in (128, 512)},
    **{("maps float16", dtype, 128): 1.25 for dtype in _ANY},
    **{("maps float16", dtype, 512): 1.50 for dtype in _ANY},
    (_NPZ, "bfloat16", 128): 2.1,
    **{
        (row, "float32", length): bound
        for row, bound in (("thumbnails", 1.3), ("rollout", 2.0), ("rollout row", 1.3))
        for length in (512, 2048)
    },
    ("summary", "float32", 2048): 1.05,
}
"""The target for time / time of plain encoding, by row, dtype and length, with native kernels."""


def main() -> None:
    """Measure and print, one model after the other."""
    arguments = parse_arguments()
    keep_freed_memory()
    tables.print_facts(
        "Machine", [*machine.facts(arguments.dtype), ("batch", f"{arguments.texts} texts of equal length")]
    )
    for model in [arguments.folder] if arguments.folder else arguments.models:
        measured = measure_model(model, arguments)
        print_ratios(model, measured, arguments.dtype)
        if "summary" in arguments.rows:
            print_memory(model, arguments.dtype, max(arguments.lengths))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    names = list(ROWS)
    parser.add_argument("--dtype", default="bfloat16", choices=[*_ANY, "int8"])
    parser.add_argument("--models", type=some_of(MODELS), default=MODELS, help=",".join(MODELS))
    parser.add_argument("--folder", help="of a model, instead of `--models`")
    parser.add_argument("--lengths", type=whole_numbers, default=[128, 512], help="in tokens, 2 to 512")
    parser.add_argument("--texts", type=int, default=_BATCH, help="in a batch")
    parser.add_argument("--rows", type=some_of(names), default=names, help=",".join(names))
    parser.add_argument("--rounds", type=int, default=15, help="pairs of plain encoding and a row")
    return parser.parse_args()


def whole_numbers(text: str) -> list[int]:
    """Read whole numbers with commas between them."""
    return [int(part) for part in text.split(",")]


def load_model(model: str) -> Checkpoint:
    """Load the embedded model, or replace its weights by random ones of another size."""
    if model not in MODELS:
        return load_checkpoint(Path(model))
    checkpoint = load_checkpoint(resolve(EMBEDDED))
    if model != EMBEDDED:
        config = EncoderConfig(
            vocab_size=_VOCABULARY,
            hidden_size=768,
            num_layers=12,
            num_heads=12,
            intermediate_size=3072,
            segments=2,
        )
        encoder = Encoder.from_seed(config, 0).requires_grad_(requires_grad=False)
        checkpoint = Checkpoint(replace(checkpoint.folder, config=config), encoder)
    return checkpoint


def load(model: str, dtype: str) -> TorchBackend:
    """Load one of the models, ready to run."""
    return TorchBackend(load_model(model), device="cpu", dtype=dtype)


@dataclass(frozen=True)
class Asked:
    """What the wants of a row depend on: the model, and the length of the texts."""

    info: ModelInfo
    length: int

    @property
    def plain(self) -> Want:
        """Ask for the sentence vector."""
        return own_sentence(self.info)

    @property
    def every(self) -> AttentionWant:
        """Ask for every map."""
        return AttentionWant(tuple(range(self.info.layers)), tuple(range(self.info.heads)))

    def maps(self, **options: object) -> Want:
        """Ask for the sentence vector and the maps, with these options."""
        return replace(self.plain, attention=replace(self.every, **options))  # type: ignore[arg-type]

    def summary(self) -> Want:
        """Ask for the sentence vector and every statistic."""
        every = self.every
        return replace(self.plain, summary=SummaryWant(every.layers, every.heads, (0, self.length - 1)))

    def words(self) -> Want:
        """Ask for the sentence vector and the maps of words, averaged over the heads."""
        starts, end = [0, 1], self.length - 1  # [CLS] and [SEP] are words of their own
        while (start := starts[-1] + _PIECES[len(starts) % len(_PIECES)]) < end:
            starts.append(start)
        starts.append(end)
        axis = Axis(tuple(range(len(starts))), tuple(range(self.length)), tuple(starts))
        return self.maps(aggregate="mean", queries=axis, keys=axis)


ROWS: dict[str, Callable[[Asked], Want]] = {
    "one head": lambda asked: asked.maps(layers=(asked.info.layers // 2,), heads=(0,)),
    "CLS row": lambda asked: asked.maps(queries=Axis((0,))),
    "maps float16": lambda asked: asked.maps(dtype="float16"),
    _NPZ: lambda asked: asked.maps(dtype="float16"),
    "summary": Asked.summary,
    "maps float32": Asked.maps,
    "maps uint8": lambda asked: asked.maps(dtype="uint8"),
    "value norm": lambda asked: asked.maps(weights="value_norm"),
    "thumbnails": lambda asked: asked.maps(thumbnail=64),
    "rollout": lambda asked: asked.maps(aggregate="rollout"),
    "rollout row": lambda asked: asked.maps(aggregate="rollout", queries=Axis((0,))),
    "top 5": lambda asked: asked.maps(top_k=5),
    "words": Asked.words,
}
"""What each row wants."""


def make_batch(backend: TorchBackend, length: int, want: Want, count: int = _BATCH) -> Batch:
    """Pack texts of random tokens that all want the same."""
    texts = random_ids([length] * count, _VOCABULARY, cls_id=101, sep_id=102)
    return replace(pack_ids(texts, backend.info), wants=(want,) * count)


def make_call(backend: TorchBackend, row: str, length: int, count: int = _BATCH) -> Callable[[], object]:
    """Prepare a row."""
    asked = Asked(backend.info, length)
    batch = make_batch(backend, length, ROWS[row](asked), count)
    return partial(run_and_write if row == _NPZ else run, backend, batch)


def run(backend: TorchBackend, batch: Batch) -> None:
    """Run a batch and discard its outputs."""
    backend.run(batch)


def run_and_write(backend: TorchBackend, batch: Batch) -> None:
    """Run a batch, and write an archive of its maps."""
    items = [
        View(want, {"index": i}, Expected()).item(output)
        for i, (want, output) in enumerate(zip(batch.wants, backend.run(batch), strict=True))
    ]
    _, pieces = write(AnswerStyle("model", "npz", "float16"), items, len(batch.input_ids))
    deque(pieces, maxlen=0)


def measure_model(model: str, arguments: argparse.Namespace) -> dict[tuple[int, str], dict[str, list[float]]]:
    """Time each row beside plain encoding, for each length: seconds per pass, pair by pair."""
    backend = load(model, arguments.dtype)
    measured = {}
    for length in arguments.lengths:
        count = arguments.texts
        plain = partial(run, backend, make_batch(backend, length, Asked(backend.info, length).plain, count))
        for row in arguments.rows:
            call = make_call(backend, row, length, count)
            pair: dict[str, Callable[[], object]] = {"plain": plain, row: call}
            measured[length, row] = take_turns(pair, arguments.rounds)
            shown = tables.ratio(measured[length, row][row], measured[length, row]["plain"])
            print(f"{model}, {length} tokens, {row}: {shown}", file=sys.stderr, flush=True)
    return measured


def print_ratios(model: str, measured: dict[tuple[int, str], dict[str, list[float]]], dtype: str) -> None:
    """Print how long each row takes, in milliseconds and in passes of plain encoding."""
    rows = []
    for (length, row), seconds in measured.items():
        bound = BOUNDS.get((row, dtype, length))
        rows.append(
            [
                row,
                str(length),
                *(f"{1e3 * float(np.median(seconds[name])):.1f}" for name in ("plain", row)),
                tables.ratio(seconds[row], seconds["plain"]),
                "" if bound is None else f"≤ {bound:.2f}",
            ]
        )
    header = ["besides", "tokens", "plain ms", "ms", "to plain", "bound"]
    tables.print_table(f"{model}: time of a batch, medians and [quartiles]", header, rows)


def print_memory(model: str, dtype: str, length: int) -> None:
    """Print how much more memory a summary needs at its peak than plain encoding."""
    peaks = {}
    for row in (None, "summary"):
        # Spawned, and one after the other: neither inherits memory that is freed but not given back.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            peaks[row] = pool.submit(peak_mb, model, dtype, length, row).result()
    tables.print_table(
        f"{model}: resident memory at its peak, MB",
        ["tokens", "plain", "summary", "grown by", "bound"],
        [
            [
                str(length),
                *(f"{peak:.1f}" for peak in peaks.values()),
                f"{peaks['summary'] - peaks[None]:.1f}",
                f"< {_MOST_MB}",
            ]
        ],
    )


def peak_mb(model: str, dtype: str, length: int, row: str | None) -> float:
    """Run a row, or plain encoding, a few times: MB of resident memory at the peak, loading apart."""
    keep_freed_memory()
    backend = load(model, dtype)
    plain = partial(run, backend, make_batch(backend, length, Asked(backend.info, length).plain))
    plain()
    with suppress(AttributeError):  # where the C library is not glibc
        ctypes.CDLL(None).malloc_trim(0)
    machine.forget_peak()
    call = plain if row is None else make_call(backend, row, length)
    for _ in range(3):
        call()
    return machine.memory_mib("VmHWM") * machine.MB_PER_MIB


if __name__ == "__main__":
    main()
