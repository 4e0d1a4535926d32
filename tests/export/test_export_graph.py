"""The exported graph, run by ONNX Runtime, against a naive encoder in numpy."""

import sys
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from itertools import accumulate
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from export.writer import OPSET, WEIGHTS, write_graph
from model.arrays import NUMPY
from model.contract import AttentionWant, Batch, Want
from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.heads.running import Heads
from model.onnx import names as graph
from model.onnx.fetches import choose_fetches
from model.onnx.file import GRAPH
from model.onnx.padded_batch import PaddedBatch
from model.progress import Progress
from tests.export.kinds import KINDS, SIZES
from tests.references.comparing import distance, relative_distance
from tests.references.encoder import softmax
from tests.support.exported import NOTHING, ExportedGraph
from tests.support.product import Array, naive, random_encoder

pytestmark = pytest.mark.thorough

SEQUENCES = [[1], [5, 3, 2], [i * 7 % 13 for i in range(20)], [4, 0, 12, 7, 7, 1, 9], [2, 2]]
Exported = Callable[[str], tuple[Encoder, ExportedGraph]]


def encoder_of(kind: str) -> Encoder:
    return random_encoder(EncoderConfig(**{**SIZES, **KINDS[kind]}))


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Each kind of encoder with its graph, written when the first test asks for it."""

    @cache
    def of(kind: str) -> tuple[Encoder, ExportedGraph]:
        encoder = encoder_of(kind)
        path = write_graph(encoder, tmp_path_factory.mktemp(kind.replace(" ", "-")), {"made.for": "tests"})
        return encoder, ExportedGraph(path, encoder.config)

    return of


def norms_of(encoder: Encoder, layer: int, state: Array) -> Array:
    """‖f_h(x_j)‖ by its definition, head by head: (H, N)."""
    config, reference = encoder.config, naive(encoder)
    _, _, values = reference.project(layer, state)
    first = config.shared[layer] if config.shared else layer
    output = reference.weights[f"blocks.{first}.attention.output.weight"].reshape(
        config.hidden_size, config.num_heads, -1
    )
    return np.stack([np.linalg.norm(values[h] @ output[:, h].T, axis=-1) for h in range(config.num_heads)])


@pytest.mark.parametrize("kind", KINDS)
def test_every_choice_of_the_config_is_in_the_graph(exported: Exported, kind: str) -> None:
    """States, maps and value norms of every layer equal the naive encoder's, whatever is padded beside."""
    encoder, run = exported(kind)
    reference = naive(encoder)
    outputs = run(run.everything(run.feeds(SEQUENCES, padding=3)))
    for row, ids in enumerate(SEQUENCES):
        states, maps = reference(ids)
        size = len(ids)
        for number, state in enumerate(states):
            found = outputs[graph.state(number)].reshape(len(SEQUENCES), -1, state.shape[1])
            assert relative_distance(found[row, :size], state) < 2e-5
        for layer, map_ in zip(encoder.config.attending, maps, strict=True):
            found = outputs[graph.attention(layer)][row]
            assert distance(found[:, :size, :size], map_) < 2e-5
            assert np.all(found[:, :size, size:] == 0)  # nobody looks at padding
            norms = outputs[graph.value_norms(layer)][row, :, :size]
            assert relative_distance(norms, norms_of(encoder, layer, states[layer])) < 2e-5
    assert all(np.isfinite(output).all() for output in outputs.values())


@pytest.mark.parametrize("field", [field.name for field in fields(EncoderConfig)])
def test_every_field_of_the_config_is_among_the_kinds(field: str) -> None:
    """A field that is new is in no graph here, and this fails until it is in one or known to need none."""
    known = field in SIZES or field in {"longest", "adapters"}  # adapters are merged into weights
    assert known or any(field in choices for choices in KINDS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_computed_from_what_a_graph_hands_out(exported: Exported, kind: str) -> None:
    """Queries, keys and bias give the naive encoder's scores, with scale, order and windows of each layer."""
    encoder, run = exported(kind)
    config, reference = encoder.config, naive(encoder)
    layers, heads = config.attending, (config.num_heads - 1, 0)
    want = Want(attention=AttentionWant(layers, heads, weights="score"))
    ids = np.concatenate(SEQUENCES)
    starts = np.array([0, *accumulate(map(len, SEQUENCES))])
    batch = Batch(ids, np.zeros_like(ids), starts, (want,) * len(SEQUENCES))
    padded = PaddedBatch(
        batch, range(len(SEQUENCES)), choose_fetches(want, 20, config.num_layers), 23, config
    )
    outputs = run.session.run(padded.outputs, padded.feed())
    taken = padded.take(dict(zip(padded.outputs, outputs, strict=True)), Heads(NUMPY, ()), Progress())
    for output, sequence in zip(taken, SEQUENCES, strict=True):
        states, _ = reference(sequence)
        assert output.attention is not None
        for layer, found in zip(layers, output.attention, strict=True):
            expected = reference.scores(layer, states[layer])[list(heads)]
            seen = np.isfinite(expected)
            assert relative_distance(found[seen], expected[seen]) < 2e-5
            assert np.all(found[~seen] == -np.inf)


@pytest.mark.parametrize("kind", ["bert", "plain"])
def test_queries_and_keys_are_those_of_the_maps(exported: Exported, kind: str) -> None:
    """The softmax of q·k / √D is what is looked at."""
    _, run = exported(kind)
    outputs = run(run.everything(run.feeds([SEQUENCES[2]])))
    for layer in range(run.layers):
        q, k = outputs[graph.queries(layer)][0], outputs[graph.keys(layer)][0]
        scores = q.astype(float) @ k.astype(float).swapaxes(1, 2) / np.sqrt(q.shape[-1])
        assert distance(softmax(scores), outputs[graph.attention(layer)][0]) < 2e-5


def test_rotary_queries_and_keys_are_turned(exported: Exported) -> None:
    """Whoever multiplies the queries and keys of a graph need not know how it tells positions."""
    _, run = exported("rotary")
    outputs = run(run.everything(run.feeds([SEQUENCES[2]])))
    q, k = outputs[graph.queries(0)][0].astype(float), outputs[graph.keys(0)][0].astype(float)
    position = np.arange(q.shape[1])
    hidden = abs(position[:, None] - position) > 2
    scores = np.where(hidden, -np.inf, q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]))
    assert distance(softmax(scores), outputs[graph.attention(0)][0]) < 2e-5


@pytest.mark.parametrize("kind", ["paper", "rotary", "relative", "per layer", "alibi", "disentangled"])
def test_a_graph_takes_any_length_that_its_positions_do(exported: Exported, kind: str) -> None:
    """What was traced with a few tokens runs three hundred."""
    encoder, run = exported(kind)
    ids = [i * 5 % 13 for i in range(300)]
    states, maps = naive(encoder)(ids)
    outputs = run(run.everything(run.feeds([ids])))
    assert relative_distance(outputs[graph.state(2)], states[2]) < 2e-5
    assert distance(outputs[graph.attention(1)][0], maps[1]) < 2e-5


def test_the_longest_sequence_of_learned_positions_runs(exported: Exported) -> None:
    """40 positions are 40 tokens, with both segments."""
    encoder, run = exported("bert")
    ids, segments = [i % 13 for i in range(40)], [0] * 15 + [1] * 25
    feeds = run.everything(run.feeds([ids]))
    feeds[graph.TOKEN_TYPE_IDS] = np.array([segments])
    outputs, (states, maps) = run(feeds), naive(encoder)(ids, segments)
    assert relative_distance(outputs[graph.state(2)], states[2]) < 2e-5
    assert distance(outputs[graph.attention(1)][0], maps[1]) < 2e-5


def test_a_model_of_one_segment_reads_both_texts_of_a_pair_as_that_one(exported: Exported) -> None:
    """Segment ids that it does not embed change nothing."""
    _, run = exported("rotary")
    feeds = run.everything(run.feeds([[1, 2, 3]]))
    pair = {**feeds, graph.TOKEN_TYPE_IDS: np.array([[0, 1, 1]])}
    assert distance(run(feeds)[graph.state(2)], run(pair)[graph.state(2)]) == 0


def test_what_is_not_asked_for_is_empty(exported: Exported) -> None:
    """Empty lists give outputs without a token, head or row."""
    _, run = exported("bert")
    outputs = run(run.feeds(SEQUENCES))
    assert {output.size for output in outputs.values()} == {0}


def test_lists_choose(exported: Exported) -> None:
    """Tokens, heads and rows come as they are listed, in any order and as often as they are."""
    _, run = exported("relative")
    feeds = run.feeds(SEQUENCES)
    all_of_it = run(run.everything(feeds))
    feeds[graph.tokens(1)] = np.array([43, 2, 2])
    feeds[graph.heads(1)], feeds[graph.rows(1)] = np.array([3, 0]), np.array([5, 5, 1])
    feeds[graph.pair_heads(0)], feeds[graph.norm_heads(0)] = np.array([2]), np.array([1, 1])
    chosen = run(feeds)
    assert distance(chosen[graph.state(1)], all_of_it[graph.state(1)][[43, 2, 2]]) < 1e-5
    map_ = all_of_it[graph.attention(1)][:, [3, 0]][:, :, [5, 5, 1]]
    assert distance(chosen[graph.attention(1)], map_) < 1e-6
    assert distance(chosen[graph.queries(0)], all_of_it[graph.queries(0)][:, [2]]) < 1e-5
    assert distance(chosen[graph.keys(0)], all_of_it[graph.keys(0)][:, [2]]) < 1e-5
    assert distance(chosen[graph.value_norms(0)], all_of_it[graph.value_norms(0)][:, [1, 1]]) < 1e-5
    assert chosen[graph.state(0)].size == chosen[graph.attention(0)].size == 0


@pytest.mark.parametrize(
    "kind",
    [*("bert", "paper", "relative", "per layer", "alibi", "disentangled", "heads by layer", "convolutions")],
)
def test_a_graph_can_end_early(exported: Exported, kind: str) -> None:
    """With one cell after the first layer its map and the state before it are as ever."""
    _, run = exported(kind)
    feeds = run.everything(run.feeds(SEQUENCES))
    whole = run(feeds)
    feeds[graph.cells(0)] = np.zeros((1, 1), np.int64)
    later = graph.layer_lists(1) if 1 in run.attending else []
    feeds |= dict.fromkeys((graph.tokens(1), graph.tokens(2), *later), NOTHING)
    feeds[graph.cells(1)] = np.zeros((1, 1), np.int64)
    ended = run(feeds)
    for name in (graph.state(0), *graph.layer_outputs(0, graph.by_distance(run.config))):
        assert distance(ended[name], whole[name]) < 1e-5
    assert all(ended[name].size == 0 for name in (graph.state(2), graph.attention(1)) if name in ended)


@pytest.mark.parametrize(
    "kind",
    [
        *("bert", "paper", "rotary", "relative", "per layer", "alibi", "disentangled"),
        *("heads by layer", "convolutions"),
    ],
)
def test_some_sequences_can_go_on_alone(exported: Exported, kind: str) -> None:
    """Cells leave sequences and columns out after a layer; what goes on is as it would have been."""
    encoder, run = exported(kind)
    feeds = run.everything(run.feeds(SEQUENCES))
    length = feeds[graph.INPUT_IDS].shape[1]
    stay = [3, 1]  # the longest of them has 7 tokens
    feeds[graph.cells(0)] = (np.array(stay)[:, None] * length + np.arange(7)).astype(np.int64)
    feeds[graph.cells(1)] = np.arange(14).reshape(2, 7)
    feeds |= {graph.rows(1): np.arange(7)} if 1 in run.attending else {}
    feeds[graph.tokens(1)] = feeds[graph.tokens(2)] = np.arange(14)
    outputs = run(feeds)
    for row, sequence in enumerate(stay):
        ids = SEQUENCES[sequence]
        states, maps = naive(encoder)(ids)
        found = outputs[graph.state(2)].reshape(2, 7, -1)[row, : len(ids)]
        assert relative_distance(found, states[2]) < 2e-5
        if 1 in run.attending:
            assert distance(outputs[graph.attention(1)][row, :, : len(ids), : len(ids)], maps[1]) < 2e-5


def test_float16_is_in_the_products_alone(tmp_path: Path) -> None:
    """Products in float16 move a state by a thousandth; inputs and outputs are those of float32."""
    encoder = encoder_of("plain")
    states, maps = naive(encoder)(SEQUENCES[2])
    encoder.reduce_precision(torch.float16)
    run = ExportedGraph(write_graph(encoder, tmp_path, {}), encoder.config)
    outputs = run(run.everything(run.feeds([SEQUENCES[2]])))
    assert {output.dtype for output in outputs.values()} == {np.dtype(np.float32)}
    assert 1e-6 < relative_distance(outputs[graph.state(1)], states[1]) < 5e-3
    assert 1e-6 < distance(outputs[graph.attention(0)][0], maps[0]) < 5e-3
    stored = {i.name: i.data_type for i in onnx.load(tmp_path / GRAPH).graph.initializer}
    halves = {name for name, kind in stored.items() if kind == onnx.TensorProto.FLOAT16}
    assert "layers.0.attention.query.bias" in halves
    assert not {name for name in halves if "norm" in name or "embeddings" in name}


# ------------------------------------------------------------------------------------------ the files


@pytest.mark.parametrize(
    ("kind", "further"),
    [
        ("bert", []),
        *((kind, [graph.position_bias]) for kind in ("relative", "alibi")),
        ("disentangled", [graph.position_keys, graph.position_queries]),
        ("shared projections", [graph.position_queries]),
        ("convolutions", []),
    ],
)
def test_a_graph_has_the_names_and_the_format_that_its_readers_know(
    exported: Exported, kind: str, further: list[Callable[[int], str]]
) -> None:
    """Inputs and outputs are those of `model/onnx/names.py`, in order; the metadata has the format."""
    _, run = exported(kind)
    assert run.inputs == graph.input_names(run.config)
    assert run.outputs == graph.output_names(run.config)
    assert graph.by_distance(run.config) == further
    attends = [f"heads_{layer}" in run.inputs and f"queries_{layer}" in run.outputs for layer in (0, 1)]
    assert attends == [True, kind != "convolutions"]
    assert ("sequence_mask" in run.inputs) == (kind == "convolutions")
    expected = {graph.FORMAT_KEY: graph.FORMAT, "made.for": "tests"}
    assert run.session.get_modelmeta().custom_metadata_map == expected


def test_a_file_says_nothing_of_where_it_was_made(exported: Exported) -> None:
    """No path, no source line, no stack trace and no note of the tracer is in the bytes."""
    for kind in KINDS:
        path = exported(kind)[1].path
        content = path.read_bytes()
        home, program = Path.home(), Path(__file__).parents[2]
        places = [str(place) for place in (home, program, path.parent, sys.prefix)]
        for trace in (*places, ".py", "File ", "torch.export", "pkg."):
            assert trace.encode() not in content
        model = onnx.load(path, load_external_data=False)
        assert {(o.domain, o.version) for o in model.opset_import} == {("", OPSET)}
        assert model.producer_name == "headlight"


def test_the_weights_lie_beside_the_graph(exported: Exported) -> None:
    """Every table is in the second file, named without a folder, where a runtime can map it."""
    path = exported("bert")[1].path
    model = onnx.load(path, load_external_data=False)
    places = {i.name: {e.key: e.value for e in i.external_data} for i in model.graph.initializer}
    assert places["embeddings.token"]["location"] == WEIGHTS
    assert {place["location"] for place in places.values() if place} == {WEIGHTS}
    assert sorted(path.name for path in path.parent.iterdir()) == [GRAPH, WEIGHTS]
