"""The Python client's `explain`: the numbers of the service as arrays, data frames and coloured words."""

import asyncio
import importlib
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headlight_client import AsyncHeadlight, Explained, Headlight, HeadlightError
from tests.references.comparing import distance
from tests.references.fitted import write_fitted
from tests.support.serving import Service, answered, post, serve
from tests.support.stand_in import Reply, stand_in

pandas = importlib.import_module("pandas")

PAIRS = [("The cat sat on the mat.", "A <b>cat</b> was sitting."), ("a", "b")]
FILM = "What a wonderful film!"


@pytest.fixture(scope="module")
def moods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("fitted") / "mood"
    write_fitted(folder, tokens=False)
    with serve(model=folder) as started:
        yield started


@pytest.mark.parametrize("method", ["parts", "occlusion", "heads", "gradient"])
def test_its_numbers_are_those_of_the_service(plain: Service, method: str) -> None:
    """Columns, units and arrays, of every method."""
    shown = answered(post(plain, {"inputs": PAIRS, "method": method}, "/explain"))
    with Headlight(plain.url) as client:
        answer = client.explain(PAIRS, method=method)  # type: ignore[arg-type]
    assert (answer.method, answer.usage) == (method, shown["usage"])
    for item, expected in zip(answer, shown["data"], strict=True):
        assert isinstance(item, Explained)
        assert (item.tokens, item.score, item.function) == (expected["tokens"], expected["score"], "cosine")
        for name in ("baseline", "baseline_scores", "residual"):
            assert getattr(item, name) == expected.get(name)
            assert (name in expected) == (method == "gradient")
        for name in ("parts", "attributions", "heads"):
            array = getattr(item, name)
            assert (array is None) == (name not in expected)
            assert array is None or np.array_equal(array, np.array(expected[name], np.float32))
        if item.units is None:
            assert method == "heads"
            with pytest.raises(ValueError, match="has no units"):
                _ = item.by_unit
        else:
            for name, column in expected["units"].items():
                assert np.array_equal(getattr(item.units, name), column)
            assert item.by_unit.shape == (len(item.units),)


def test_parts_sum_to_the_score_on_either_side(plain: Service) -> None:
    """`by_unit` has the sums of rows and of columns."""
    with Headlight(plain.url) as client:
        (item,) = client.explain(PAIRS[:1])
    first = item.units.segment == 0  # type: ignore[union-attr]
    for side in (first, ~first):
        assert abs(item.by_unit[side].sum() - item.score) <= 1e-6
    frame = item.to_pandas()
    assert frame.shape == item.parts.shape  # type: ignore[union-attr]
    assert frame.loc["cat", "cat"] == frame.to_numpy()[2, 5]
    assert list(frame.index) == ["[CLS]", "The", "cat", "sat", "on", "the", "mat", ".", "[SEP]"]


def test_data_frames(moods: Service) -> None:
    """A row for each unit or head, with what it adds."""
    with Headlight(moods.url) as client:
        answer = client.explain([FILM, "I hated this film."])
        heads = client.explain(FILM, method="heads", target={"label": "negative"})
    frame = answer.to_pandas()
    assert list(frame) == ["index", "unit", "segment", "start", "end", "effect"]
    assert list(frame["unit"])[:5] == ["What", "a", "wonderful", "film", "!"]
    assert frame.iloc[2]["effect"] == answer[0].attributions[2]  # type: ignore[index]
    own = answer[1].to_pandas()
    assert list(own) == ["unit", "segment", "start", "end", "effect"]
    pandas.testing.assert_series_equal(
        own["effect"], frame[frame["index"] == 1]["effect"].reset_index(drop=True)
    )
    assert heads[0].label == "negative"
    assert heads[0].to_pandas().shape == (2, 4)
    assert list(heads.to_pandas()) == ["index", "layer", "head", "effect"]


def test_a_line_shows_what_it_is(moods: Service) -> None:
    with Headlight(moods.url) as client:
        (item,) = client.explain(FILM)
    pattern = (
        r"Explained\(index=0, tokens=7, attributions=float32\(5,\), score=[\d.]+, label='positive', units=5\)"
    )
    assert re.fullmatch(pattern, repr(item))


def test_a_notebook_shows_coloured_words(plain: Service, moods: Service) -> None:
    """The strongest word has the strongest colour; texts are no markup; heads are a grid."""
    with Headlight(moods.url) as client:
        (item,) = client.explain(FILM)
        (heads,) = client.explain(FILM, method="heads")
    page = item._repr_html_()
    assert re.sub("<.*?>", "", page) == f"positive {item.score:.4g}{FILM}"
    strongest = int(np.abs(item.by_unit).argmax())
    shares = [float(share) for share in re.findall(r"rgba\(\d+, \d+, \d+, ([\d.]+)\)", page)]
    assert shares[strongest] == max(shares) == 0.75
    reds = [colour == "220, 60, 40" for colour in re.findall(r"rgba\((\d+, \d+, \d+), ", page)]
    assert reds == (item.by_unit < 0).tolist()
    assert heads._repr_html_().count("<td ") == 8
    with Headlight(plain.url) as client:
        (pair,) = client.explain(PAIRS[:1])
    assert "<b>cat</b>" not in pair._repr_html_()
    assert pair._repr_html_().count("<p>") == 2


def test_an_error_counts_over_the_call(plain: Service) -> None:
    """As those of the other routes."""
    with Headlight(plain.url) as client, pytest.raises(HeadlightError) as caught:
        client.explain(["no pair"])
    assert (caught.value.status, caught.value.field) == (422, "inputs")


def test_interventions_are_those_of_the_service(plain: Service) -> None:
    """With numpy's vectors, on every route that has them."""
    vector = np.linspace(-1, 1, 384, dtype=np.float32)
    changes: list[dict[str, Any]] = [
        {"kind": "states", "layer": 2, "tokens": [1], "vector": vector, "add": True},
        {"kind": "heads", "layer": 3, "heads": np.array([0, 5])},
    ]
    sent = [{**changes[0], "vector": vector.tolist()}, {**changes[1], "heads": [0, 5]}]
    expected = plain.encode("The cat sat.", interventions=sent)["data"][0]
    with Headlight(plain.url) as client:
        (item,) = client.encode("The cat sat.", interventions=changes)
        (other,) = client.encode("The cat sat.")
        maps = client.attention("The cat sat.", layers=[5], interventions=changes)[0].attention
        ranked = client.rerank("a cat", ["The cat sat."], interventions=changes)
        compared = client.similarity(["a cat", "The cat sat."], interventions=changes)
    assert item.embedding is not None
    assert other.embedding is not None
    assert maps is not None
    assert distance(item.embedding, expected["embedding"]) <= 2e-6
    assert distance(item.embedding, other.embedding) > 1e-3
    shown = plain.attention("The cat sat.", layers=[5], interventions=sent, decimals=9)["data"][0]
    assert distance(maps, shown["attention"]) <= 2e-6
    assert abs(ranked[0].score - compared.similarities[0, 1]) <= 1e-5


def test_it_can_be_awaited(plain: Service) -> None:
    async def ask() -> Explained:
        async with AsyncHeadlight(plain.url) as client:
            return (await client.explain(PAIRS[:1], unit="sentence"))[0]

    assert len(asyncio.run(ask()).units or ()) == 6


def test_an_answer_of_wrong_shape_is_no_answer() -> None:
    """Arrays that do not match the units cannot be shown."""
    columns: dict[str, Any] = {"text": ["a", "b"], "offsets": [[0, 1], [1, 2]], "segment": [0, 0]}
    item = {
        "index": 0,
        "tokens": ["a", "b"],
        "truncated": False,
        "original_length": 2,
        "score": 1.0,
        "units": {**columns, "token_spans": [[0, 1], [1, 2]]},
        "attributions": [1.0],
    }
    document = {"model": "m", "method": "occlusion", "data": [item], "usage": {"input_tokens": 2}}
    with (
        stand_in(Reply(200, [json.dumps(document).encode()], {"Content-Type": "application/json"})) as server,
        Headlight(server.url, retries=0) as client,
        pytest.raises(HeadlightError, match="shapes"),
    ):
        client.explain("ab")
