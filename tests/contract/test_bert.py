"""The contract of bert-as-service, by plain HTTP over a real socket."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.references.comparing import distance
from tests.support.serving import LONG, Json, Service, assert_problem, post, serve
from tests.support.tei import TEXT, TEXTS, ask

PATH = "/encode"
DEFAULTS: Json = {"pooling": "mean", "pooling_layers": [-2], "normalize": False}


def native(service: Service, inputs: object, **options: object) -> list[Any]:
    """The native vectors with the defaults of bert-as-service."""
    return [one["embedding"] for one in service.encode(inputs, **DEFAULTS, **options)["data"]]


def assert_error(response: httpx.Response, status: int, kind: str, part: str) -> None:
    """Check that an answer is an error of this protocol, of these members alone."""
    assert response.status_code == status, response.text
    error = response.json()
    assert list(error) == ["description", "type", "status"]
    assert (error["type"], error["status"]) == (kind, status)
    assert part in error["description"]


def close(found: object, expected: list[Any]) -> bool:
    """Whether vectors of any length are equal within the tolerance of native batches."""
    largest = max(abs(x) for vector in expected for x in vector)
    return distance(found, expected) <= 2e-6 * max(1.0, largest)


@pytest.mark.parametrize("identity", [123, "abc", None, {"a": [1]}], ids=str)
def test_each_text_has_a_row(tei: Service, identity: object) -> None:
    """The mean of the last layer but one, under both names of the original, with the id that was sent."""
    answer = ask(tei, PATH, id=identity, texts=[TEXT, *TEXTS], is_tokenized=False, show_tokens=None)
    assert list(answer) == ["id", "result", "results", "status"]
    assert (answer["id"], answer["status"]) == (identity, 200)
    assert answer["results"] == answer["result"]
    assert close(answer["result"], native(tei, [TEXT, *TEXTS]))
    assert distance(answer["result"], [one["embedding"] for one in tei.encode([TEXT, *TEXTS])["data"]]) > 0.1


def test_a_separator_makes_a_pair(tei: Service) -> None:
    """Three bars between blanks; a pair and a text may be mixed."""
    answer = ask(tei, PATH, id=1, texts=["hello world ||| the man", TEXT, "a|||b"])
    (pair,) = native(tei, [["hello world", "the man"]])
    assert close(answer["result"], [pair, *native(tei, [TEXT, "a|||b"])])


def test_texts_may_be_tokens(tei: Service) -> None:
    """Joined to the text that they are the tokens of."""
    item = tei.encode("unbelievably embedded")["data"][0]
    tokens = [token for token, special in zip(item["tokens"], item["special"], strict=True) if not special]
    assert any(token.startswith("##") for token in tokens)
    answer = ask(tei, PATH, id=1, texts=[tokens], is_tokenized=True)
    assert close(answer["result"], native(tei, ["unbelievably embedded"]))


def test_many_texts_may_be_many_tokens(tei: Service) -> None:
    """As many as `docs/protocols.md` says, which other bodies may not have; more are refused in this form."""
    tokens = ["the", "man"] * 128
    answer = ask(tei, PATH, id=1, texts=[tokens] * 256, is_tokenized=True)
    assert len(answer["result"]) == 256
    assert close(answer["result"][:1], native(tei, ["the man " * 128]))
    for texts, values in (([["a"] * 1000] * 256, 256259), ([["a"] * 100_000], 100_004)):
        many = post(tei, {"id": 1, "texts": texts, "is_tokenized": True}, PATH)
        sentence = (
            f"about {values} values and the limit is 66368: send fewer texts, or fewer tokens of a text"
        )
        assert_error(many, 400, "ValueError", sentence)
    said = Path("docs/protocols.md").read_text("utf-8")
    assert "66,368 values" in said
    assert f"{256 * len(tokens):,} tokens" in said
    both = {"inputs": ["a"], "texts": [["a"] * 1000] * 256}
    assert_problem(post(tei, both, PATH), 422, "invalid-request")


def test_a_long_text_is_cut_and_many_are_written_in_pieces(tei: Service) -> None:
    """As natively, each time with its own row."""
    texts = [LONG, *(f"text number {i}" for i in range(255))]
    assert close(ask(tei, PATH, id=1, texts=texts)["results"], native(tei, texts))


def test_a_model_may_be_named(tei: Service) -> None:
    """With its default prompt, as natively."""
    answer = ask(tei, PATH, id=1, texts=["the man"], model="prompted")
    assert close(answer["result"], native(tei, ["the man"], model="prompted"))


@pytest.mark.parametrize(
    ("body", "kind", "part"),
    [
        ({"texts": ["a"]}, "KeyError", "id is required"),
        ({"id": 1, "texts": []}, "ValueError", "texts must be a list of at least one string"),
        ({"id": 1, "texts": "a"}, "ValueError", "texts must be a list"),
        ({"id": 1, "texts": ["a", 3]}, "ValueError", "texts.1 must be a string"),
        ({"id": 1, "texts": ["a"], "is_tokenized": True}, "ValueError", "texts.0 must be a list of tokens"),
        ({"id": 1, "texts": [["a"]]}, "ValueError", "texts.0 must be a string"),
        ({"id": 1, "texts": ["a"], "is_tokenized": "no"}, "ValueError", "is_tokenized must be true or false"),
        ({"id": 1, "texts": ["a"] * 257}, "ValueError", "the limit is 256"),
    ],
    ids=str,
)
def test_what_is_not_valid_is_a_400(tei: Service, body: Json, kind: str, part: str) -> None:
    """With the name of an exception, as the original answers."""
    assert_error(post(tei, body, PATH), 400, kind, part)


def test_an_id_that_could_not_be_repeated_is_refused(tei: Service) -> None:
    """More levels are read than written: the answer would fail when the vectors are computed already."""
    for levels, status in ((250, 200), (300, 400)):
        identity: object = 1
        for _ in range(levels):
            identity = [identity]
        answer = post(tei, {"id": identity, "texts": ["a"]}, PATH)
        assert answer.status_code == status
    assert_error(answer, 400, "ValueError", "id has more than 253 levels")


def test_other_errors_have_the_same_form(tei: Service) -> None:
    """An unknown model; a deadline that has passed."""
    body = {"id": 1, "texts": ["a"], "model": "x"}
    assert_error(post(tei, body, PATH), 404, "ValueError", "the models are: mini")
    late = post(tei, {"id": 1, "texts": [LONG] * 256}, PATH, X_Request_Timeout_Ms="1")
    assert_error(late, 504, "TimeoutError", "was not ready within")


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({}, "inputs is required"),
        ({"id": 1}, "inputs is required"),
        ({"inputs": "a", "texts": ["a"]}, "texts is not a known field"),
        ({"inputs": "a", "id": 1}, "id is not a known field"),
        ({"inputs": "a", "layers": [0] * 5000}, "layers has 5000 items and the limit is 4096"),
        ([], "must be a JSON object"),
    ],
    ids=str,
)
def test_what_is_not_of_this_contract_is_native(tei: Service, body: object, part: str) -> None:
    """And so are its errors."""
    assert part in assert_problem(post(tei, body, PATH), 422, "invalid-request")["detail"]


def test_the_status_says_what_is_served(tei: Service) -> None:
    """Of the server, and of the client, each with the status of HTTP."""
    assert tei.http.get("/status/server").json() == {
        "model_dir": "mini",
        "max_seq_len": 256,
        "max_batch_size": 256,
        "pooling_layer": [-2],
        "pooling_strategy": "mean",
        "cpu": True,
        "server_version": tei.http.get("/info").json()["version"],
        "status": 200,
    }
    client = tei.http.get("/status/client", headers={"X-Request-ID": "me"}).json()
    assert (client["identity"], client["output_fmt"], client["status"]) == ("me", "list", 200)


def test_the_status_needs_a_key() -> None:
    """As `/info` does, with an error of this protocol."""
    with serve(api_keys="key-0123456789abcdef") as guarded:
        assert_error(guarded.http.get("/status/server"), 401, "ValueError", "key")
