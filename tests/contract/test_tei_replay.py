"""Requests of text-embeddings-inference's own documents, and each row of its table of errors, replayed."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from service.endpoints import Endpoint
from service.protocols.tei.routes import ENDPOINTS
from tests.support.doubles import POISON
from tests.support.serving import JSON_TYPE, LONG, Service, post, serve
from tests.support.tei import assert_error

QUESTION, LIKED = "What is Deep Learning?", "I like you."
ANSWERS = ["Deep Learning is not...", "Deep learning is..."]
VECTOR = [float] * 384
WORKED = [
    *("compute-type", "compute-time", "compute-characters", "compute-tokens", "total-time"),
    *("tokenization-time", "queue-time", "inference-time"),
]


class Replay(NamedTuple):
    """A request without the field `model`, which the original has not, to a service that suits it."""

    service: str
    """The fixture."""
    path: str
    """Under `/tei`, and at the root if that has the path, too."""
    body: Any
    form: Any
    """The response, with the types of what is proven elsewhere."""

    @property
    def reports(self) -> bool:
        """Whether the response reports its work in headers."""
        return not self.path.endswith(("tokenize", "decode"))


LABEL = {"score": float, "label": str}
LABELS = [LABEL] * 2
RANK = {"index": int, "score": float}
WORD = {"index": int, "value": float}
TOKEN = {"id": int, "text": str, "special": bool, "start": int, "stop": int}
EDGE = TOKEN | {"start": None, "stop": None}

# Every field of the original's schema, with the values of its own examples.
WHOLE_EMBED = {
    "inputs": QUESTION,
    "truncate": False,
    "truncation_direction": "right",
    "prompt_name": None,
    "normalize": True,
    "dimensions": None,
}
WHOLE_RERANK = {
    "query": QUESTION,
    "texts": ANSWERS,
    "truncate": False,
    "truncation_direction": "right",
    "raw_scores": False,
    "return_text": False,
}
WHOLE_PREDICT = {"inputs": QUESTION, "truncate": False, "truncation_direction": "right", "raw_scores": False}
COMPARED = {"source_sentence": QUESTION, "sentences": ["What is Machine Learning?"]}
REPLAYED = {
    "embed": Replay("tei", "/embed", {"inputs": QUESTION}, [VECTOR]),
    "embed a batch": Replay("tei", "/embed", {"inputs": ["Today is a nice day", LIKED]}, [VECTOR, VECTOR]),
    "embed, every field": Replay("tei", "/embed", WHOLE_EMBED, [VECTOR]),
    "embed ids": Replay("tei", "/embed", {"inputs": [101, 2054, 102]}, [VECTOR]),
    "embed lists of ids": Replay("tei", "/embed", {"inputs": [[101, 102], [101, 102]]}, [VECTOR] * 2),
    "embed, cut": Replay("tei", "/embed", {"inputs": QUESTION, "dimensions": 8}, [[float] * 8]),
    "embed all": Replay("tei", "/embed_all", {"inputs": QUESTION}, [[VECTOR] * 7]),
    "embed sparse": Replay("tei_words", "/embed_sparse", {"inputs": "man"}, [[WORD, ...]]),
    "predict": Replay("tei_moods", "/predict", {"inputs": LIKED}, LABELS),
    "predict, every field": Replay("tei_moods", "/predict", WHOLE_PREDICT, LABELS),
    "predict a pair": Replay("tei_moods", "/predict", {"inputs": [QUESTION, LIKED]}, LABELS),
    "predict a batch": Replay(
        "tei_moods", "/predict", {"inputs": [[LIKED], ["I like pineapples"]]}, [LABELS, LABELS]
    ),
    "rerank": Replay("tei_ranking", "/rerank", {"query": QUESTION, "texts": ANSWERS}, [RANK] * 2),
    "rerank, every field": Replay("tei_ranking", "/rerank", WHOLE_RERANK, [RANK] * 2),
    "rerank with texts": Replay(
        "tei_ranking", "/rerank", WHOLE_RERANK | {"return_text": True}, [RANK | {"text": str}] * 2
    ),
    "similarity": Replay("tei", "/similarity", {"inputs": COMPARED}, [float]),
    "similarity, every field": Replay(
        "tei",
        "/similarity",
        {
            "inputs": COMPARED,
            "parameters": {"truncate": False, "truncation_direction": "right", "prompt_name": None},
        },
        [float],
    ),
    "tokenize": Replay("tei", "/tokenize", {"inputs": "What?"}, [[EDGE, TOKEN, TOKEN, EDGE]]),
    "tokenize, every field": Replay(
        "tei",
        "/tokenize",
        {"inputs": ["What?"], "add_special_tokens": False, "prompt_name": None},
        [[TOKEN, TOKEN]],
    ),
    "decode": Replay("tei", "/decode", {"ids": [101, 2054, 102]}, ["what"]),
    "decode, every field": Replay(
        "tei", "/decode", {"ids": [[101, 2054, 102]], "skip_special_tokens": True}, ["what"]
    ),
    "the bare address, embedding": Replay("tei", "/", {"inputs": QUESTION}, [VECTOR]),
    "the bare address, labelling": Replay("tei_moods", "/", {"inputs": LIKED}, LABELS),
    "the bare address, ranking": Replay("tei_ranking", "/", WHOLE_RERANK, [RANK] * 2),
    "the bare address, words": Replay("tei_words", "/", {"inputs": "man"}, [[WORD, ...]]),
    "SageMaker's address": Replay("tei_moods", "/invocations", {"inputs": LIKED}, LABELS),
}
PATHS = {endpoint.path for endpoint in ENDPOINTS if endpoint.inference}
"""Those that are answered in this contract."""


def addresses(path: str) -> Iterator[str]:
    """The paths at which a route is, with the base URL of this contract first."""
    yield f"/tei{path}"
    if path in PATHS:
        yield path


def has_form(found: object, form: Any) -> bool:
    """Whether a JSON value has the members, the lengths and the types of a form, or is equal to it."""
    match form:
        case type():
            return type(found) is form
        case dict():
            return (
                isinstance(found, dict)
                and found.keys() == form.keys()
                and all(has_form(found[name], form[name]) for name in form)
            )
        case [one, second] if second is ...:
            return isinstance(found, list) and bool(found) and all(has_form(each, one) for each in found)
        case list():
            return isinstance(found, list) and len(found) == len(form) and all(map(has_form, found, form))
        case _:
            return found == form


@pytest.mark.parametrize(
    ("name", "path"), [(name, path) for name, replay in REPLAYED.items() for path in addresses(replay.path)]
)
def test_its_own_requests_have_its_own_answers(request: pytest.FixtureRequest, name: str, path: str) -> None:
    """Member for member, with the headers that report the work."""
    replay = REPLAYED[name]
    service: Service = request.getfixturevalue(replay.service)
    response = post(service, replay.body, path)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    assert has_form(response.json(), replay.form), response.text
    assert [header for header in WORKED if f"x-{header}" in response.headers] == (
        WORKED if replay.reports else []
    )


@pytest.fixture(scope="module")
def small() -> Iterator[Service]:
    """An embedding model with the original's limits of inputs and of bytes."""
    with serve(max_inputs=32, max_body_bytes=2_000_000) as started:
        yield started


class Refused(NamedTuple):
    """A request, and the error that is its answer; `error` is a beginning if it ends with …"""

    service: str
    path: str
    body: Any
    status: int
    kind: str
    error: str


MANY = "batch size 33 > maximum allowed batch size 32"
TOO_LONG = "Input validation error: `inputs` must have less than 256 tokens. Given: 302"
NOTHING = "Input validation error: `inputs` cannot be empty"
WRONG = "Input validation error: "
REFUSED = {
    # Validation
    "a long text": Refused(
        "small", "/embed", {"inputs": LONG, "truncate": False}, 422, "Validation", TOO_LONG
    ),
    "a long text, all": Refused(
        "small", "/embed_all", {"inputs": LONG, "truncate": False}, 422, "Validation", TOO_LONG
    ),
    "many texts": Refused("small", "/embed", {"inputs": ["a"] * 33}, 422, "Validation", MANY),
    "many texts, all": Refused("small", "/embed_all", {"inputs": ["a"] * 33}, 422, "Validation", MANY),
    "many texts, tokens": Refused("small", "/tokenize", {"inputs": ["a"] * 33}, 422, "Validation", MANY),
    "many lists of ids": Refused("small", "/decode", {"ids": [[101]] * 33}, 422, "Validation", MANY),
    "many sentences": Refused(
        "small",
        "/similarity",
        {"inputs": {"source_sentence": "a", "sentences": ["a"] * 33}},
        422,
        "Validation",
        MANY,
    ),
    "many pairs": Refused(
        "tei_moods",
        "/predict",
        {"inputs": [["a"]] * 257},
        422,
        "Validation",
        "batch size 257 > maximum allowed batch size 256",
    ),
    "many texts to rank": Refused(
        "tei_ranking",
        "/rerank",
        {"query": "a", "texts": ["b"] * 5},
        422,
        "Validation",
        "batch size 5 > maximum allowed batch size 4",
    ),
    "no dimensions": Refused(
        "small", "/embed", {"inputs": "a", "dimensions": 0}, 422, "Validation", f"{WRONG}dimensions …"
    ),
    "many dimensions": Refused(
        "small", "/embed", {"inputs": "a", "dimensions": 385}, 422, "Validation", f"{WRONG}dimensions …"
    ),
    "an unknown prompt": Refused(
        "small", "/embed", {"inputs": "a", "prompt_name": "x"}, 422, "Validation", f"{WRONG}prompt_name …"
    ),
    "an unknown prompt, tokens": Refused(
        "small", "/tokenize", {"inputs": "a", "prompt_name": "x"}, 422, "Validation", f"{WRONG}prompt_…"
    ),
    # Empty
    "no text": Refused("small", "/embed", {"inputs": ""}, 400, "Empty", NOTHING),
    "no ids": Refused("small", "/embed", {"inputs": []}, 400, "Empty", NOTHING),
    "no text, all": Refused("small", "/embed_all", {"inputs": [""]}, 400, "Empty", NOTHING),
    "no text, words": Refused("tei_words", "/embed_sparse", {"inputs": ""}, 400, "Empty", NOTHING),
    "no text, labels": Refused("tei_moods", "/predict", {"inputs": ""}, 400, "Empty", NOTHING),
    "no pair": Refused("tei_moods", "/predict", {"inputs": ["", ""]}, 400, "Empty", NOTHING),
    "no source": Refused(
        "small",
        "/similarity",
        {"inputs": {"source_sentence": "", "sentences": ["a"]}},
        400,
        "Empty",
        NOTHING,
    ),
    "no texts to rank": Refused(
        "tei_ranking", "/rerank", {"query": "a", "texts": []}, 400, "Empty", "`texts` cannot be empty"
    ),
    "no sentences": Refused(
        "small",
        "/similarity",
        {"inputs": {"source_sentence": "a", "sentences": []}},
        400,
        "Empty",
        "`inputs.sentences` cannot be empty",
    ),
    "no texts, tokens": Refused(
        "small", "/tokenize", {"inputs": []}, 400, "Empty", "`inputs` cannot be empty"
    ),
    "no lists of ids": Refused("small", "/decode", {"ids": []}, 400, "Empty", "`ids` cannot be empty"),
    # Backend
    "what the model cannot compute": Refused(
        "failing", "/embed", {"inputs": POISON}, 424, "Backend", "Backend error: …"
    ),
    "no model of words": Refused(
        "small", "/embed_sparse", {"inputs": "a"}, 424, "Backend", "Backend error: The model …"
    ),
    "no classifier": Refused(
        "small", "/predict", {"inputs": "a"}, 424, "Backend", "Backend error: The model …"
    ),
    "no re-ranker": Refused(
        "small", "/rerank", {"query": "a", "texts": ["b"]}, 424, "Backend", "Backend error: The model …"
    ),
    "no re-ranker but a classifier": Refused(
        "tei_moods",
        "/rerank",
        {"query": "a", "texts": ["b"]},
        424,
        "Backend",
        "Backend error: The model …",
    ),
    # The wrong shape, which the original says as plain text
    "no inputs": Refused("small", "/embed", {}, 422, "Validation", f"{WRONG}inputs is required …"),
    "no list": Refused("small", "/predict", {"inputs": []}, 422, "Validation", f"{WRONG}inputs …"),
    "three in a pair": Refused(
        "small", "/predict", {"inputs": ["a", "b", "c"]}, 422, "Validation", f"{WRONG}inputs …"
    ),
    "no object": Refused("small", "/embed", [1], 422, "Validation", f"{WRONG}body …"),
    "a wrong side": Refused(
        "small", "/embed", {"inputs": "a", "truncation_direction": "up"}, 422, "Validation", f"{WRONG}trunc…"
    ),
    "a large body": Refused(
        "small", "/embed", {"inputs": "a" * 2_000_000}, 413, "Validation", "The body has 2000013 bytes …"
    ),
}


@pytest.mark.parametrize(
    ("name", "path"), [(name, path) for name, refused in REFUSED.items() for path in addresses(refused.path)]
)
def test_its_errors_have_its_statuses_types_and_sentences(
    request: pytest.FixtureRequest, name: str, path: str
) -> None:
    """Word for word where the sentence is its own; there are no headers that report work."""
    refused = REFUSED[name]
    service: Service = request.getfixturevalue(refused.service)
    response = post(service, refused.body, path)
    assert_sentence(response, refused.status, refused.kind, refused.error)
    assert not [header for header in WORKED if f"x-{header}" in response.headers]
    assert "retry-after" not in response.headers


def assert_sentence(response: httpx.Response, status: int, kind: str, sentence: str) -> None:
    """Check an error whose sentence is this, or begins with it if it ends with …"""
    assert_error(response, status, kind)
    found = response.json()["error"]
    if sentence.endswith("…"):
        assert found.startswith(sentence.rstrip(" …")), found
    else:
        assert found == sentence


@pytest.mark.parametrize(
    ("content", "kind", "status", "part"),
    [
        (b"", "application/json", 400, "not valid JSON"),
        (b"{", "application/json", 400, "not valid JSON"),
        (b'{"inputs": NaN}', "application/json", 400, "not valid JSON"),
        (b'{"inputs": "\\ud800"}', "application/json", 400, "not valid JSON"),
        (b"\xff", "application/json", 400, "not valid JSON"),
        (b'{"inputs": "a"}', "text/plain", 415, "The Content-Type is text/plain"),
        (b'{"inputs": "a"}', "application/x-www-form-urlencoded", 415, "The Content-Type is"),
    ],
)
@pytest.mark.parametrize("path", ["/tei/embed", "/tei/rerank", "/embed", "/"])
def test_what_is_no_json_has_the_status_of_the_original(
    small: Service, path: str, content: bytes, kind: str, status: int, part: str
) -> None:
    """Which says it as plain text; here it is an error like any other."""
    refused = small.http.post(path, content=content, headers={"Content-Type": kind})
    assert_error(refused, status, "Validation", part)


@pytest.mark.parametrize(
    "endpoint", [one for one in ENDPOINTS if one.path != "/"], ids=lambda one: str(one.path)
)
def test_every_route_answers_a_wrong_method_in_its_form(small: Service, endpoint: Endpoint) -> None:
    """With the methods that it has. `GET /` is native, and so are wrong methods of that path."""
    refused = small.http.delete(endpoint.path)
    assert_error(refused, 405, "Validation", "not DELETE")
    assert set(endpoint.methods) <= set(refused.headers["allow"].split(", "))


def test_a_service_that_loads_is_unhealthy() -> None:
    """A 503 of the type that is only for that, from each route and from that of health; then it is well."""
    with serve(wait=False) as loading:
        loading.wait_until_listening()
        for refused in (
            loading.http.get("/tei/health"),
            loading.http.get("/tei/"),
            loading.http.get("/ping"),
            loading.http.post("/embed", json={"inputs": "a"}),
            loading.http.post("/", json={"inputs": "a"}),
            loading.http.post("/tei", json={"inputs": "a"}),
        ):
            assert_error(refused, 503, "Unhealthy")
            assert int(refused.headers["retry-after"]) >= 1
        loading.wait_until_ready()
        assert loading.http.get("/tei/health").status_code == 200


def test_every_route_asks_for_a_key_but_those_of_health(guarded: Service) -> None:
    """A 401 in its form, also of what only tells; the header says what kind of key."""
    health = {"/tei/health", "/tei/ping", "/tei/", "/ping"}
    assert {one.path for one in ENDPOINTS if not one.guarded} == health
    for endpoint in ENDPOINTS:
        method, content = endpoint.methods[0], b'{"inputs": "a"}'
        found = guarded.http.request(method, endpoint.path, content=content, headers=JSON_TYPE)
        if not endpoint.guarded:
            assert found.status_code == 200
        else:
            assert_error(found, 401, "Validation", "API key")
            assert found.headers["www-authenticate"] == "Bearer"
