"""Chosen edges of `POST /attention`, others of each input, against the definitions."""

from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.test_attention_combinations import options_of_maps, pairs, singles
from tests.references.attention import groups_and_kept
from tests.references.comparing import distance
from tests.support.attention_answers import PAIR, SHORT, TEXT, Subject
from tests.support.backends import both_backends
from tests.support.serving import (
    NPZ,
    SAFETENSORS,
    Json,
    Service,
    answered,
    assert_problem,
    post,
    read_npz,
    read_safetensors,
)

pytestmark = both_backends

OTHERS: Json = {"layers": [0, 5], "heads": [3, 0]}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"heads": [3, 0, 3], "layers": [-1, 0, -1]},
        {"weights": "score", "layers": [0, 5]},
        {"weights": "value_norm", "layers": [3]},
        {"aggregate": "mean"},
        {"aggregate": "max", "weights": "score", "layers": [2, 1]},
        {"aggregate": "rollout"},
        {"renormalize": True, "weights": "value_norm", "layers": [1]},
        {"summary": True, "outputs": ["sentence"], "layers": [2]},
        {"level": "word"},
        {"level": "word", "aggregate": "rollout"},
        {"level": "word", "weights": "value_norm", "renormalize": True, "aggregate": "max"},
    ],
    ids=str,
)
def test_each_text_has_the_weights_of_its_own_edges(mini: Subject, options: Any) -> None:
    """In the order and as often as asked, negative positions from the end; a text may have none."""
    edges = [[[1, 2], [-1, 0], [1, 2], [0, -1], [3.0, 3]], [], [[2, 2], [4, 1]]]
    mini.check(TEXT, "one two", "one two three", edges=edges, **options)


@pytest.mark.parametrize("options", [{}, {"renormalize": True}, {"aggregate": "mean", "renormalize": True}])
@pytest.mark.parametrize("level", ["token", "word"])
def test_a_renormalized_row_is_all_that_special_tokens_leave(mini: Subject, level: str, options: Any) -> None:
    """A weight is the one in the whole map, so the keys of other edges do not matter to it."""
    edges = [[[1, 1]], [[2, 1], [1, 2], [-2, -2]]]
    mini.check(TEXT, SHORT, edges=edges, level=level, special_tokens="drop", **options)


def test_a_single_input_needs_no_list_around_its_edges(mini: Subject) -> None:
    """Of a text, of one in a list, and of a pair; with and without the list."""
    for text in (TEXT, PAIR):
        flat = mini.check(text, edges=[[2, 1], [-1, 3]], layers=[4])
        assert flat == mini.check(text, edges=[[[2, 1], [-1, 3]]], layers=[4])
    alone = answered(mini.service.http.post("/attention", json={"inputs": SHORT, "edges": [[1, 0]]}))
    assert alone["axes"] == ["layer", "head", "edge"]


def test_pairs_have_edges_between_their_texts(mini: Subject) -> None:
    """Positions count over both texts."""
    mini.check(PAIR, ("one", "two"), edges=[[[1, -2], [-2, 1]], [[1, 3], [3, 1]]])


@st.composite
def requests(draw: st.DrawFn, mini: Subject) -> tuple[list[Any], Json]:
    """Inputs and any legal options, with edges that each input has."""
    inputs = draw(st.one_of(singles, pairs))
    options = draw(options_of_maps(6, 12))
    for name in ("top_k", "thumbnail"):
        options.pop(name, None)
    edges = []
    for text in inputs:
        groups, kept = groups_and_kept(mini.trace(text), options)
        ends = [*kept, *(i - len(groups) for i in kept)]
        one = st.sampled_from(ends) if ends else st.nothing()
        edges.append(draw(st.lists(st.tuples(one, one).map(list), max_size=4)))
    return inputs, options | {"edges": edges}


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_edges_of_any_inputs_with_any_options(mini: Subject, data: st.DataObject) -> None:
    """All that goes together."""
    inputs, options = data.draw(requests(mini))
    mini.check(*inputs, **options)


@pytest.mark.parametrize("kind", [NPZ, SAFETENSORS])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_files_have_the_same_weights(mini: Subject, kind: str, dtype: str) -> None:
    """In (layers, heads, edges), in the type that was asked for."""
    body = {"inputs": [TEXT, SHORT], "edges": [[[1, 2], [3, 0]], [[1, 1]]], **OTHERS}
    expected = mini.check(TEXT, SHORT, edges=body["edges"], **OTHERS)
    response = mini.service.http.post(
        "/attention", json=body, params={"dtype": dtype}, headers={"Accept": kind}
    )
    assert response.status_code == 200, response.text
    arrays, answer = {NPZ: read_npz, SAFETENSORS: read_safetensors}[kind](response.content)
    assert answer["axes"] == ["layer", "head", "edge"]
    bound = {"float32": 1e-6, "float16": 5e-4, "uint8": 1 / 510 + 1e-6}[dtype]
    for index, (found, item) in enumerate(zip(answer["data"], expected, strict=True)):
        weights = arrays[f"{index}.attention"]
        assert found["edges"] == item["edges"]
        assert weights.shape == (2, 2, len(item["edges"]))
        assert weights.dtype == dtype
        exact = np.array(item["attention"])
        assert distance(weights.astype(np.float64) * answer.get("scale", 1.0), exact) <= bound


def test_lines_have_the_same_weights(mini: Subject) -> None:
    """Each line has its own edges."""
    options: Json = {"edges": [[[1, 2]], [[0, 1], [2, 1]]], **OTHERS}
    expected = mini.ask(TEXT, SHORT, **options)["data"]
    response = mini.service.http.post(
        "/attention",
        json={"inputs": [TEXT, SHORT], "decimals": 9, **options},
        headers={"Accept": "application/x-ndjson"},
    )
    lines = [httpx.Response(200, content=line).json() for line in response.text.splitlines()]
    assert sorted(lines[:-1], key=lambda item: item["index"]) == expected


@pytest.mark.parametrize(
    ("edges", "place", "said"),
    [
        ([[[0, 1], [5, 0]], [[0, 0]]], "edges.0.1.0", ("inputs.0", "5 tokens", "-5", "4")),
        ([[[0, 1]], [[0, -6]]], "edges.1.0.1", ("inputs.1", "5 tokens", "-5", "4")),
    ],
)
def test_a_position_beyond_an_input_is_named(
    service: Service, edges: Any, place: str, said: tuple[str, ...]
) -> None:
    """The input, the edge and its end, the value, and the limits."""
    problem = assert_problem(
        post(service, {"inputs": [SHORT, SHORT], "edges": edges}, "/attention"), 422, "invalid-request"
    )
    assert all(part in problem["detail"] for part in (place, *said))
    assert problem["allowed"] == [-5, 4]


def test_an_edge_of_a_dropped_token_is_named(service: Service) -> None:
    """As for queries and keys; of a single text the place has no number of an input."""
    body = {"inputs": SHORT, "edges": [[1, 2], [1, -1]], "special_tokens": "drop"}
    problem = assert_problem(post(service, body, "/attention"), 422, "invalid-request")
    assert "edges.1.1 is -1" in problem["detail"]
    assert problem["field"] == "inputs.0"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"edges": []}, "edges"),
        ({"edges": "all"}, "edges"),
        ({"edges": [[1, 2, 3]]}, "edges.0"),
        ({"edges": [[1, 2], 3]}, "edges.1"),
        ({"edges": [[1, 2], [1, 2.5]]}, "edges.1.1"),
        ({"edges": [[[1, 2]], [1, 2]]}, "edges.1.0"),
        ({"edges": [[[1, 2]], 7]}, "edges.1"),
        ({"edges": [[[1, True]], []]}, "edges.0.0.1"),
        ({"edges": [[[0, 1]] * 4097, []]}, "edges.0"),
        ({"edges": [[1, 2]]}, "edges"),
        ({"edges": [[[1, 2]]] * 3}, "edges"),
        ({"edges": [[], []], "queries": [0]}, "queries"),
        ({"edges": [[], []], "keys": [0]}, "keys"),
        ({"edges": [[], []], "top_k": 1}, "top_k"),
        ({"edges": [[], []], "thumbnail": 8}, "thumbnail"),
        ({"edges": [[], []], "maps": False, "summary": True}, "edges"),
    ],
    ids=str,
)
def test_edges_that_cannot_be_are_refused(service: Service, options: Any, field: str) -> None:
    """With the place of the fault, before anything runs."""
    problem = assert_problem(
        post(service, {"inputs": [SHORT, SHORT], **options}, "/attention"), 422, "invalid-request"
    )
    assert problem["field"] == field


def test_only_what_is_asked_counts_for_the_size(service: Service) -> None:
    """A whole map of a long text would be larger than a response may be; its edges are not."""
    text = "the man " * 120
    body: Json = {"inputs": [text] * 8, "edges": [[[1, 2]]] * 8}
    whole = post(service, {"inputs": body["inputs"]}, "/attention")
    assert whole.status_code == 413
    assert len(answered(post(service, body, "/attention"))["data"]) == 8
