"""Attention in numpy, from what a graph hands out, is that of the definitions and that of PyTorch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.arrays import NUMPY, NumpyOperations, Operations
from model.choices import Axis
from model.contract import Aggregate, AttentionWant, Output, SummaryWant, Weights
from model.encoder.attention import SelfAttention
from model.encoder.config import EncoderConfig
from model.inspection.layer import LayerAttention, read_weights
from model.inspection.maps import MapObserver
from model.inspection.rollout import RolloutObserver
from model.inspection.statistics import StatisticsObserver
from model.onnx import graph_layer
from model.onnx.graph_layer import FetchedHeads, GraphLayer, find, softmax
from model.pytorch.tensor_layer import TensorLayer
from model.pytorch.tensor_operations import TensorOperations
from tests.references import encoder as reference
from tests.references import measures
from tests.references.comparing import distance, relative_distance
from tests.support.product import Array, assert_summary

LAYERS, HEADS, SIZE = 3, 4, 8
EVERY = slice(0, 1)
"""The only sequence."""


@cache
def of_torch(length: int) -> list[TensorLayer]:
    """Random layers of one sequence."""
    config = EncoderConfig(
        vocab_size=5,
        hidden_size=HEADS * SIZE,
        num_layers=1,
        num_heads=HEADS,
        intermediate_size=8,
        positions="none",
    )
    made = []
    for number in range(LAYERS):
        generator = torch.Generator().manual_seed(1000 * length + number)
        attention = SelfAttention(config)
        shape = attention.output.weight.shape
        attention.output.weight.data = torch.randn(shape, generator=generator)
        q, k, v = torch.randn(3, 1, length, HEADS, SIZE, generator=generator)
        made.append(TensorLayer(attention, 2 * q, k, v, None))
    return made


def scores(layer: TensorLayer) -> Array:
    """Scaled dot products by the formula, (H, N, N), in float64."""
    q, k = (x[0].double().numpy().transpose(1, 0, 2) for x in (layer.q, layer.k))
    return np.asarray(q @ k.swapaxes(1, 2) / np.sqrt(SIZE))


def norms(layer: TensorLayer) -> Array:
    """The length of what each token adds in each head, (H, N), with all its components written out."""
    by_head = layer.attention.output.weight.double().numpy().T.reshape(HEADS, SIZE, -1)  # (H, D, C)
    added = np.einsum("nhd,hdc->hnc", layer.v[0].double().numpy(), by_head)
    return np.asarray(np.linalg.norm(added, axis=-1))


def handed_out(layer: TensorLayer, heads: list[int], rows: list[int] | None, *, maps: bool) -> GraphLayer:
    """What a graph gives of these heads and rows: their weights, or their queries and keys."""
    numbers = np.array(heads, np.int64)
    listed_norms = FetchedHeads(numbers, (norms(layer)[heads].astype(np.float32),))
    if maps:
        weights = reference.softmax(scores(layer))[heads].astype(np.float32)
        some = weights if rows is None else weights[:, rows]
        listed_rows = None if rows is None else np.array(rows, np.int64)
        return GraphLayer(maps=FetchedHeads(numbers, (some,)), rows=listed_rows, norms=listed_norms)
    q, k = (x[0].numpy().transpose(1, 0, 2)[heads].copy() for x in (layer.q, layer.k))
    return GraphLayer(pairs=FetchedHeads(numbers, (q, k)), norms=listed_norms)


def some_of(top: int) -> st.SearchStrategy[list[int]]:
    """Sorted, distinct numbers below `top`."""
    return st.sets(st.integers(0, top - 1), min_size=1).map(sorted)


# ------------------------------------------------------------------------------------------- blocks


@given(st.data(), st.sampled_from([1, 2, 9, 31]), st.booleans())
def test_blocks_are_those_of_the_formula(data: st.DataObject, length: int, maps: bool) -> None:
    """Of any heads and rows among those that were handed out, as lists and as slices of neighbours."""
    layer = of_torch(length)[0]
    heads, rows = data.draw(some_of(HEADS)), data.draw(some_of(length))
    made = handed_out(layer, heads, rows, maps=maps)
    chosen_heads, chosen_rows = (
        data.draw(st.sets(st.sampled_from(x), min_size=1).map(sorted)) for x in (heads, rows)
    )
    probability = reference.softmax(scores(layer))
    expected = {
        "score": scores(layer),
        "probability": probability,
        "value_norm": probability * norms(layer)[:, None, :],
    }
    for kind in ("probability", "value_norm") if maps else ("probability", "value_norm", "score"):
        block = read_weights(made, kind, EVERY, np.array(chosen_heads), np.array(chosen_rows))
        assert block.dtype == np.float32
        assert relative_distance(block, expected[kind][np.ix_(chosen_heads, chosen_rows)][None]) <= 1e-5
    head, row = chosen_heads[0], chosen_rows[0]
    neighbours = read_weights(made, "probability", EVERY, slice(head, head + 1), slice(row, row + 1))
    assert distance(neighbours, probability[head, row][None, None, None]) <= 1e-6


KINDS = ("position_keys", "position_queries")


@given(
    st.data(),
    st.sampled_from([1, 2, 9]),
    st.sampled_from([1, 2, 4, 512]),
    st.sampled_from([["position_keys"], ["position_queries"], [*KINDS]]),
)
def test_scores_have_the_products_with_positions(
    data: st.DataObject, length: int, square: int, kinds: list[str]
) -> None:
    """Queries and keys are compared with the vectors of their distance, however many pairs at a time."""
    layer = of_torch(length)[0]
    heads, rows = data.draw(some_of(HEADS)), data.draw(some_of(length))
    shape = (2, HEADS, SIZE, 2 * length - 1)
    both = np.random.default_rng(length).normal(size=shape).astype(np.float32)
    vectors = dict(zip(KINDS, both, strict=True))
    q, k = (x[0].double().numpy().transpose(1, 0, 2) for x in (layer.q, layer.k))
    expected = scores(layer)
    for i, j in np.ndindex(length, length):
        for kind, content in zip(KINDS, (q[:, i], k[:, j]), strict=True):
            if kind in kinds:
                vector = vectors[kind][:, :, length - 1 + j - i]
                expected[:, i, j] += (content * vector).sum(-1) / np.sqrt(SIZE)
    listed: dict[str, Any] = {kind: FetchedHeads(np.array(heads), (vectors[kind][heads],)) for kind in kinds}
    made = replace(handed_out(layer, heads, None, maps=False), **listed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_layer, "_SQUARE", square)
        (got,) = made.scores(EVERY, np.array(heads), np.array(rows))
    assert got.dtype == np.float32
    assert relative_distance(got, expected[np.ix_(heads, rows)]) <= 1e-5


@given(
    st.data(),
    st.sampled_from([1, 2, 9]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([None, 1.0, 0.07]),
)
def test_scores_have_bias_order_window_and_scale(
    data: st.DataObject, length: int, biased: bool, causal: bool, window: int, scale: float | None
) -> None:
    """Of any heads and rows, pair by pair; a hidden key has the lowest score, and no weight at all."""
    layer = of_torch(length)[0]
    heads, rows = data.draw(some_of(HEADS)), data.draw(some_of(length))
    biases = np.random.default_rng(length).normal(size=(HEADS, 2 * length - 1)).astype(np.float32)
    expected = scores(layer) * (1 if scale is None else scale * np.sqrt(SIZE))
    hidden = np.zeros((length, length), bool)
    for i, j in np.ndindex(length, length):
        expected[:, i, j] += biases[:, length - 1 + j - i] if biased else 0
        hidden[i, j] = (causal and j > i) or (window > 0 and abs(i - j) > window)
    made = replace(
        handed_out(layer, heads, None, maps=False),
        bias=FetchedHeads(np.array(heads), (biases[heads],)) if biased else None,
        scale=scale,
        causal=causal,
        window=window,
    )
    chosen = data.draw(st.sets(st.sampled_from(heads), min_size=1).map(sorted))
    start = data.draw(st.integers(0, length - 1))
    lowest = np.finfo(np.float32).min
    for some_rows in (np.array(rows), slice(start, length)):
        (got,) = made.scores(EVERY, np.array(chosen), some_rows)
        unseen = hidden[some_rows]
        assert got.dtype == np.float32
        assert got.shape == (len(chosen), len(unseen), length)
        assert relative_distance(got[:, ~unseen], expected[chosen][:, some_rows][:, ~unseen]) <= 1e-5
        assert (got[:, unseen] == lowest).all()
        (weights,) = made.probabilities(EVERY, np.array(chosen), some_rows)
        masked = np.where(unseen, -np.inf, expected[chosen][:, some_rows])
        assert distance(weights, reference.softmax(masked)) <= 1e-5
        assert (weights[:, unseen] == 0).all()


def test_scores_of_what_was_not_handed_out_are_an_error() -> None:
    """Weights alone have no scores to give."""
    made = handed_out(of_torch(9)[0], [0, 1], None, maps=True)
    with pytest.raises(ValueError, match="neither weights nor queries and keys were fetched"):
        made.scores(EVERY, slice(0, 1), slice(0, 9))


@given(some_of(40), st.data())
def test_a_position_is_found_in_a_sorted_list(listed: list[int], data: st.DataObject) -> None:
    """Where it stands, for lists and for neighbours that follow each other in the list."""
    wanted = data.draw(st.lists(st.sampled_from(listed)))
    assert np.array(listed)[find(np.array(listed), np.array(wanted, int))].tolist() == wanted
    start = data.draw(st.sampled_from(listed))
    stop = start
    while stop in listed:
        stop += 1
    assert listed[find(np.array(listed), slice(start, stop))] == list(range(start, stop))


def test_softmax_stays_finite() -> None:
    """Of scores as large as float32 has them; those of minus infinity weigh nothing."""
    rows = np.array([[1e38, 1e38, -1e38], [0.0, -np.inf, 0.0], [-1e38, -1e38, -1e38]], np.float32)
    assert distance(softmax(rows), [[0.5, 0.5, 0], [0.5, 0, 0.5], [1 / 3] * 3]) <= 1e-6


# --------------------------------------------------------------------------------------------- maps


def axes(length: int) -> st.SearchStrategy[Axis | None]:
    """All tokens, some, or some words of up to three pieces, in any order and repeated."""
    words = [tuple(range(start, min(start + 1 + start % 3, length))) for start in range(0, length, 3)]

    def of_words(chosen: list[int]) -> Axis:
        distinct = sorted(set(chosen))
        starts = [0, *accumulate(len(words[i]) for i in distinct)]
        return Axis(tuple(chosen), tuple(t for i in distinct for t in words[i]), tuple(starts[:-1]))

    tokens = st.lists(st.integers(0, length - 1), min_size=1, max_size=5)
    chosen_words = st.lists(st.integers(0, len(words) - 1), min_size=1, max_size=4)
    return st.none() | tokens.map(lambda chosen: Axis(tuple(chosen))) | chosen_words.map(of_words)


THUMBNAILS = st.tuples(st.none(), st.integers(1, 9))


@st.composite
def wants(draw: st.DrawFn, length: int) -> AttentionWant:
    """Any kind of map that may be asked for."""
    weights: Weights = draw(st.sampled_from(["probability", "score", "value_norm"]))
    aggregate: Aggregate = draw(st.sampled_from(["none", "mean", "max", "rollout"]))
    probability = weights == "probability"
    top_k, thumbnail = draw(st.tuples(st.none() | st.integers(1, 4), st.none()) | THUMBNAILS)
    return AttentionWant(
        layers=tuple(draw(st.lists(st.integers(0, LAYERS - 1), min_size=1, max_size=4))),
        heads=tuple(draw(st.lists(st.integers(0, HEADS - 1), min_size=1, max_size=5))),
        weights=weights if aggregate != "rollout" else "probability",
        aggregate=aggregate,
        queries=draw(axes(length)),
        keys=draw(axes(length)),
        renormalize=draw(st.booleans()) if probability else False,
        top_k=top_k,
        thumbnail=thumbnail,
        dtype=draw(st.sampled_from(["float32", "float16", "uint8"])) if probability else "float32",
    )


def observe(
    want: AttentionWant, layers: Sequence[LayerAttention], length: int, ops: Operations = NUMPY
) -> Output:
    observer = (RolloutObserver if want.aggregate == "rollout" else MapObserver)(want, 1, length, ops)
    for number in observer.layers:
        observer.observe(number, layers[number])
    return observer.output(0)


def summarize(
    want: SummaryWant, layers: Mapping[int, LayerAttention], length: int
) -> dict[str, NDArray[np.float32]]:
    observer = StatisticsObserver(want, 1, length, NUMPY)
    for number in observer.layers:
        observer.observe(number, layers[number])
    return observer.output(0)


@given(st.data(), st.sampled_from([1, 2, 7, 31]), st.booleans())
def test_maps_are_those_of_pytorch(data: st.DataObject, length: int, maps: bool) -> None:
    """Whatever is asked for, from weights and from queries and keys; rounded maps within a step."""
    want = data.draw(wants(length))
    ready = maps and want.weights != "score"
    made = [handed_out(layer, list(range(HEADS)), None, maps=ready) for layer in of_torch(length)]
    ours = observe(want, made, length)
    theirs = observe(want, of_torch(length), length, TensorOperations(torch.device("cpu")))
    assert ours.finite
    assert (ours.attention is None, ours.top is None) == (theirs.attention is None, theirs.top is None)
    assert (ours.thumbnails is None) == (want.thumbnail is None) == (theirs.thumbnails is None)
    for one, other in ((ours.attention, theirs.attention), (ours.thumbnails, theirs.thumbnails)):
        if one is not None and other is not None:
            assert one.dtype == want.dtype
            close = distance if want.dtype == "uint8" else relative_distance
            assert close(one, other) <= {"float32": 1e-5, "float16": 1e-3, "uint8": 1}[want.dtype]
    if ours.top is not None and theirs.top is not None:
        assert relative_distance(ours.top.weights, theirs.top.weights) <= 1e-5
        assert relative_distance(ours.top.residual, theirs.top.residual) <= 1e-5


@pytest.mark.parametrize("aggregate", ["none", "mean", "max", "rollout"])
def test_maps_larger_than_a_block_are_cut_and_joined(aggregate: Aggregate) -> None:
    """One head's map of 800 tokens is: heads are then taken one by one, and rows in parts."""
    want = AttentionWant((0, 1), (3, 1, 1), aggregate=aggregate)
    whole = np.stack([reference.softmax(scores(layer))[[3, 1, 1]] for layer in of_torch(800)[:2]])
    steps = [(maps.mean(0) + np.eye(800)) / 2 for maps in whole]
    expected = {
        "none": whole,
        "mean": whole.mean(1),
        "max": whole.max(1),
        "rollout": steps[1] @ steps[0],
    }[aggregate]
    made = [handed_out(layer, [1, 3], None, maps=False) for layer in of_torch(800)]
    assert distance(observe(want, made, 800).attention, expected) <= 1e-5


# ------------------------------------------------------------------------------------------ summaries


@pytest.mark.parametrize("room", [None, 64, 1])
@pytest.mark.parametrize("length", [1, 2, 31, 33, 300])
def test_statistics_are_those_of_the_whole_map(
    length: int, room: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each as `measures` defines it on float64 maps, whatever a block has room for, down to single rows."""
    if room is not None:
        monkeypatch.setattr(NumpyOperations, "measured_at_once", room * length)
    special = tuple(sorted({0, length - 1}))
    listed, heads = (2, 0, 2), (3, 1, 1, 0)
    made = {n: handed_out(layer, [0, 1, 3], None, maps=False) for n, layer in enumerate(of_torch(length))}
    got = summarize(SummaryWant(listed, heads, special), made, length)
    whole = np.stack([reference.softmax(scores(of_torch(length)[n])) for n in listed])[:, heads]
    expected = measures.summary(whole, [i in special for i in range(length)])  # type: ignore[arg-type]
    assert_summary(got, expected)


def test_sharp_attention_has_no_negative_entropy() -> None:
    """Where one token has all the weight, rounding must not take the entropy below 0."""
    q = np.zeros((1, 40, SIZE), np.float32)
    q[0, :, 0] = 1000
    k = np.random.default_rng(0).normal(size=(1, 40, SIZE)).astype(np.float32)
    layer = GraphLayer(pairs=FetchedHeads(np.array([0]), (q, k)))
    got = summarize(SummaryWant((0,), (0,), ()), {0: layer}, 40)
    assert 0 <= got["entropy"].item() < 1e-3
    assert got["confidence"].item() == pytest.approx(1, abs=1e-3)
    assert got["special"].item() == 0
