"""What a sequence needs of a graph follows from what it must return, and is no more than that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.choices import Axis
from model.contract import Aggregate, AttentionWant, ChunksWant, SentenceWant, SummaryWant, Want, Weights
from model.onnx import fetches
from model.onnx.fetches import Fetches, LayerHeads


def choose(want: Want, length: int = 64) -> Fetches:
    """What is fetched for a sequence that is not long."""
    return fetches.choose_fetches(want, length, layers=6)


WORDS = Axis((1, 0), tokens=(1, 2, 3), starts=(0, 2))
"""Two words, of the pieces 1 and 2, and of 3."""


def observe(
    layers: tuple[int, ...] = (2, 0, 2),
    heads: tuple[int, ...] = (3, 1, 1),
    weights: Weights = "probability",
    aggregate: Aggregate = "none",
    queries: Axis | None = None,
    keys: Axis | None = None,
) -> Want:
    return Want(attention=AttentionWant(layers, heads, weights, aggregate, queries, keys))


@pytest.mark.parametrize(
    ("want", "depth"),
    [
        (Want(), 0),
        (Want(token_layers=(0,)), 0),
        (Want(token_layers=(1, 3, 0)), 3),
        (Want(sentence=SentenceWant(layers=(4, 2))), 4),
        (Want(sentence=SentenceWant(layers=(1,)), token_layers=(2,)), 2),
        (Want(token_layers=(1,), heads=(ChunksWant(((0, 1),)),)), 6),
        (observe((0,)), 0),
        (observe((4, 1)), 4),
        (observe((3,), aggregate="rollout"), 3),
        (Want(summary=SummaryWant((2, 1), (0,), ())), 2),
        (Want(token_layers=(1,), attention=AttentionWant((3,), (0,))), 3),
        (Want(token_layers=(5,), summary=SummaryWant((3,), (0,), ())), 5),
    ],
)
def test_a_graph_runs_as_deep_as_the_deepest_want(want: Want, depth: int) -> None:
    """Hidden state i takes i whole layers, and so does observing layer i, whose rest is not run."""
    assert choose(want).depth == depth


@pytest.mark.parametrize(
    "want",
    [
        Want(),
        Want(token_layers=(3, 1)),
        Want(sentence=SentenceWant(("max",), (2,), normalize=True, dimensions=3, skip=1), token_layers=(3,)),
    ],
)
def test_states_need_no_attention(want: Want) -> None:
    """Nothing of the attention is chosen for, so that it costs nothing."""
    assert choose(want) == Fetches(depth=choose(want).depth)


def test_maps_are_taken_as_the_graph_gives_them() -> None:
    """Each layer and head once and in order, however often it is listed; all rows unless some are listed."""
    assert choose(observe()).maps == (LayerHeads(0, (1, 3), None), LayerHeads(2, (1, 3), None))
    assert (choose(observe()).pairs, choose(observe()).norms) == ((), ())


@pytest.mark.parametrize(
    ("queries", "rows"), [(None, None), (Axis((6, 2, 6)), (2, 6)), (Axis((0,)), (0,)), (WORDS, None)]
)
def test_only_rows_that_are_listed_are_fetched(queries: Axis | None, rows: tuple[int, ...] | None) -> None:
    """All of them for words, whose tokens differ from text to text; columns change nothing."""
    for keys in (None, Axis((5,)), WORDS):
        assert [maps.rows for maps in choose(observe(queries=queries, keys=keys)).maps] == [rows, rows]


def test_value_norms_are_fetched_beside_the_maps() -> None:
    """Of the same layers and heads."""
    chosen = choose(observe(weights="value_norm"))
    assert chosen.norms == (LayerHeads(0, (1, 3)), LayerHeads(2, (1, 3)))
    assert chosen.maps == choose(observe()).maps
    assert chosen.pairs == ()


@pytest.mark.parametrize("queries", [None, Axis((6, 2))])
def test_scores_and_aggregates_are_made_of_queries_and_keys(queries: Axis | None) -> None:
    """No map of all heads is ever handed out for them."""
    pairs = (LayerHeads(0, (1, 3)), LayerHeads(2, (1, 3)))
    for weights, aggregate in (("score", "none"), ("score", "mean"), ("probability", "max")):
        chosen = choose(observe(weights=weights, aggregate=aggregate, queries=queries))  # type: ignore[arg-type]
        assert chosen == Fetches(2, pairs=pairs)
    merged = choose(observe(weights="value_norm", aggregate="mean", queries=queries))
    assert merged == Fetches(2, pairs=pairs, norms=pairs)


def test_a_rollout_fetches_every_layer_below() -> None:
    """From layer 0 to the last that is listed."""
    chosen = choose(observe((2, 1), aggregate="rollout"))
    assert chosen == Fetches(2, pairs=(LayerHeads(0, (1, 3)), LayerHeads(1, (1, 3)), LayerHeads(2, (1, 3))))


def test_statistics_are_made_of_queries_and_keys() -> None:
    """Each layer and head once; which tokens are special is not the graph's to know."""
    chosen = choose(Want(summary=SummaryWant((2, 0, 2), (3, 0, 3), (0, 5))))
    assert chosen == Fetches(2, pairs=(LayerHeads(0, (0, 3)), LayerHeads(2, (0, 3))))
    assert chosen == choose(Want(summary=SummaryWant((0, 2), (0, 3), (1,))))


def test_what_both_need_is_fetched_once() -> None:
    """Statistics and aggregated maps share queries and keys: in a layer of both, of the heads of either."""
    summary = SummaryWant((1, 2), (0, 2), ())
    aggregated = Want(attention=AttentionWant((1, 0), (2, 3), aggregate="mean"), summary=summary)
    assert choose(aggregated) == Fetches(
        2, pairs=(LayerHeads(0, (2, 3)), LayerHeads(1, (0, 2, 3)), LayerHeads(2, (0, 2)))
    )
    plain = Want(attention=AttentionWant((1,), (3,)), summary=summary)
    assert choose(plain) == Fetches(
        2, maps=(LayerHeads(1, (3,), None),), pairs=(LayerHeads(1, (0, 2)), LayerHeads(2, (0, 2)))
    )


NUMBERS = st.lists(st.integers(0, 5), min_size=1, max_size=5).map(tuple)


@given(NUMBERS, NUMBERS, NUMBERS, st.sampled_from(["none", "mean", "rollout"]))
def test_the_order_in_which_things_are_listed_changes_nothing(
    layers: tuple[int, ...], heads: tuple[int, ...], rows: tuple[int, ...], aggregate: Aggregate
) -> None:
    """Those that need the same run together, whichever way they put it."""

    def listed(*, once: bool) -> Want:
        def way(numbers: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(sorted(set(numbers))) if once else numbers

        attention = AttentionWant(way(layers), way(heads), aggregate=aggregate, queries=Axis(way(rows)))
        return Want(None, way(layers), attention, SummaryWant(way(layers), way(rows), ()))

    assert choose(listed(once=True)) == choose(listed(once=False))
    assert len({choose(listed(once=True)), choose(listed(once=False))}) == 1


def test_maps_that_are_too_many_are_computed_from_queries_and_keys() -> None:
    """Twelve layers of twelve heads of 512 tokens would be 151 MB at once; one row of each is not much."""
    every = tuple(range(12))
    whole, row = (AttentionWant(every, every, queries=axis) for axis in (None, Axis((0,))))
    assert len(choose(Want(attention=whole), 128).maps) == 12
    chosen = choose(Want(attention=whole), 512)
    assert (chosen.maps, len(chosen.pairs)) == ((), 12)
    assert len(choose(Want(attention=row), 512).maps) == 12
