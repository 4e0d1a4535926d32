"""Two backends are held to each other in everything they tell."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from export.parity import Quantity, Row, as_data, compare, random_encodings, table
from export.texts import TEXTS
from model.checkpoints.checkpoint import load_checkpoint
from model.contract import STATISTICS, Batch, Encoding, Output, SummaryWant
from model.progress import Progress
from model.pytorch.backend import TorchBackend
from tests.references.checkpoints import write_bert

# The model of these tests predicts nothing.
ALL = tuple(what for what in get_args(Quantity) if what != "logits")
BOUNDS: dict[Quantity, float] = dict.fromkeys(ALL, 1e-5)


@pytest.fixture(autouse=True, scope="module")
def alone() -> Iterator[None]:
    """One core: two backends that run side by side would wait for each other's threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parity")
    write_bert(folder)
    return folder


@pytest.fixture(scope="module")
def plain(folder: Path) -> TorchBackend:
    return TorchBackend(load_checkpoint(folder), device="cpu", dtype="float32")


class Disturbed(TorchBackend):
    """A backend whose answers are changed before they are given; it remembers what it was asked."""

    def __init__(self, folder: Path, change: Callable[[Output], Output]) -> None:
        super().__init__(load_checkpoint(folder), device="cpu", dtype="float32")
        self.change = change
        self.batches: list[Batch] = []

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        self.batches.append(batch)
        return [self.change(output) for output in super().run(batch, lanes=lanes, progress=progress)]


def encodings(folder: Path) -> list[Encoding]:
    return load_checkpoint(folder).tokenizer.encode(TEXTS[:6])


def missed(rows: Sequence[Row]) -> set[str]:
    return {row.what for row in rows if not row.ok}


def test_a_backend_equals_itself(folder: Path, plain: TorchBackend) -> None:
    """Everything is compared, once for each group of inputs, and no bound is missed."""
    groups = {"random": random_encodings(plain.info, 91, 2)[:4], "texts": encodings(folder)}
    rows = compare(plain, plain, groups, dict.fromkeys(groups, BOUNDS))
    assert sorted((row.inputs, row.what) for row in rows) == sorted((g, what) for g in groups for what in ALL)
    assert all(row.ok for row in rows)


def moved(name: str, by: Any) -> Callable[[Output], Output]:
    def change(output: Output) -> Output:
        array = getattr(output, name)
        if array is None:
            return output
        array = array.copy()
        array.flat[-1] += by
        return replace(output, **{name: array})

    return change


def unstatistical(output: Output) -> Output:
    if output.summary is None:
        return output
    return replace(output, summary={**output.summary, "entropy": output.summary["entropy"] + 1e-2})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (moved("sentence", 1.0), {"sentence vectors", "1 - sentence cosine"}),
        (moved("tokens", 1e-3), {"hidden states"}),
        (moved("attention", 1e-2), {"attention", "scores", "value norms"}),
        (moved("tokens", np.nan), {"hidden states"}),
        (moved("attention", np.inf), {"attention", "scores", "value norms"}),
        (unstatistical, {"summaries"}),
        (lambda output: replace(output, sentence=None), {"sentence vectors", "1 - sentence cosine"}),
        (lambda output: replace(output, attention=None), {"attention", "scores", "value norms"}),
        (lambda output: replace(output, summary=None, tokens=None), {"summaries", "hidden states"}),
    ],
)
def test_a_difference_is_found_where_it_is(
    folder: Path, plain: TorchBackend, change: Callable[[Output], Output], expected: set[str]
) -> None:
    """One number that is off, is none or is missing, misses the bound of what it belongs to."""
    groups = {"texts": encodings(folder)[:2]}
    rows = compare(plain, Disturbed(folder, change), groups, {"texts": BOUNDS})
    assert missed(rows) == expected


def test_what_is_hidden_must_be_hidden(folder: Path, plain: TorchBackend) -> None:
    """A score below all others is none: another number in its place is a difference, itself is none."""

    def hide(output: Output) -> Output:
        if output.attention is None:
            return output
        scores = output.attention.copy()
        scores[..., 0] = np.finfo(np.float32).min
        return replace(output, attention=scores)

    hidden, groups = Disturbed(folder, hide), {"texts": encodings(folder)[:2]}
    bound: dict[Quantity, float] = {"scores": 1e-5}
    scores = {"texts": bound}
    same = {row.what: row for row in compare(hidden, Disturbed(folder, hide), groups, scores)}
    assert same["scores"].largest < 1e-6
    other = {row.what: row for row in compare(hidden, plain, groups, scores)}
    assert not other["scores"].ok


def test_each_input_is_run_alone_and_in_mixed_batches(folder: Path, plain: TorchBackend) -> None:
    """Of every layer and head, with the special tokens of each."""
    watched, some = Disturbed(folder, lambda output: output), encodings(folder)
    compare(plain, watched, {"texts": some}, {"texts": BOUNDS})
    alone = {tuple(batch.input_ids) for batch in watched.batches if len(batch) == 1}
    assert alone == {tuple(encoding.token_ids) for encoding in some}
    together = [batch for batch in watched.batches if len(batch) > 1]
    assert together
    assert all(len(set(np.diff(batch.cu_seqlens))) > 1 for batch in together)
    wants = [want for batch in watched.batches for want in batch.wants]
    kinds = {want.attention.weights for want in wants if want.attention}
    assert kinds == {"probability", "score", "value_norm"}
    assert {want.attention.layers for want in wants if want.attention} == {(0, 1)}
    assert {want.attention.heads for want in wants if want.attention} == {(0, 1, 2, 3)}
    assert {want.token_layers for want in wants} == {(), (0, 1, 2)}
    # Sentences are compared as they are where nobody looks, and as they are where somebody does.
    assert {want.attention is None for want in wants if want.sentence} == {True, False}
    summaries = [want.summary for want in watched.batches[1].wants]
    # Where a row is largest may jump by rounding: shares of rows are not compared.
    continuous = tuple(name for name in STATISTICS if not name.startswith("argmax"))
    assert summaries == [SummaryWant((0, 1), (0, 1, 2, 3), (0, len(some[0]) - 1), continuous)]


def test_random_sequences_have_every_kind_of_length(folder: Path, plain: TorchBackend) -> None:
    """1, powers of 2 and their neighbours, and the limit; the same ones each time."""
    info = replace(plain.info, max_length=50)
    some = random_encodings(info, 91, 2)
    assert [len(encoding) for encoding in some] == [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 50]
    assert len(random_encodings(replace(plain.info, max_length=32_768), 91, 2)[-1]) == 2048
    assert {token for encoding in some for token in encoding.token_ids} <= set(range(91))
    assert {segment for encoding in some for segment in encoding.segment_ids} == {0, 1}
    assert some == random_encodings(info, 91, 2)
    assert {s for encoding in random_encodings(info, 91, 0) for s in encoding.segment_ids} == {0}


def test_the_table_is_aligned_and_says_what_is_missed() -> None:
    """A line for each row: kept, missed, or without a bound."""
    rows = [
        Row("texts", "attention", 0.5, 1e-4),
        Row("random tokens", "hidden states", 2e-6, 1e-4),
        Row("texts", "scores", 0.25, None),
        Row("texts", "logits", 0.002, 0.004, 0.001),
    ]
    assert table(rows).splitlines() == [
        "what           inputs         largest difference  bound   ok",
        "attention      texts          0.5                 0.0001  NO",
        "hidden states  random tokens  2e-06               0.0001  yes",
        "scores         texts          0.25",
        "logits         texts          0.002               0.004   yes  from float64; float32: 0.001",
    ]
    assert as_data(rows)[1] == {
        "inputs": "random tokens",
        "what": "hidden states",
        "largest": 2e-6,
        "bound": 1e-4,
        "ok": True,
    }
    assert as_data(rows)[3]["rounding"] == 0.001
    assert not Row("texts", "scores", float("inf"), None).ok


def test_one_group_runs_with_interventions_of_every_kind(folder: Path, plain: TorchBackend) -> None:
    """All of its inputs, in every run; a backend that leaves them out misses bounds."""
    watched, some = Disturbed(folder, lambda output: output), encodings(folder)
    groups = {"texts": some, "interventions": some}
    rows = compare(plain, watched, groups, dict.fromkeys(groups, BOUNDS))
    assert all(row.ok for row in rows)
    wants = [want for batch in watched.batches for want in batch.wants]
    kinds = [want.interventions.kinds for want in wants if want.interventions is not None]
    assert set(kinds) == {("heads", "edges")}
    assert len(kinds) == len(wants) / 2
    rows = compare(plain, Unchanged(folder, lambda output: output), groups, dict.fromkeys(groups, BOUNDS))
    assert {row.inputs for row in rows if not row.ok} == {"interventions"}
    assert {"hidden states", "attention", "sentence vectors"} <= missed(rows)


class Unchanged(Disturbed):
    """A backend that makes no interventions."""

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        wants = tuple(replace(want, interventions=None) for want in batch.wants)
        return super().run(replace(batch, wants=wants), lanes=lanes, progress=progress)
