"""The 413 of too large a response says what to ask for instead: each way out, sent back, is answered."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.support.serving import JSON, NDJSON, NPZ, Json, Service, assert_problem, serve

TEXT = " ".join(["the man beats a boy"] * 10)
LIMIT = 40_000
Asked = tuple[Json, Json, str]
"""A body, the query of its URL, and what is accepted."""


@pytest.fixture(scope="module")
def small() -> Iterator[Service]:
    """A service whose responses have at most `LIMIT` bytes."""
    with serve(max_response_bytes=LIMIT) as started:
        yield started


def ask(service: Service, path: str, asked: Asked) -> httpx.Response:
    """Send a request, and read the response whole."""
    body, query, accept = asked
    return service.http.post(path, json=body, params=query, headers={"Accept": accept})


def ways_of(service: Service, path: str, asked: Asked) -> list[str]:
    """The alternatives that a 413 lists."""
    detail = assert_problem(ask(service, path, asked), 413, "response-too-large", limit=LIMIT)["detail"]
    listed = re.fullmatch(rf"The response could have \d+ bytes and the limit is {LIMIT}: (.*)\.", detail)
    assert listed, detail
    return re.split(r", or |, ", listed[1])


def by_field(body: Json, field: str, value: Any) -> Json:
    """The body with another value of a field."""
    return body | {field: value}


FOLLOWED: dict[str, Callable[[Asked, Any], Asked]] = {
    r"send at most (\d+) of the inputs": lambda asked, found: (
        asked[0] | {"inputs": asked[0]["inputs"][: int(found[1])]},
        *asked[1:],
    ),
    r"choose at most (\d+) of the `(\w+)`": lambda asked, found: (
        by_field(asked[0], found[2], [i + (found[2] in {"queries", "keys"}) for i in range(int(found[1]))]),
        *asked[1:],
    ),
    r"(?:set|lower) `(\w+)` to (\d+)": lambda asked, found: (
        by_field(asked[0], found[1], int(found[2])),
        *asked[1:],
    ),
    r'set `aggregate` to "mean"': lambda asked, _: (asked[0] | {"aggregate": "mean"}, *asked[1:]),
    r"set \?dtype=(\w+)": lambda asked, found: (asked[0], {"dtype": found[1]}, asked[2]),
    r"set Accept to application/x-npz(?: and set \?dtype=(\w+))?( without `decimals`)?": lambda asked, way: (
        {name: one for name, one in asked[0].items() if name != "decimals" or not way[2]},
        {"dtype": way[1]} if way[1] else {},
        NPZ,
    ),
    r"leave `tokens` out of `outputs`( and `layers` out)?": lambda asked, found: (
        {name: one for name, one in asked[0].items() if name != "layers" or not found[1]}
        | {"outputs": ["sentence"]},
        *asked[1:],
    ),
}
SETTING = r"raise the service's HEADLIGHT_MAX_RESPONSE_BYTES to (\d+)"


def follow(asked: Asked, way: str, more: int = 0) -> Asked:
    """Do what a way out says, or ask for some more than it allows."""
    way = re.sub(r"(?<=most )\d+|(?<=to )\d+", lambda found: str(int(found[0]) + more), way)
    for pattern, change in FOLLOWED.items():
        if found := re.fullmatch(pattern, way):
            return change(asked, found)
    raise AssertionError(f"nobody could follow: {way}")


MAPS: list[tuple[Json, Json, str, set[str]]] = [
    ({}, {}, JSON, {"thumbnail"}),
    ({"heads": [1, 2]}, {}, JSON, {"queries", "top_k", "thumbnail"}),
    ({"layers": [0], "heads": [0, 3]}, {}, JSON, {"heads", "keys", "aggregate", "decimals", "npz"}),
    ({"layers": [1, 2], "heads": [5]}, {}, JSON, {"layers", "queries"}),
    ({"layers": [0], "heads": [0, 3], "decimals": 5}, {}, JSON, {"heads"}),
    ({"layers": [0], "heads": [0, 3]}, {}, NDJSON, {"npz"}),
    ({"layers": [0, 1], "heads": [0, 3]}, {}, NPZ, {"dtype=float16"}),
    ({"layers": [0, 1, 2, 4], "heads": [0, 3]}, {"dtype": "float16"}, NPZ, {"dtype=uint8"}),
    ({"layers": [0, 1], "heads": [0, 3], "weights": "score"}, {"dtype": "float16"}, NPZ, {"heads"}),
    ({"layers": [0, 1, 2], "heads": [0, 3], "weights": "value_norm"}, {}, NPZ, {"dtype=uint8"}),
    ({"layers": [0, 1], "aggregate": "max", "decimals": 9}, {}, JSON, {"decimals", "without"}),
    ({"aggregate": "rollout", "inputs": [TEXT] * 3}, {}, JSON, {"inputs", "npz"}),
    ({"top_k": 5, "queries": [0, 1, 2, 3]}, {}, JSON, {"top_k", "queries", "layers"}),
    ({"thumbnail": 16, "layers": [0, 1, 2]}, {}, JSON, {"thumbnail", "aggregate", "layers"}),
    ({"level": "word", "special_tokens": "drop", "heads": [1], "layers": [0, 1]}, {}, JSON, {"layers"}),
    (
        {"summary": True, "maps": False, "inputs": ["a b", "c", "d"], "columns": []},
        {},
        JSON,
        {"inputs", "layers", "heads"},
    ),
    (
        {"summary": True, "layers": [0], "heads": [0, 3], "outputs": ["sentence"]},
        {},
        JSON,
        {"queries", "npz"},
    ),
]
VECTORS: list[tuple[Json, Json, str, set[str]]] = [
    ({"inputs": ["a b c"] * 20}, {}, JSON, {"inputs"}),
    ({"outputs": ["sentence", "tokens"], "inputs": ["a b c d"]}, {}, JSON, {"tokens"}),
    (
        {"outputs": ["sentence", "tokens"], "inputs": ["a"], "layers": [0, 1, 2]},
        {},
        JSON,
        {"tokens", "and `layers`"},
    ),
    ({"outputs": ["tokens"], "inputs": ["a"], "layers": [0, 1, 2]}, {}, JSON, {"layers"}),
]


@pytest.mark.parametrize(
    ("path", "body", "query", "accept", "named"),
    [("/attention", *one) for one in MAPS] + [("/encode", *one) for one in VECTORS],
    ids=lambda one: " ".join(sorted(one)) if isinstance(one, set) else str(one)[:80],
)
def test_each_way_out_leads_to_an_answer(
    path: str, body: Json, query: Json, accept: str, named: set[str], small: Service
) -> None:
    """What the 413 advises, sent back, is answered with 200; one more than it allows is not."""
    asked: Asked = {"inputs": [TEXT], **body}, query, accept
    *ways, setting = ways_of(small, path, asked)
    assert re.fullmatch(SETTING, setting)
    assert all(any(name in way for way in ways) for name in named), ways
    for way in ways:
        response = ask(small, path, follow(asked, way))
        assert response.status_code == 200, (way, response.text)
        if re.search(r"(most|to) \d", way) and not re.search("queries|keys", way):  # labels have a size too
            refused = ask(small, path, follow(asked, way, more=1))
            assert refused.status_code == 413, (way, refused.text)


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("heads", range(1, 13, 2))
def test_a_dtype_is_advised_where_it_helps(dtype: str, heads: int, small: Service) -> None:
    """Never one that fails; and the first that helps always is."""
    body = {"inputs": [TEXT], "layers": [2], "heads": list(range(heads))}
    helps = [
        one
        for one in ("float32", "float16", "uint8")
        if ask(small, "/attention", (body, {"dtype": one}, NPZ)).status_code == 200
    ]
    if dtype in helps:
        return
    ways = ways_of(small, "/attention", (body, {"dtype": dtype}, NPZ))
    advised = [found[1] for way in ways if (found := re.fullmatch(r"set \?dtype=(\w+)", way))]
    assert advised == helps[:1]


def test_the_setting_that_is_named_is_enough(small: Service) -> None:
    """A service with the limit that the 413 names answers the request, and with one byte less does not."""
    asked: Asked = {"inputs": [TEXT], "layers": [0], "heads": [0, 3, 5, 7]}, {}, NPZ
    setting = re.fullmatch(SETTING, ways_of(small, "/attention", asked)[-1])
    assert setting
    for less, status in ((0, 200), (1, 413)):
        with serve(max_response_bytes=int(setting[1]) - less) as raised:
            assert ask(raised, "/attention", asked).status_code == status
