"""`POST /similarity`, over a real socket."""

import numpy as np
import pytest

from model.contract import SIMILARITIES
from tests.references.comparing import distance
from tests.support.backends import both_backends
from tests.support.serving import (
    JSON,
    LONG,
    NDJSON,
    NPZ,
    SAFETENSORS,
    Json,
    Service,
    answered,
    assert_problem,
    batches,
    post,
    read_npz,
    read_safetensors,
)

pytestmark = both_backends

TEXTS = ["A man is eating.", "Someone eats.", "", "日本語のテキスト", LONG]


def compare(function: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The functions as they are defined, in float64."""
    if function in ("euclidean", "manhattan"):
        order = 2 if function == "euclidean" else 1
        return -np.linalg.norm(first[:, None] - second[None], ord=order, axis=-1)
    if function == "cosine":
        first, second = (v / np.linalg.norm(v, axis=-1, keepdims=True) for v in (first, second))
    return first @ second.T


def vectors(service: Service, texts: list[str], **options: object) -> np.ndarray:
    return np.array([item["embedding"] for item in service.encode(texts, **options)["data"]])


def similarity(service: Service, **body: object) -> Json:
    return answered(post(service, body, "/similarity"))


@pytest.mark.parametrize("function", SIMILARITIES)
def test_all_texts_are_compared_by_the_vectors_of_encode(several: Service, function: str) -> None:
    """Of a model that does not normalise and has a default prompt; each text is run once."""
    encoded = several.encode(TEXTS, model="prompted")
    own = np.array([item["embedding"] for item in encoded["data"]])
    answer = similarity(several, model="prompted", texts=TEXTS, function=function)
    assert list(answer) == ["model", "function", "similarities", "usage"]
    assert (answer["model"], answer["function"]) == ("prompted", function)
    assert answer["usage"] == encoded["usage"]
    expected = compare(function, own, own)
    assert np.shape(answer["similarities"]) == (5, 5)
    assert distance(answer["similarities"], expected) <= 1e-5 * max(1, np.abs(expected).max())


def test_one_text_is_compared_with_the_others(service: Service) -> None:
    """With a source there is a number for each text, and the source counts as run."""
    own = vectors(service, [*TEXTS, "Someone is having lunch."])
    answer = similarity(service, source="Someone is having lunch.", texts=TEXTS)
    assert answer["function"] == "cosine"
    assert np.shape(answer["similarities"]) == (5,)
    assert distance(answer["similarities"], compare("cosine", own[-1:], own[:-1])[0]) <= 1e-5
    assert answer["usage"] == service.encode([*TEXTS, "Someone is having lunch."])["usage"]


def test_prompts_are_those_of_encode(several: Service) -> None:
    """A prompt, named or literal, stands before the source and every text."""
    for chosen in ({"prompt_name": "passage"}, {"prompt": "a man "}, {"prompt": ""}):
        own = vectors(several, ["the boy", "hello"], model="prompted", **chosen)
        answer = similarity(several, model="prompted", source="the boy", texts=["hello"], **chosen)
        assert distance(answer["similarities"], compare("cosine", own[:1], own[1:])[0]) <= 1e-5


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("accept", [NPZ, SAFETENSORS])
def test_the_matrix_is_one_array_of_a_file(service: Service, accept: str, dtype: str) -> None:
    """It has the name of the field, and the rest of the response is beside it."""
    body = {"texts": TEXTS}
    plain = similarity(service, **body)
    response = service.http.post(f"/similarity?dtype={dtype}", json=body, headers={"Accept": accept})
    arrays, rest = (read_npz if accept == NPZ else read_safetensors)(response.content)
    assert list(arrays) == ["similarities"]
    assert arrays["similarities"].dtype == dtype
    assert distance(arrays["similarities"], plain["similarities"]) <= rest["max_error"] + 1e-7
    assert rest.pop("dtype") == dtype
    del rest["scale"], rest["max_error"]
    assert rest == {name: plain[name] for name in ("model", "function", "usage")}


REFUSED: list[tuple[Json, str]] = [
    ({}, "texts"),
    ({"texts": []}, "texts"),
    ({"texts": "a"}, "texts"),
    ({"texts": [["a", "b"]]}, "texts.0"),
    ({"texts": ["a"], "source": ["a"]}, "source"),
    ({"texts": ["a"], "function": "hamming"}, "function"),
    ({"texts": ["a"], "prompt": "a", "prompt_name": "b"}, "prompt"),
    ({"texts": ["a"], "pooling": "cls"}, "pooling"),
    ({"texts": ["a", LONG], "truncate": False}, "texts.1"),
    ({"texts": ["a", LONG], "source": "a", "truncate": False}, "texts.1"),
    ({"texts": ["a"], "source": LONG, "truncate": False}, "source"),
]


@pytest.mark.parametrize(("body", "field"), REFUSED)
def test_a_refusal_names_the_field(service: Service, body: Json, field: str) -> None:
    """Whatever is wrong, nothing has run."""
    before = batches(service)
    response = post(service, body, "/similarity")
    kind = "input-too-long" if "truncate" in body else "invalid-request"
    assert_problem(response, 422, kind, field=field)
    assert batches(service) == before


def test_formats_are_those_of_arrays(service: Service) -> None:
    """Similarities come at once, not line by line, and may be negative."""
    document = assert_problem(
        post(service, {"texts": ["a"]}, "/similarity", Accept=NDJSON), 406, "not-acceptable"
    )
    assert document["allowed"] == [JSON, NPZ, SAFETENSORS]
    response = service.http.post("/similarity?dtype=uint8", json={"texts": ["a"]}, headers={"Accept": NPZ})
    assert_problem(response, 422, "invalid-request", field="query.dtype")


def test_the_number_of_texts_is_limited(service: Service) -> None:
    """As that of inputs."""
    response = post(service, {"texts": ["a"] * 257}, "/similarity")
    assert_problem(response, 413, "too-many-inputs", field="texts", limit=256, actual=257)


def test_a_matrix_that_is_too_large_is_refused_before_any_work(narrow: Service) -> None:
    """The 413 says how large it could be and what makes it smaller: a source, or a binary format."""
    texts = [f"text {i}" for i in range(50)]
    before = narrow.metrics()
    document = assert_problem(
        post(narrow, {"texts": texts}, "/similarity"), 413, "response-too-large", limit=20_000
    )
    assert document["actual"] > 50 * 50 * 12
    assert "`source`" in document["detail"]
    after = narrow.metrics()
    worked = ("batches", "stage", "input")
    assert all(after[name] == before[name] for name in before if name.startswith(worked))
    whole = post(narrow, {"texts": texts}, "/similarity", Accept=NPZ)
    assert read_npz(whole.content)[0]["similarities"].shape == (50, 50)
    assert len(similarity(narrow, source="a", texts=texts)["similarities"]) == 50


def test_it_is_counted_as_other_routes_are(plain: Service) -> None:
    """Inputs with the source, truncated ones, and the time of its stages."""
    before = plain.metrics()
    similarity(plain, source="a", texts=["b", LONG])
    after = plain.metrics()
    model = 'model="all-MiniLM-L6-v2"'
    grown = {name: after[name] - before[name] for name in after if name in before}
    assert grown[f'headlight_inputs_total{{{model},route="/similarity"}}'] == 3
    assert grown[f"headlight_truncated_inputs_total{{{model}}}"] == 1
    for stage in ("tokenize", "queue", "compute", "serialize"):
        assert grown[f'headlight_stage_duration_seconds_count{{{model},stage="{stage}"}}'] == 1
