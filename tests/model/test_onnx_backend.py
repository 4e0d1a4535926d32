"""What is ONNX Runtime's own of a backend: rectangles, early ends, memory, and agreement with PyTorch."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from model.checkpoints.folder import read_folder
from model.choices import Axis
from model.contract import AttentionWant, Encoding, SentenceWant, SummaryWant, Want, Weights
from model.errors import OutOfMemory, Unsupported
from model.onnx import names as graph
from model.onnx.backend import OnnxBackend
from model.onnx.file import find_graph
from model.onnx.session import Graph, choose_processor
from model.progress import Progress
from tests.references.checkpoints import write_bert
from tests.references.comparing import distance, relative_distance
from tests.support.backends import export_folder, small
from tests.support.product import run, want_all

Feed = dict[str, np.ndarray[Any, Any]]


def backend() -> OnnxBackend:
    """A BERT of three layers and four heads, of random weights, in float32."""
    return cast(OnnxBackend, small("onnx").backend)


@cache
def every_length() -> list[Encoding]:
    """Random tokens, of both segments, of every length from 1 to the most that the model reads."""
    random = np.random.default_rng(3)
    return [
        Encoding(
            token_ids=random.integers(0, 91, n).tolist(),
            segment_ids=[int(2 * i > n) for i in range(n)],
            tokens=[""] * n,
            offsets=[(0, 0)] * n,
            word_ids=[None] * n,
            special=[False] * n,
            truncated=False,
            original_length=n,
        )
        for n in range(1, backend().info.max_length + 1)
    ]


@contextmanager
def recorded() -> Iterator[list[tuple[Feed, list[str]]]]:
    """What is fed to graphs, and fetched of them, while a block runs; they run as ever."""
    seen: list[tuple[Feed, list[str]]] = []
    really = Graph.run

    def watched(
        self: Graph, feed: Mapping[str, Any], outputs: Sequence[str], progress: Progress | None = None
    ) -> dict[str, Any]:
        seen.append((dict(feed), list(outputs)))
        return really(self, feed, outputs, progress)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Graph, "run", watched)
        yield seen


# -------------------------------------------------------------------------------- as PyTorch has it


def test_every_layer_of_every_length_is_what_pytorch_computes() -> None:
    """All states and maps of 1 to 64 tokens within 1e-4, alone and all in one batch."""
    encodings = every_length()
    wants = [want_all(backend())] * len(encodings)
    theirs = run(small("torch").backend, encodings, wants)
    together = run(backend(), encodings, wants)
    for i, encoding in enumerate(encodings):
        (alone,) = run(backend(), [encoding], wants[:1])
        for ours in (alone, together[i]):
            assert relative_distance(ours.tokens, theirs[i].tokens) <= 1e-4
            assert distance(ours.attention, theirs[i].attention) <= 1e-4


@pytest.mark.parametrize("weights", ["probability", "score", "value_norm"])
@pytest.mark.parametrize("aggregate", ["none", "mean", "max", "rollout"])
def test_every_kind_of_map_is_what_pytorch_computes(weights: Weights, aggregate: Any) -> None:
    """With some heads and rows, beside the statistics of others, of texts of several lengths."""
    encodings = small("onnx").tokenizer.encode(["the man beats the boy", "a boy beats", "hello hello a man."])
    attention = AttentionWant((2, 0), (3, 1), weights, aggregate, Axis((2, 0, 2)), Axis((0, 3)))
    wants = [
        Want(attention=attention, summary=SummaryWant((1, 2), (0, 3), (0, len(e) - 1))) for e in encodings
    ]
    ours, theirs = (run(small(kind).backend, encodings, wants) for kind in ("onnx", "torch"))
    for one, other in zip(ours, theirs, strict=True):
        assert relative_distance(one.attention, other.attention) <= 1e-5
        assert one.summary is not None
        assert other.summary is not None
        assert list(one.summary) == list(other.summary)
        for name, values in one.summary.items():
            assert relative_distance(values, other.summary[name]) <= 1e-5


# ------------------------------------------------------------------------------- what is really run


@given(st.lists(st.integers(1, 64), max_size=60))
def test_the_cost_is_what_is_run(lengths: list[int]) -> None:
    """Every token that graphs are fed counts, padding too, and nothing else."""
    encodings = [every_length()[n - 1] for n in lengths]
    with recorded() as seen:
        run(backend(), encodings, [Want(token_layers=(0,))] * len(lengths))
    assert sum(feed[graph.INPUT_IDS].size for feed, _ in seen) == backend().cost(lengths)
    assert sum(int(feed[graph.ATTENTION_MASK].sum()) for feed, _ in seen) == sum(lengths)
    assert all(feed[graph.INPUT_IDS].size <= 512 for feed, _ in seen)


@pytest.mark.parametrize(
    ("want", "depth", "fetched"),
    [
        (Want(attention=AttentionWant((0,), (0,))), 0, {"attention_0"}),
        (Want(attention=AttentionWant((2, 1), (0,))), 2, {"attention_1", "attention_2"}),
        (Want(attention=AttentionWant((1,), (0,), "score")), 1, {"queries_1", "keys_1"}),
        (Want(attention=AttentionWant((1,), (0,), "value_norm")), 1, {"attention_1", "value_norms_1"}),
        (Want(token_layers=(0,)), 0, {"state_0"}),
        (Want(token_layers=(1,), attention=AttentionWant((0,), (3,))), 1, {"state_1", "attention_0"}),
        (Want(sentence=SentenceWant(layers=(3,))), 3, {"state_3"}),
        (Want(summary=SummaryWant((1,), (2,), (0,))), 1, {"queries_1", "keys_1"}),
    ],
)
def test_no_more_is_run_or_fetched_than_is_wanted(want: Want, depth: int, fetched: set[str]) -> None:
    """After the attention of the deepest layer that is looked at, a single token goes on, for form's sake."""
    encodings = small("onnx").tokenizer.encode(["the man", "a boy"])
    with recorded() as seen:
        run(backend(), encodings, [want, want])
    ((feed, outputs),) = seen
    whole = [feed[graph.cells(layer)].size == feed[graph.INPUT_IDS].size for layer in range(3)]
    assert whole == [layer < depth for layer in range(3)]
    assert all(feed[graph.cells(layer)].tolist() == [[0]] for layer in range(depth, 3))
    assert set(outputs) == fetched
    assert len(outputs) == len(fetched)


def test_who_asks_for_nothing_is_not_run() -> None:
    """A neighbour that wants something does not have it run along."""
    encodings = small("onnx").tokenizer.encode(["the man", "a boy", "hello"])
    with recorded() as seen:
        run(backend(), encodings, [Want(), Want(token_layers=(1,)), Want()])
    ((feed, _),) = seen
    assert feed[graph.INPUT_IDS].tolist() == [encodings[1].token_ids]


def test_those_that_ask_for_the_same_run_together() -> None:
    """Two kinds of wants are two runs, each of all its sequences, in whatever order they came."""
    encodings = small("onnx").tokenizer.encode(["the man", "a boy", "the boy", "a man"])
    wants = [Want(token_layers=(1,)), Want(attention=AttentionWant((0,), (1,)))] * 2
    with recorded() as seen:
        run(backend(), encodings, wants)
    runs: dict[tuple[str, ...], list[list[int]]] = defaultdict(list)
    for feed, outputs in seen:
        runs[tuple(outputs)] += feed[graph.INPUT_IDS].tolist()
    ids = [encoding.token_ids for encoding in encodings]
    assert runs == {("state_1",): ids[::2], ("attention_0",): ids[1::2]}


# ------------------------------------------------------------------------------------- what it says


def load(folder: Path, **options: Any) -> OnnxBackend:
    file = find_graph(folder)
    assert file is not None
    return OnnxBackend(read_folder(folder), file, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported BERT of two layers."""
    place = tmp_path_factory.mktemp("exported")
    write_bert(place / "source")
    return export_folder(place / "source", place / "graph")


@pytest.mark.parametrize(("threads", "lanes"), [(1, 1), (2, 2), (4, 4), (5, 1)])
def test_lanes_share_the_cores_that_there_are(folder: Path, threads: int, lanes: int) -> None:
    """However many, the numbers are the same."""
    loaded = load(folder, device="cpu", threads=threads)
    assert loaded.lanes == lanes
    encodings = small("onnx").tokenizer.encode(["the man beats", "a"])
    first, again = (run(made, encodings, [want_all(made)] * 2) for made in (loaded, load(folder, threads=1)))
    for one, other in zip(first, again, strict=True):
        assert relative_distance(one.tokens, other.tokens) <= 2e-6
        assert distance(one.attention, other.attention) <= 2e-6


def test_a_graph_is_run_in_the_precision_it_was_written_in(folder: Path) -> None:
    """Any other that is asked for by name is refused, with the way out."""
    assert load(folder, dtype="auto").info.dtype == load(folder, dtype="float32").info.dtype == "float32"
    with pytest.raises(
        Unsupported, match=r"dtype is bfloat16, but .* computes in float32: choose auto"
    ) as caught:
        load(folder, dtype="bfloat16")
    assert caught.value.field == "dtype"


def test_what_does_not_fit_into_memory_is_told_as_such(tmp_path: Path) -> None:
    """A tensor of four petabytes is OutOfMemory, so that a smaller batch is tried; other errors stay."""
    path = tmp_path / "fill.onnx"
    shape, filled = (
        helper.make_tensor_value_info("shape", TensorProto.INT64, ["axes"]),
        helper.make_tensor_value_info("filled", TensorProto.FLOAT, None),
    )
    node = helper.make_node("ConstantOfShape", ["shape"], ["filled"])
    made = helper.make_graph([node], "fill", [shape], [filled])
    onnx.save(helper.make_model(made, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), path)
    opened = Graph(path, choose_processor("cpu"), 1)
    assert opened.run({"shape": np.array([3])}, ["filled"])["filled"].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(OutOfMemory):
        opened.run({"shape": np.array([2**50])}, ["filled"])
    with pytest.raises(Exception, match="shape") as caught:
        opened.run({"shape": np.array([-7])}, ["filled"])
    assert not isinstance(caught.value, OutOfMemory)


def test_lengths_that_are_padded_for_cuda_stay_within_the_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths go up to the next multiple of 32, and no further than the model has positions: here 64."""
    made = backend()
    monkeypatch.setattr(made, "_on_cpu", False)
    assert [made.cost([n]) for n in (1, 32, 33, 64)] == [32, 32, 64, 64]
    config = replace(made._folder.config, max_positions=50)
    monkeypatch.setattr(made, "_folder", replace(made._folder, config=config))
    assert made.cost([49]) == 50
    encodings = every_length()[:5]
    want = Want(sentence=SentenceWant(layers=(3,)))
    padded = run(made, encodings, [want] * 5)
    monkeypatch.undo()
    for ours, theirs in zip(padded, run(made, encodings, [want] * 5), strict=True):
        assert distance(ours.sentence, theirs.sentence) < 1e-5
