"""Graphs run interventions like hooks on `transformers`, in a second file without weights of its own."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest

from export.contents import copy_contents
from export.interventions import write_interventions
from export.precision import PRECISIONS
from export.writer import WEIGHTS
from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.folder import read_folder
from model.contract import AttentionWant, SentenceWant, SummaryWant, Want
from model.encoder.interventions import BlockedEdges, HeadScale, InterventionKind, Interventions, StateChange
from model.errors import Unsupported
from model.onnx.backend import OnnxBackend
from model.onnx.file import CHANGED, GRAPH, OnnxFile
from tests.model.test_interventions import FAMILIES, check
from tests.references import measures
from tests.references.comparing import distance, relative_distance
from tests.references.encoder import softmax
from tests.references.families import Written
from tests.references.interventions import Change, ChangedJina, Reference, run_changed
from tests.references.jina import write_jina
from tests.support.backends import export_folder
from tests.support.families import AS_A_GRAPH, ENCODERS, cosine, sample, write_small
from tests.support.interventions import random_changes, with_changes
from tests.support.product import run

KINDS: tuple[InterventionKind, ...] = ("heads", "edges")


def opened(place: Path) -> OnnxBackend:
    """The graphs of a folder."""
    return OnnxBackend(read_folder(place, graph=True), OnnxFile(place / GRAPH, place), device="cpu")


def written(source: Path, place: Path) -> OnnxBackend:
    """The graphs of a checkpoint, which are not compared with it first."""
    export_folder(source, place)
    write_interventions(place / GRAPH, load_checkpoint(source).encoder.config)
    return opened(place)


@pytest.mark.thorough
@pytest.mark.parametrize("choice", [*FAMILIES, "jina_bert"])
def test_interventions_are_those_of_hooks(choice: str, tmp_path: Path) -> None:
    """In every family, for 50 different ones in one batch, beside sequences without, and alone."""
    source = tmp_path / "model"
    reference: Reference
    if choice == "jina_bert":
        reference = partial(ChangedJina.run_changed, write_jina(source))
    else:
        family, options = FAMILIES[choice]
        model = write_small(source, family, ENCODERS.get(family, "Model"), **options)
        reference = partial(run_changed, model)
    backend = written(source, tmp_path / "graph")
    assert backend.info.interventions == KINDS
    check(backend, reference, AS_A_GRAPH)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_lower_precisions_keep_their_bounds(dtype: Any, tmp_path: Path) -> None:
    """Those of a comparison without interventions: of maps, and of vectors of runs without maps."""
    model = write_small(tmp_path / "model", "bert", "Model")
    place, checkpoint = tmp_path / "graph", load_checkpoint(tmp_path / "model")
    place.mkdir()
    PRECISIONS[dtype].write(checkpoint.encoder, place, {}, "any")
    copy_contents(tmp_path / "model", checkpoint.folder.layout, place)
    backend = opened(place)
    assert_without_weights(place)
    texts = sample([7, 20, 20, 40, 40, 40])
    changes = changes_of(texts, seed=1)
    vector, bounds = SentenceWant(("mean",), (backend.info.layers,)), PRECISIONS[dtype].bounds["texts"]
    maps = AttentionWant(tuple(range(backend.info.layers)), (0, 1, 2))
    vectors: list[Any] = run(backend, texts, [with_changes(Want(sentence=vector), some) for some in changes])
    observed: list[Any] = run(backend, texts, [with_changes(Want(attention=maps), some) for some in changes])
    for number, (text, some) in enumerate(zip(texts, changes, strict=True)):
        states, expected = run_changed(model, text.token_ids, text.segment_ids, some)
        assert distance(observed[number].attention, expected) <= bounds["attention"], some
        found = cosine(vectors[number].sentence, states[-1].mean(0))
        assert 1 - found <= bounds["1 - sentence cosine"], some


def changes_of(texts: Sequence[Any], seed: int) -> list[list[Change]]:
    """Interventions of each text, in three layers of three heads."""
    random = np.random.default_rng(seed)
    return [random_changes(random, 3, 3, 48, len(text), KINDS) for text in texts]


def assert_without_weights(place: Path) -> None:
    """The constants of the second graph are in the first one's file, to the last."""
    constants = onnx.load(place / CHANGED, load_external_data=False).graph.initializer
    assert max(len(tensor.raw_data) for tensor in constants) < 1024
    locations = [one.value for tensor in constants for one in tensor.external_data if one.key == "location"]
    assert set(locations) == {WEIGHTS}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Written, Path]:
    """A small BERT, and the folder of its graphs."""
    place = tmp_path_factory.mktemp("bert")
    model = write_small(place / "model", "bert", "Model")
    written(place / "model", place / "graph")
    return model, place / "graph"


def test_statistics_scores_and_rollouts_are_those_of_the_changed_run(bert: tuple[Written, Path]) -> None:
    """They are computed from queries and keys, beside the graph, which must hide the same edges."""
    model, place = bert
    backend = opened(place)
    layers, heads = tuple(range(3)), tuple(range(3))
    texts = sample([7, 7, 7, 20, 20, 40])
    changes = changes_of(texts, seed=3)
    changes[0] = []
    changes[1] = [{"kind": "edges", "layers": layers, "heads": heads, "queries": range(7), "keys": range(7)}]
    wants = [
        Want(summary=SummaryWant(layers, heads, special=(0, 6))),
        Want(attention=AttentionWant(layers, heads, weights="score")),
        Want(attention=AttentionWant(layers, heads, aggregate="rollout")),
        Want(attention=AttentionWant(layers, heads, aggregate="mean")),
    ]
    found: list[list[Any]] = [
        run(backend, texts, [with_changes(want, some) for some in changes]) for want in wants
    ]
    for number, (text, some) in enumerate(zip(texts, changes, strict=True)):
        _, maps = run_changed(model, text.token_ids, text.segment_ids, some)
        summary, scores, rollout, mean = (outputs[number] for outputs in found)
        special = np.isin(np.arange(len(text)), (0, 6))
        for name, expected in measures.summary(maps.astype(np.float32), special).items():
            assert relative_distance(summary.summary[name], expected) <= AS_A_GRAPH, (name, some)
        empty = maps.sum(-1) == 0
        assert (np.isneginf(scores.attention).all(-1) == empty).all()
        assert distance(softmax(scores.attention[~empty]), maps[~empty]) <= AS_A_GRAPH
        assert distance(rollout.attention, measures.rollout(list(maps.mean(1)))) <= AS_A_GRAPH
        assert distance(mean.attention, maps.mean(1)) <= AS_A_GRAPH


def test_tokens_that_are_not_attended_to_stay_so(bert: tuple[Written, Path]) -> None:
    """The masks that fill up a query of late interaction; they count in the mean of a head's outputs."""
    model, place = bert
    backend = opened(place)
    texts = [replace(text, unattended=len(text) // 3) for text in sample([8, 9, 12, 12, 30, 30])]
    changes = changes_of(texts, seed=1)
    changes[1] = [{"kind": "heads", "layer": 0, "heads": [0, 1], "mean": True}]
    want = Want(token_layers=tuple(range(backend.info.layers + 1)))
    outputs = run(backend, texts, [with_changes(want, some) for some in changes])
    for text, some, output in zip(texts, changes, outputs, strict=True):
        states, _ = run_changed(model, text.token_ids, text.segment_ids, some, text.unattended)
        assert output.tokens is not None
        for ours, theirs in zip(output.tokens, states, strict=True):
            assert relative_distance(ours, theirs) <= AS_A_GRAPH, some


def test_a_pass_ends_where_nothing_later_is_wanted(bert: tuple[Written, Path]) -> None:
    """Also with interventions, early and in a layer that only attends."""
    model, place = bert
    backend, (text,) = opened(place), sample([9])
    some: list[Change] = [
        {"kind": "heads", "layer": 0, "heads": [0], "scale": -1.0},
        {"kind": "edges", "layers": [0, 1], "heads": [0, 2], "queries": range(9), "keys": [0, 3]},
    ]
    states, maps = run_changed(model, text.token_ids, text.segment_ids, some)
    early = Want(token_layers=(0, 1), attention=AttentionWant((1,), (0, 1, 2)))
    (output,) = run(backend, [text], [with_changes(early, some)])
    assert output.tokens is not None
    assert relative_distance(output.tokens, states[:2]) <= AS_A_GRAPH
    assert output.attention is not None
    assert distance(output.attention[0], maps[1]) <= AS_A_GRAPH


def is_open(backend: OnnxBackend) -> bool:
    """Whether the graph for interventions is in memory."""
    return backend._changed._opened is not None


def test_sequences_without_interventions_run_in_the_usual_graph(bert: tuple[Written, Path]) -> None:
    """With the same bits; the other graph is opened when it is first needed."""
    _, place = bert
    assert_without_weights(place)
    backend, (text,) = opened(place), sample([5])
    want = Want(token_layers=(1,))
    (before,) = run(backend, [text], [want])
    (empty,) = run(backend, [text], [replace(want, interventions=Interventions())])
    assert not is_open(backend)
    changed = replace(want, interventions=Interventions(heads=(HeadScale(0, (0,)),)))
    beside, other = run(backend, [text, text], [want, changed])
    assert is_open(backend)
    np.testing.assert_array_equal(before.tokens, beside.tokens)
    np.testing.assert_array_equal(before.tokens, empty.tokens)
    assert distance(other.tokens, cast(Any, before.tokens)) > 1e-3


def test_what_a_graph_cannot_run_is_refused_with_what_can(bert: tuple[Written, Path], tmp_path: Path) -> None:
    """States in every graph; all of them in one of an older release, without a graph for interventions."""
    older = tmp_path / "older"
    older.mkdir()
    for file in bert[1].iterdir():
        if file.name != CHANGED and file.is_file():
            (older / file.name).write_bytes(file.read_bytes())
    scaled, (text,) = (HeadScale(0, (0,)),), sample([5])
    edges, states = (BlockedEdges((0,), (0,), (0,), (0,)),), (StateChange(0, (0,), np.zeros(48, np.float32)),)
    again = "export its weights again, or serve them with PyTorch"
    for place, changed, told in (
        (bert[1], Interventions(scaled, edges, states), "which states cannot be changed: serve its weights"),
        (older, Interventions(scaled), f"which heads cannot be changed: {again}"),
        (older, Interventions(edges=edges), f"which edges cannot be changed: {again}"),
        (
            older,
            Interventions(scaled, (), states),
            "which heads and states cannot be changed: serve its weights",
        ),
    ):
        backend, want = opened(place), Want(token_layers=(1,))
        with pytest.raises(Unsupported, match=f"{told}.*_BACKEND=") as refused:
            run(backend, [text, text], [want, replace(want, interventions=changed)])
        assert refused.value.field == "interventions"
