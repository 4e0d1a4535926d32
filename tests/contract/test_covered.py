"""What was read of a text that is cut: every route says so, in its items or in a header."""

import httpx
import pytest

from tests.references.checkpoints import Reference
from tests.support.serving import Json, Service

SHORT, LONG = "A man is eating.", "  " + " ".join(f"Word{i} runs 🙂 fast." for i in range(200))
LIMIT = 256


def read_of(reference: Reference, text: str | tuple[str, str], side: str = "right") -> list[list[int]]:
    """The first and the last character of what the reference's tokenizer keeps, of each text of an input."""
    columns = reference.tokenize(text, LIMIT, side)
    found: list[list[tuple[int, int]]] = [[], []]
    for offset, which in zip(columns["offset_mapping"], columns["token_type_ids"], strict=True):
        if offset != (0, 0):
            found[which].append(offset)
    return [[offsets[0][0], offsets[-1][1]] for offsets in found if offsets]


def header(spans: list[list[int]], index: int | str) -> str:
    """An entry of `X-Covered`."""
    return f"{index}={'/'.join(f'{start}-{end}' for start, end in spans)}"


def post(service: Service, path: str, body: Json) -> httpx.Response:
    """Ask; whatever the route, the answer is good."""
    response = service.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response


NATIVE: dict[str, Json] = {
    "/encode": {"inputs": [SHORT, LONG], "columns": []},
    "/attention": {"inputs": [SHORT, LONG], "layers": [0], "heads": [0], "queries": [0], "columns": []},
    "/tokenize": {"inputs": [SHORT, LONG]},
}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("path", NATIVE)
def test_items_of_native_routes_say_what_was_read(
    service: Service, reference: Reference, path: str, side: str
) -> None:
    """Only of texts that were cut, in code points, at both sides; the header says the same."""
    response = post(service, path, NATIVE[path] | {"truncation_side": side})
    short, long = response.json()["data"]
    expected = read_of(reference, LONG, side)
    assert "covered" not in short
    assert long["covered"] == expected
    assert expected[0][0] > 0
    assert response.headers["X-Truncated-Inputs"] == "1"
    assert response.headers["X-Covered"] == header(expected, 1)


def test_of_a_pair_both_texts_are_said(service: Service, reference: Reference) -> None:
    """The longer one is cut first."""
    response = post(service, "/encode", {"inputs": [[SHORT, LONG], [LONG, LONG]]})
    pairs = [(SHORT, LONG), (LONG, LONG)]
    for index, (item, pair) in enumerate(zip(response.json()["data"], pairs, strict=True)):
        assert item["covered"] == read_of(reference, pair)
        assert header(item["covered"], index) in response.headers["X-Covered"]
    assert len(response.json()["data"][1]["covered"]) == 2


def test_a_prompt_is_no_part_of_the_text(service: Service) -> None:
    """What is read is counted from the beginning of the text alone."""
    (item,) = service.encode(LONG, prompt="query: ")["data"]
    ran = [o for o, s in zip(item["offsets"], item["special"], strict=True) if not s and o[1]]
    assert item["covered"] == [[2, ran[-1][1]]]


OTHERS: dict[str, tuple[str, Json, int]] = {
    "similarity": ("/similarity", {"texts": [SHORT, LONG]}, 1),
    "rerank": ("/rerank", {"query": SHORT, "texts": [SHORT, LONG]}, 1),
    "openai": ("/v1/embeddings", {"input": [SHORT, LONG]}, 1),
    "cut parts": ("/v1/embeddings", {"input": [LONG], "late_chunking": True, "truncate": True}, 0),
    "cohere": ("/v1/embed", {"texts": [SHORT, LONG], "input_type": "search_document"}, 1),
    "cohere 2": (
        "/v2/embed",
        {"texts": [SHORT, LONG], "input_type": "search_document", "embedding_types": ["float"]},
        1,
    ),
    "cohere rerank": ("/v2/rerank", {"query": SHORT, "documents": [SHORT, LONG]}, 1),
    "tei": ("/tei/embed", {"inputs": [SHORT, LONG], "truncate": True}, 1),
    "tei similarity": ("/tei/similarity", {"inputs": {"source_sentence": SHORT, "sentences": [LONG]}}, 1),
    "ollama": ("/api/embed", {"model": "all-MiniLM-L6-v2", "input": [SHORT, LONG]}, 1),
    "oip": (
        "/v2/models/all-MiniLM-L6-v2/infer",
        {"inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": [SHORT, LONG]}]},
        1,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_header_says_it_where_the_protocol_has_no_field(
    service: Service, reference: Reference, name: str
) -> None:
    """On every route that cuts."""
    path, body, index = OTHERS[name]
    response = post(service, path, body)
    assert response.headers["X-Truncated-Inputs"] == "1"
    assert response.headers["X-Covered"] == header(read_of(reference, LONG), index)


def test_a_query_that_is_cut_is_said(service: Service, reference: Reference) -> None:
    """It runs apart from the texts, which are counted."""
    response = post(service, "/rerank", {"query": LONG, "texts": [SHORT, LONG]})
    read = read_of(reference, LONG)
    assert response.headers["X-Covered"] == ", ".join((header(read, "query"), header(read, 1)))
    assert response.headers["X-Truncated-Inputs"] == "1"
    alone = post(service, "/rerank", {"query": LONG, "texts": [SHORT]})
    assert alone.headers["X-Covered"] == header(read, "query")
    assert "X-Truncated-Inputs" not in alone.headers


@pytest.mark.parametrize("method", ["parts", "occlusion", pytest.param("heads", marks=pytest.mark.thorough)])
def test_of_texts_that_are_compared_both_are_said(
    service: Service, reference: Reference, method: str
) -> None:
    """They run apart, and their item says of each what was read, as the header does."""
    unit = {} if method == "heads" else {"unit": "sentence"}
    long = "  " + "Word 🙂 " * 200 + "."
    body = {"inputs": [[SHORT, SHORT], [SHORT, long]], "method": method, **unit}
    response = post(service, "/explain", body)
    whole, cut = response.json()["data"]
    read = read_of(reference, SHORT) + read_of(reference, long)
    assert "covered" not in whole
    assert cut["covered"] == read
    assert response.headers["X-Truncated-Inputs"] == "1"
    assert response.headers["X-Covered"] == header(read, 1)


def test_headers_stay_short(service: Service) -> None:
    """Clients limit the heads of answers: of many texts only the first hundred are listed."""
    response = post(service, "/v1/embeddings", {"input": [SHORT] * 120, "truncate_prompt_tokens": 4})
    assert response.headers["X-Truncated-Inputs"] == "120"
    assert len(response.headers["X-Covered"].split(", ")) == 100


def test_nothing_is_said_where_all_was_read(service: Service) -> None:
    """Answers to short texts have no such header."""
    headers = post(service, "/encode", {"inputs": SHORT}).headers
    assert "X-Covered" not in headers
    assert "X-Truncated-Inputs" not in headers
