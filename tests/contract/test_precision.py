"""`precision` of `POST /encode`: the same vectors in fewer bits, in every format."""

import json
from typing import Any

import numpy as np
import pytest

from tests.support.backends import both_backends
from tests.support.serving import (
    JSON,
    NDJSON,
    NPZ,
    SAFETENSORS,
    Service,
    assert_problem,
    read_npz,
    read_safetensors,
)

pytestmark = both_backends

TEXTS = ["The cat sat on the mat.", "A dog slept, far away.", "one"]
DTYPES = {"int8": np.int8, "uint8": np.uint8, "binary": np.int8, "ubinary": np.uint8}


def expected(vector: np.ndarray[Any, Any], precision: str) -> np.ndarray[Any, Any]:
    """The definition, in numpy: fixed steps of 1/127, or the bits of what is above 0."""
    if precision in ("int8", "uint8"):
        return np.clip(np.round(127 * vector), -127, 127).astype(int) + (128 if precision == "uint8" else 0)
    bits = (vector > 0).reshape(-1, 8) @ (1 << np.arange(8)[::-1])
    return bits - 128 if precision == "binary" else bits


@pytest.mark.parametrize("precision", DTYPES)
def test_vectors_are_cut_and_normalised_before_they_are_rounded(service: Service, precision: str) -> None:
    """The numbers are the definition's of the float32 answer, and the answer names the precision."""
    answer = service.encode(TEXTS[0], dimensions=64, normalize=True, precision=precision)
    (exact,) = service.encode(TEXTS[0], dimensions=64, normalize=True)["data"]
    vector = np.array(exact["embedding"], np.float32)
    assert answer["precision"] == precision
    found = answer["data"][0]["embedding"]
    assert all(type(number) is int for number in found)
    assert found == expected(vector, precision).tolist()


@pytest.mark.parametrize("precision", ["int8", "uint8"])
def test_a_text_has_the_same_steps_in_every_batch(service: Service, precision: str) -> None:
    """The range is fixed, so other texts move a component by a step at most, where it is rounded."""
    together = service.encode(TEXTS, precision=precision)["data"]
    for text, item in zip(TEXTS, together, strict=True):
        (alone,) = service.encode(text, precision=precision)["data"]
        assert np.abs(np.subtract(alone["embedding"], item["embedding"])).max() <= 1


@pytest.mark.parametrize("kind", [NPZ, SAFETENSORS, NDJSON])
@pytest.mark.parametrize("precision", DTYPES)
def test_every_format_has_the_same_integers(service: Service, precision: str, kind: str) -> None:
    """Files keep the type, whatever `dtype` says of the other arrays, whose error is all they declare."""
    body = {"inputs": TEXTS, "precision": precision, "outputs": ["sentence", "tokens"]}
    plain = service.http.post("/encode", json=body, headers={"Accept": JSON}).json()
    path = "/encode" if kind == NDJSON else "/encode?dtype=float16"
    response = service.http.post(path, json=body, headers={"Accept": kind})
    assert response.status_code == 200
    if kind == NDJSON:
        *items, last = [json.loads(line) for line in response.text.splitlines()]
        assert last["precision"] == precision
        vectors = {item["index"]: np.array(item["embedding"]) for item in items}
    else:
        arrays, rest = (read_npz if kind == NPZ else read_safetensors)(response.content)
        assert (rest["precision"], rest["dtype"]) == (precision, "float16")
        assert rest["max_error"] < 0.01
        vectors = {i: arrays[f"{i}.embedding"] for i in range(len(TEXTS))}
        assert all(vector.dtype == DTYPES[precision] for vector in vectors.values())
        assert all(arrays[f"{i}.token_embeddings"].dtype == np.float16 for i in range(len(TEXTS)))
    for i, item in enumerate(plain["data"]):
        near = 1 if precision in ("int8", "uint8") else 0
        assert np.abs(vectors[i].astype(int) - item["embedding"]).max() <= near


def test_float32_is_not_named(service: Service) -> None:
    """The default answer is what it was before there were others."""
    answer = service.encode("a", precision="float32")
    assert "precision" not in answer
    assert answer["data"] == service.encode("a")["data"]


@pytest.mark.parametrize(
    ("options", "field", "says"),
    [
        ({"precision": "int8", "normalize": False}, "normalize", '"normalize": true'),
        ({"precision": "uint8", "normalize": False}, "normalize", '"uint8"'),
        ({"precision": "binary", "dimensions": 12}, "dimensions", "have 12"),
        ({"precision": "ubinary", "dimensions": 7}, "dimensions", "multiple of 8"),
        ({"precision": "int4"}, "precision", "'ubinary'"),
        ({"precision": "int8", "outputs": ["tokens"]}, "precision", '"sentence"'),
    ],
)
def test_what_has_no_such_precision_is_refused(
    service: Service, options: dict[str, Any], field: str, says: str
) -> None:
    """Steps need unit vectors, bits whole bytes, and any precision a vector; the answer names the way out."""
    response = service.http.post("/encode", json={"inputs": "a", **options})
    problem = assert_problem(response, 422, "invalid-request")
    assert problem["field"] == field
    assert says in problem["detail"]


def test_bits_need_no_unit_vectors(service: Service) -> None:
    """A sign is the same before and after the norm."""
    (raw,) = service.encode("a", precision="ubinary", normalize=False)["data"]
    (unit,) = service.encode("a", precision="ubinary", normalize=True)["data"]
    assert raw["embedding"] == unit["embedding"]
