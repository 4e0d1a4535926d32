"""The contract of OpenAI, which Jina and Voyage share, by plain HTTP over a real socket."""

from base64 import b64decode
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.references.comparing import distance
from tests.support.doubles import POISON
from tests.support.serving import KEY, LONG, Json, Service, post
from tests.support.tei import TEXT, TEXTS, ask

PATH = "/v1/embeddings"


def vectors(service: Service, **body: object) -> Any:
    """The vectors of a request, whose items must be in order."""
    data = ask(service, PATH, **body)["data"]
    assert [one["index"] for one in data] == [*range(len(data))]
    assert {one["object"] for one in data} == {"embedding"}
    return [one["embedding"] for one in data]


def assert_error(response: httpx.Response, status: int, param: str | None, part: str) -> None:
    """Check that an answer is an error that the clients of OpenAI, Jina, Voyage and Cohere can read."""
    assert response.status_code == status, response.text
    body = response.json()
    assert list(body) == ["error", "detail", "message", "id"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    assert body["error"]["param"] == param
    assert part in body["error"]["message"] == body["detail"] == body["message"]
    assert body["id"] == response.headers["x-request-id"]


def test_vectors_are_those_of_the_native_route(tei: Service) -> None:
    """Of one text and several, in a list with true usage."""
    native = tei.encode([TEXT, *TEXTS], normalize=True)
    expected = [item["embedding"] for item in native["data"]]
    whole = ask(tei, PATH, input=[TEXT, *TEXTS], model="mini")
    assert whole["object"] == "list"
    assert whole["model"] == "mini"
    tokens = native["usage"]["input_tokens"]
    assert whole["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert distance([one["embedding"] for one in whole["data"]], expected) <= 2e-6
    assert distance(vectors(tei, input=TEXT), expected[:1]) <= 2e-6
    for given in ([{"text": TEXT}], {"text": TEXT}):
        assert distance(vectors(tei, input=given), expected[:1]) <= 2e-6


@pytest.mark.parametrize(
    ("asked", "precision", "dtype"),
    [
        ({"encoding_format": "base64"}, "float32", np.float32),
        ({"embedding_type": ["base64"]}, "float32", np.float32),
        ({"output_dtype": "int8", "encoding_format": "base64"}, "int8", np.int8),
        ({"output_dtype": "ubinary", "encoding_format": "base64"}, "ubinary", np.uint8),
        ({"encoding_type": "binary"}, "binary", np.int8),
        ({"output_dtype": "uint8"}, "uint8", np.uint8),
    ],
)
def test_numbers_have_the_type_asked_for(
    tei: Service, asked: Json, precision: str, dtype: type[np.generic]
) -> None:
    """In base64 the bytes of the native numbers, else the numbers."""
    expected = tei.encode([TEXT], normalize=True, precision=precision)["data"][0]["embedding"]
    (found,) = vectors(tei, input=TEXT, **asked)
    if isinstance(found, str):
        found = np.frombuffer(b64decode(found), dtype).tolist()
    assert len(found) == len(expected)
    assert distance(found, expected) <= (2e-6 if precision == "float32" else 1)


def test_bytes_lose_nothing_of_the_numbers(tei: Service) -> None:
    """Those of the same text are the same, bit by bit."""
    (numbers,) = vectors(tei, input=TEXT)
    (octets,) = vectors(tei, input=TEXT, encoding_format="base64")
    assert np.float32(numbers).tobytes() == b64decode(octets)


def test_vectors_are_cut_and_scaled_again(tei: Service) -> None:
    """By either name of the field."""
    expected = tei.encode([TEXT], normalize=True, dimensions=8)["data"][0]["embedding"]
    for name in ("dimensions", "output_dimension"):
        assert distance(vectors(tei, input=TEXT, **{name: 8}), [expected]) <= 2e-6
    assert_error(post(tei, {"input": TEXT, "dimensions": 0}, PATH), 400, "dimensions", "at least 1")
    for name in ("dimensions", "output_dimension"):
        for parts in (False, True):
            refused = post(tei, {"input": TEXT, name: 385, "late_chunking": parts}, PATH)
            assert_error(refused, 400, name, f"{name} is 385")


def test_ids_run_as_they_are_sent(tei: Service) -> None:
    """A list of numbers is one input; ids of a text, with its special tokens, give its vector."""
    ids = [item["token_ids"] for item in tei.encode([TEXT, TEXTS[0]])["data"]]
    expected = vectors(tei, input=[TEXT, TEXTS[0]])
    assert distance(vectors(tei, input=ids), expected) <= 2e-6
    assert distance(vectors(tei, input=ids[0]), expected[:1]) <= 2e-6
    whole = ask(tei, PATH, input=ids)
    assert whole["usage"]["prompt_tokens"] == sum(map(len, ids))


@pytest.mark.parametrize(
    "given", [[{"text": 101}, {"text": 102}], [{"text": [101, 102]}], [{"text": None}], [{"image": "a"}]]
)
def test_objects_have_texts_only(tei: Service, given: list[Json]) -> None:
    """An object whose `text` is a number or a list of them is refused: it is neither a text nor ids."""
    refused = post(tei, {"input": given}, PATH)
    assert_error(refused, 400, "input.0", "input.0 must be a string or a list of token ids")


@pytest.mark.parametrize(
    ("ids", "param"),
    [
        ([[1820, 5679]], "input.0"),
        ([[101, 99999, 102]], "input.0.1"),
        ([[101, 2054]], "input.0"),
        ([1820, 5679], "input"),
        ([101, 99999, 102], "input.1"),
    ],
)
def test_ids_of_another_tokenizer_are_refused(tei: Service, ids: list[Any], param: str) -> None:
    """They would be other words: the error names the place and what to do, whatever the client is."""
    assert_error(post(tei, {"input": ids}, PATH), 400, param, "such as tiktoken, send texts instead.")


def test_parts_of_a_text_run_as_one(tei: Service) -> None:
    """`late_chunking`: the mean of a part's tokens in the whole, as native chunks; usage counts once."""
    parts = ["A man is eating.", " He is hungry.", " It rains."]
    whole, spans = "".join(parts), [[0, 16], [16, 30], [30, 40]]
    native = tei.encode(whole, chunks=spans, outputs=[], normalize=True)
    expected = native["data"][0]["chunks"]["embeddings"]
    answer = ask(tei, PATH, input=parts, late_chunking=True)
    assert distance([one["embedding"] for one in answer["data"]], expected) <= 2e-6
    assert [one["index"] for one in answer["data"]] == [0, 1, 2]
    assert answer["usage"]["total_tokens"] == native["usage"]["input_tokens"]
    (alone,) = vectors(tei, input=parts[1:2], late_chunking=True)
    assert distance(alone, expected[1]) > 1e-3
    refused = post(tei, {"input": [LONG, "a"], "late_chunking": True, "truncate": False}, PATH)
    assert_error(refused, 400, "input", "tokens long")
    assert_error(post(tei, {"input": [[101, 102]], "late_chunking": True}, PATH), 400, "late_chunking", "ids")


@pytest.mark.parametrize(
    ("given", "param", "part"),
    [
        (["a", "", "b"], "input.1", "input.1 is empty, so it has no vector: leave it out"),
        (["a", " \n", "b"], "input.1", "input.1 is only white space, so it has no vector: leave it out"),
        (["a", LONG, "b"], "input.2", "and 256 of its 304 tokens fit: send them in several requests"),
        (["e", "\u0301"], "input.1", "With late_chunking the items of input run as one text"),
        ("", "input", "input is empty"),
    ],
    ids=str,
)
def test_a_part_without_tokens_is_refused_in_the_words_of_the_client(
    tei: Service, given: object, param: str, part: str
) -> None:
    """Nothing is said of chunks and spans, which are of the native route."""
    refused = post(tei, {"input": given, "late_chunking": True, "truncate": True}, PATH)
    assert_error(refused, 400, param, part)
    assert "chunks" not in refused.text


def test_parts_of_several_documents_run_in_their_own(tei: Service) -> None:
    """As `late_chunking` of each document; wrong parts are named."""
    path, documents = "/v1/contextualizedembeddings", [["A man is eating.", " He is hungry."], ["It rains."]]
    answer = ask(tei, path, inputs=documents, input_type="document", output_dtype=None, unknown=1)
    assert [one["index"] for one in answer["data"]] == [0, 1]
    for found, parts in zip(answer["data"], documents, strict=True):
        expected = ask(tei, PATH, input=parts, late_chunking=True)
        assert [one["index"] for one in found["data"]] == [*range(len(parts))]
        vectors_of = [[one["embedding"] for one in some["data"]] for some in (found, expected)]
        assert distance(*vectors_of) <= 2e-6
    (alone,) = ask(tei, path, inputs=[[" He is hungry."]])["data"][0]["data"]
    assert distance(alone["embedding"], answer["data"][0]["data"][1]["embedding"]) > 1e-3
    for body, param, part in (
        ({}, "inputs", "is required"),
        ({"inputs": ["a"]}, "inputs.0", "must be a non-empty list of strings"),
        ({"inputs": [["a"], ["b", ""]]}, "inputs.1.1", "inputs.1.1 is empty"),
        ({"inputs": [["a"], ["b", 3]]}, "inputs.1.1", "inputs.1.1 must be a string"),
        ({"inputs": [["a"], ["e", "\u0301"]]}, "inputs.1.1", "The parts of inputs.1 run as one text"),
        ({"inputs": [["a"]] * 257}, "inputs", "the limit is 256"),
        ({"inputs": [["a"]], "output_dimension": 385}, "output_dimension", "384"),
        ({"inputs": [["a"]], "enable_auto_chunking": True}, "enable_auto_chunking", "must be false: send"),
        ({"inputs": [["a"]], "enable_auto_chunking": 0}, "enable_auto_chunking", "must be false"),
    ):
        assert_error(post(tei, body, path), 400, param, part)


def test_truncation_is_reported_or_refused(tei: Service) -> None:
    """A header counts the texts that were cut; either client's field refuses them."""
    cut = post(tei, {"input": [LONG, TEXT, LONG]}, PATH)
    assert cut.headers["x-truncated-inputs"] == "2"
    covered = [item["covered"][0] for item in tei.encode([LONG])["data"]]
    assert cut.headers["x-covered"] == ", ".join(
        f"{i}={start}-{end}" for i in (0, 2) for start, end in covered
    )
    assert "x-truncated-inputs" not in post(tei, {"input": TEXT}, PATH).headers
    for name in ("truncate", "truncation"):
        assert_error(post(tei, {"input": [TEXT, LONG], name: False}, PATH), 400, "input.1", "tokens long")


@pytest.mark.parametrize(
    ("path", "fields", "way_out"),
    [
        ("/v1/embeddings", {"input": LONG, "truncate": False}, 'leave out "truncate": false to have it cut.'),
        (
            "/v1/embeddings",
            {"input": LONG, "truncation": False},
            'leave out "truncation": false to have it cut.',
        ),
        (
            "/v1/embeddings",
            {"input": ["a", LONG], "late_chunking": True, "truncation": False},
            'leave out "truncation": false to have it read in windows.',
        ),
        (
            "/v1/embeddings",
            {"input": ["a"], "late_chunking": True, "truncate": True, "overlap": 3},
            "and neither truncate nor truncate_prompt_tokens: leave it out.",
        ),
        (
            "/v1/embeddings",
            {"input": ["a"], "overlap": 3},
            "and neither truncate nor truncate_prompt_tokens: leave it out.",
        ),
        (
            "/v1/contextualizedembeddings",
            {"inputs": [["a", LONG]], "overlap": 254},
            "overlap is 254, but a window has only 254 tokens of the text: choose 0 to 253.",
        ),
        (
            "/v1/contextualizedembeddings",
            {"inputs": [["a"] * 40_000]},
            "send fewer documents, or split a document with many parts into several.",
        ),
        (
            "/v1/embeddings",
            {"input": ["a"] * 2049, "late_chunking": True},
            "join some of them, or send the text to /encode with `chunks`.",
        ),
        ("/v1/embed", {"texts": [LONG], "truncate": "NONE"}, 'leave out "truncate": "NONE" to have it cut.'),
        ("/v1/tokenize", {"text": LONG}, ": shorten it."),
        (
            "/v1/rerank",
            {"query": "a", "documents": [LONG], "truncation": False},
            'leave out "truncation": false to have it cut.',
        ),
    ],
)
def test_the_way_out_of_a_long_text_is_one_that_the_route_has(
    tei: Service, path: str, fields: Json, way_out: str
) -> None:
    """Each route names its own option, and none where it has none."""
    refused = post(tei, fields, path)
    assert refused.status_code == 400
    assert refused.json()["detail"].endswith(way_out), refused.text


def test_unknown_and_null_fields_do_no_harm(tei: Service) -> None:
    """Clients send fields that servers do not know, and null for what was not set."""
    names = ("model", "dimensions", "encoding_format", "input_type", "output_dtype", "truncation", "task")
    nulls = dict.fromkeys(names)
    assert vectors(tei, input=TEXT, user="me", **nulls) == vectors(tei, input=TEXT)


@pytest.mark.parametrize(
    ("body", "param", "part"),
    [
        ({}, "input", "is required"),
        ({"input": []}, "input", "must not be empty"),
        ({"input": [[]]}, "input.0", "input.0 is an empty list: send a text, or at least one token id"),
        ({"input": ["", [101, 102], [], "a"]}, "input.2", "input.2 is an empty list"),
        ({"input": 3}, "input", "must be a string"),
        ({"input": [1.5]}, "input.0", "must be an integer"),
        ({"input": [-1]}, "input.0", "input.0 is -1, which is not a token id of this model"),
        ({"input": [{"image": "x"}]}, "input.0", "must be a string"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format", "'base64'"),
        (
            {"input": "a", "embedding_type": ["float", "base64"]},
            "embedding_type",
            "embedding_type has 2 types and the limit is 1: send a request for each type",
        ),
        ({"input": "a", "encoding_type": []}, "encoding_type", "is an empty list: send one type"),
        ({"input": "a", "prompt_name": "x"}, "prompt_name", "has no prompts: leave it out"),
        (
            {"input": "a", "normalized": False, "encoding_type": "int8"},
            "normalized",
            'normalized is false, but the encoding_type "int8" needs',
        ),
        (
            {"input": "a", "output_dimension": 12, "output_dtype": "binary"},
            "output_dimension",
            'output_dtype is "binary", which packs 8 components into a byte, but the vectors have 12: set '
            "`output_dimension`",
        ),
    ],
    ids=str,
)
def test_errors_name_the_field(tei: Service, body: Json, param: str, part: str) -> None:
    """As 400, which the original has for all of them."""
    assert_error(post(tei, body, PATH), 400, param, part)


@pytest.mark.parametrize(
    ("fields", "param", "part"),
    [
        ({"dimensions": 8, "output_dimension": 16}, "output_dimension", "is 16 and dimensions is 8"),
        ({"truncate": True, "truncation": False}, "truncation", "is false and truncate is true"),
        (
            {"output_dtype": "int8", "embedding_type": "binary"},
            "embedding_type",
            'and output_dtype is "int8"',
        ),
        ({"output_dtype": "float", "encoding_type": "int8"}, "encoding_type", 'and output_dtype is "float"'),
        (
            {"embedding_type": ["float"], "encoding_type": "int8"},
            "encoding_type",
            'embedding_type is "float"',
        ),
        ({"encoding_format": "float", "embedding_type": "base64"}, "embedding_type", "encoding_format is"),
    ],
    ids=str,
)
def test_fields_of_one_meaning_do_not_contradict_each_other(
    tei: Service, fields: Json, param: str, part: str
) -> None:
    """No client can mean both values: the error has both."""
    assert_error(post(tei, {"input": "a", **fields}, PATH), 400, param, part)


def test_fields_of_one_meaning_may_agree(tei: Service) -> None:
    """Also with the default of OpenAI's client, which is bytes, beside Jina's type of numbers."""
    twins: Json = {"dimensions": 8, "output_dimension": 8, "truncate": True, "truncation": True}
    assert len(vectors(tei, input="a", **twins)[0]) == 8
    bytes_of: Json = {"output_dtype": "int8", "encoding_type": "int8", "embedding_type": "base64"}
    for more in ({}, {"encoding_format": "base64"}):
        assert len(b64decode(vectors(tei, input="a", **bytes_of, **more)[0])) == 384
    floats = vectors(tei, input="a", embedding_type="float", encoding_format="base64")[0]
    assert len(b64decode(floats)) == 4 * 384


def test_a_query_parameter_of_azure_is_refused(tei: Service) -> None:
    """It is not enough to ignore: Azure's client also has another path and another header for its key."""
    refused = post(tei, {"input": "a"}, f"{PATH}?api-version=2024-10-21")
    assert_error(refused, 400, "query.api-version", "leave it out")
    assert "/openai/deployments/{model}/embeddings" in Path("docs/protocols.md").read_text("utf-8")


@pytest.mark.thorough
def test_a_request_has_as_many_inputs_as_the_original_takes(tei: Service, strict: Service) -> None:
    """2048 texts, or lists of ids, in one request; a limit that is set holds here, too."""
    texts = [f"Text number {i}." for i in range(2048)]
    found = vectors(tei, input=texts)
    assert len(found) == 2048
    native = [item["embedding"] for item in tei.encode(texts[-256:], normalize=True)["data"]]
    assert distance(found[-256:], native) <= 2e-6
    assert len(vectors(tei, input=[[101, 1037, 102]] * 2048)) == 2048
    assert_error(post(strict, {"input": ["a"] * 5}, PATH), 400, "input", "the limit is 4")


def test_other_errors_have_the_same_form(tei: Service) -> None:
    """An unknown model, no JSON, and too many inputs."""
    unknown = post(tei, {"input": "a", "model": "text-embedding-3-small"}, PATH)
    assert_error(unknown, 404, "model", "the models are: mini")
    assert unknown.json()["error"]["code"] == "model_not_found"
    assert_error(tei.http.post(PATH, content=b"{"), 400, "body", "not valid JSON")
    for count in (2049, 40_000):
        many = post(tei, {"input": ["a"] * count}, PATH)
        assert_error(many, 400, "input", f"input has {count} items and the limit is 2048: split them")
    assert_error(tei.http.get(PATH), 405, None, "supports POST")


def test_what_would_fail_again_says_so(failing: Service) -> None:
    """The library repeats a 5xx unless a header forbids it: a failed computation, and a passed deadline."""
    failed = post(failing, {"input": POISON}, PATH)
    assert_error(failed, 500, None, "")
    tried = (post(failing, {"input": [LONG] * 64}, PATH, X_Request_Timeout_Ms="1") for _ in range(50))
    late = next(one for one in tried if one.status_code != 429)  # 429: behind the batch that failed
    assert_error(late, 504, None, "was not ready within")
    assert [one.headers["x-should-retry"] for one in (failed, late)] == ["false", "false"]
    refused = post(failing, {"input": "a", "dimensions": 0}, PATH)
    assert "x-should-retry" not in refused.headers


def test_keys_are_asked_for(guarded: Service) -> None:
    """With the code that the SDK knows; where none are set, any key is ignored."""
    refused = post(guarded, {"input": "a"}, PATH)
    assert_error(refused, 401, "Authorization", "key")
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert refused.json()["error"]["type"] == "authentication_error"
    assert guarded.http.get("/v1/models").status_code == 401
    assert guarded.http.get("/v1/check-api-key").status_code == 401
    assert post(guarded, {}, "/v1/check-api-key").status_code == 401
    for method in ("GET", "POST"):
        valid = guarded.http.request(method, "/v1/check-api-key", headers={"Authorization": f"Bearer {KEY}"})
        assert valid.json() == {"valid": True}
    assert post(guarded, {"input": "a"}, PATH, Authorization=f"Bearer {KEY}").status_code == 200
