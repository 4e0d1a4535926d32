"""`POST /attention`, over a real socket, against `transformers` and plain numpy."""

import re
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.contract.test_encode import LONG, PAIRS, TEXTS, assert_columns, run_reference
from tests.references.checkpoints import Reference
from tests.references.comparing import distance
from tests.support.backends import both_backends
from tests.support.serving import Json, Service

pytestmark = both_backends

Array = NDArray[np.float64]

EXACT = {"decimals": 9}
ROUNDING = 1e-9
TEXT = "the quick brown fox, unbelievably"
AXES = ["layer", "head", "query", "key"]


@pytest.fixture(scope="module")
def full(service: Service) -> Array:
    """Every map of TEXT, as served."""
    return np.array(service.attention(TEXT, **EXACT)["data"][0]["attention"])


@pytest.mark.parametrize("text", [*TEXTS[:8], "", *PAIRS])
def test_every_map_is_that_of_the_reference(service: Service, reference: Reference, text: Any) -> None:
    """All layers and heads of texts and pairs are within 1e-5 of `transformers`' eager attention."""
    columns, _, maps = run_reference(reference, text)
    size = len(columns["tokens"])
    assert maps.shape == (6, 12, size, size)
    answer = service.attention([text] if isinstance(text, str) else [list(text)], **EXACT)
    (item,) = answer["data"]
    assert answer["axes"] == AXES
    assert_columns(item, columns)
    assert distance(item["attention"], maps) <= 1e-5 + ROUNDING
    assert item["layers"] == list(range(6))
    assert item["heads"] == list(range(12))
    assert item["queries"] == item["keys"] == list(range(size))
    assert answer["usage"] == {"input_tokens": size}


def test_maps_of_a_text_that_was_cut(service: Service, reference: Reference) -> None:
    """At the model's limit the maps are those of the tokens that were run."""
    columns, _, maps = run_reference(reference, LONG)
    (item,) = service.attention(LONG, layers=[0, -1], heads=[3], **EXACT)["data"]
    assert_columns(item, columns)
    assert distance(item["attention"], maps[[0, 5]][:, [3]]) <= 1e-5 + ROUNDING


def test_rows_sum_to_one(full: Array) -> None:
    """A row is a query and its probabilities sum to 1, as long as nothing was left out."""
    assert distance(full.sum(-1), np.ones(full.shape[:-1])) <= 1e-6
    assert (full >= 0).all()


@pytest.mark.parametrize(
    "options",
    [
        {"layers": [2]},
        {"layers": [-1, 0, 0]},
        {"heads": [11, -12, 3, 3]},
        {"queries": [0]},
        {"queries": [-1, 2, 2, 0]},
        {"keys": [1, -2, 1]},
        {"layers": [5, 1], "heads": [0, 7], "queries": [4, 4], "keys": [3, 0]},
        {"layers": [1.0], "heads": "all", "queries": "all", "keys": [0.0]},
    ],
)
@pytest.mark.parametrize("aggregate", ["none", "mean", "max"])
def test_selections_and_aggregates_are_those_of_the_full_maps(
    service: Service, full: Array, options: dict[str, Any], aggregate: str
) -> None:
    """What is chosen is cut out of the full maps, in order and with duplicates, and named in the labels."""
    answer = service.attention(TEXT, aggregate=aggregate, **options, **EXACT)
    (item,) = answer["data"]
    sizes = dict(zip(("layers", "heads", "queries", "keys"), full.shape, strict=True))
    chosen = {
        name: list(range(size))
        if options.get(name, "all") == "all"
        else [int(i) % size for i in options[name]]
        for name, size in sizes.items()
    }
    expected = full[np.ix_(*chosen.values())]
    if aggregate != "none":
        expected = expected.mean(1) if aggregate == "mean" else expected.max(1)
        del chosen["heads"]
        assert "heads" not in item
    assert answer["axes"] == [axis for axis in AXES if axis != "head" or aggregate == "none"]
    assert {name: item[name] for name in chosen} == chosen
    # Products of other shapes round differently in float32.
    assert distance(item["attention"], expected) <= 1e-6 + 2 * ROUNDING


def test_the_columns_tell_the_whole_input_whatever_is_selected(
    service: Service, reference: Reference
) -> None:
    """Selecting rows and columns of the maps leaves the token columns whole."""
    columns, _, _ = run_reference(reference, TEXT)
    (item,) = service.attention(TEXT, queries=[1], keys=[2], layers=[0], heads=[0])["data"]
    assert_columns(item, columns)
    assert np.array(item["attention"]).shape == (1, 1, 1, 1)


def test_positions_count_in_each_input_by_itself(service: Service) -> None:
    """A negative position is the end of its own input."""
    first, second = service.attention(["one", "one two three"], queries=[-1], keys=[-1, 0])["data"]
    assert (first["queries"], first["keys"]) == ([2], [2, 0])
    assert (second["queries"], second["keys"]) == ([4], [4, 0])


@pytest.mark.parametrize("decimals", [1, 2, 3, 6, 7, 9])
def test_numbers_have_no_more_decimals_than_asked(service: Service, full: Array, decimals: int) -> None:
    """The text of every number has at most `decimals` decimals and is the nearest such number."""
    response = service.http.post("/attention", json={"inputs": TEXT, "decimals": decimals})
    (found,) = re.findall(r'"attention":(\[[-0-9.,e\[\]]*\])', response.text)
    numbers = re.findall(r"[-0-9.e]+", found)
    assert len(numbers) == full.size
    assert all(-Decimal(number).normalize().as_tuple().exponent <= decimals for number in numbers)  # type: ignore[operator]
    rounded = np.array([float(number) for number in numbers]).reshape(full.shape)
    assert distance(rounded, full) <= 0.53 * 10.0**-decimals + 2e-7


def test_six_decimals_are_the_default(service: Service) -> None:
    """Without `decimals` there are six."""
    default = service.http.post("/attention", json={"inputs": TEXT})
    six = service.http.post("/attention", json={"inputs": TEXT, "decimals": 6})
    assert default.content == six.content
    assert default.content != service.http.post("/attention", json={"inputs": TEXT, "decimals": 5}).content


def test_prompts_are_part_of_the_maps(service: Service, reference: Reference) -> None:
    """The prompt's tokens are run, and are rows and columns like the others."""
    _, _, maps = run_reference(reference, "Query: " + TEXT)
    (item,) = service.attention(TEXT, prompt="Query: ", **EXACT)["data"]
    assert distance(item["attention"], maps) <= 1e-5 + ROUNDING
    assert item["offsets"][:4] == [[0, 0], [0, 0], [0, 0], [0, 3]]


def test_several_inputs_come_back_in_their_order(service: Service, full: Array) -> None:
    """Each item has the maps of its own input."""
    answer: Json = service.attention(["short", TEXT, "", TEXT + " and more"], **EXACT)
    assert [item["index"] for item in answer["data"]] == [0, 1, 2, 3]
    assert distance(answer["data"][1]["attention"], full) <= 2e-6 + 2 * ROUNDING
    assert [len(item["keys"]) for item in answer["data"]] == [len(i["tokens"]) for i in answer["data"]]
