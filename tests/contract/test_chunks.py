"""`chunks` of `POST /encode`: vectors of parts of a text, from one pass over all of it."""

import json
from typing import Any

import numpy as np
import pytest

from tests.references.comparing import distance
from tests.support.backends import both_backends
from tests.support.serving import (
    NDJSON,
    NPZ,
    SAFETENSORS,
    Json,
    Service,
    assert_problem,
    read_npz,
    read_safetensors,
)

pytestmark = both_backends

TEXT = "The cat sat on the mat. It slept!  Then a dog, unbelievably 🙂, barked? 日本語。"
LONG = " ".join(f"Word{i} runs." for i in range(200))


def chunked(service: Service, text: str, chunks: object, **options: object) -> Json:
    """The item of one text, with its last hidden state."""
    (item,) = service.encode(text, chunks=chunks, outputs=["tokens"], **options)["data"]
    assert "embedding" not in item
    return dict(item)


def tokens_within(item: Json, start: int, end: int, prompt: int = 0) -> list[int]:
    """The tokens whose first character is in [start, end), by definition."""
    return [
        i
        for i, (first, _) in enumerate(item["offsets"])
        if i >= prompt and not item["special"][i] and start <= first < end
    ]


def assert_pooled(item: Json, spans: list[list[int]], prompt: int = 0, dimensions: int | None = None) -> None:
    """Every vector is the unit mean over the tokens that begin in its span."""
    states = np.array(item["token_embeddings"][0], np.float64)
    chunks = item["chunks"]
    assert [len(chunks[name]) for name in ("embeddings", "token_spans", "offsets")] == [len(spans)] * 3
    for (start, end), found, vector in zip(spans, chunks["token_spans"], chunks["embeddings"], strict=True):
        places = tokens_within(item, start, end, prompt)
        assert found == [places[0], places[-1] + 1]
        mean = states[places].mean(0)[:dimensions]
        assert distance(vector, mean / np.linalg.norm(mean)) <= 1e-6


def test_listed_chunks_are_means_over_the_tokens_that_begin_in_them(service: Service) -> None:
    """Spans may overlap, repeat, and end within a token: its first character decides."""
    spans = [[0, 23], [4, 30], [8, 10], [8, 10], [46, 53], [62, len(TEXT)], [0, len(TEXT)]]
    item = chunked(service, TEXT, spans)
    assert item["chunks"]["offsets"] == spans
    assert_pooled(item, spans)
    inside = item["chunks"]["token_spans"][-1]
    assert inside == [1, len(item["tokens"]) - 1], "special tokens belong to no chunk"


def test_chunks_are_cut_like_sentence_vectors(service: Service) -> None:
    """The first components, then the norm; without it, the mean itself."""
    spans = [[0, 23], [24, 33]]
    assert_pooled(chunked(service, TEXT, spans, dimensions=40), spans, dimensions=40)
    item = chunked(service, TEXT, spans, normalize=False)
    states = np.array(item["token_embeddings"][0])
    for (first, after), vector in zip(
        item["chunks"]["token_spans"], item["chunks"]["embeddings"], strict=True
    ):
        assert distance(vector, states[first:after].mean(0)) <= 1e-6


def test_sentences_are_chunks(service: Service) -> None:
    """Each sentence of each text has a vector; an empty text has none."""
    data = service.encode([TEXT, "", "no mark"], chunks="sentences", outputs=["tokens"])["data"]
    found = [
        [text[a:b] for a, b in item["chunks"]["offsets"]]
        for text, item in zip([TEXT, "", "no mark"], data, strict=True)
    ]
    assert found == [
        ["The cat sat on the mat.", "It slept!", "Then a dog, unbelievably 🙂, barked?", "日本語。"],
        [],
        ["no mark"],
    ]
    for item in data:
        assert_pooled(item, item["chunks"]["offsets"])
    assert data[1]["chunks"] == {"offsets": [], "token_spans": [], "embeddings": []}


@pytest.mark.parametrize(("size", "overlap"), [(1, 0), (4, 0), (4, 1), (5, 4), (1000, 999)])
def test_windows_cover_every_token_of_the_text(service: Service, size: int, overlap: int) -> None:
    """A window begins `tokens` − `overlap` tokens after the one before, and the last one may be shorter."""
    item = chunked(service, TEXT, {"tokens": size, "overlap": overlap}, prompt="query: ")
    (prompt,) = [i for i, token in enumerate(item["tokens"]) if token == "the"][:1]
    last = len(item["tokens"]) - 1
    expected, first = list[list[int]](), prompt
    while not expected or expected[-1][1] < last:
        expected.append([first, min(first + size, last)])
        first += size - overlap
    assert item["chunks"]["token_spans"] == expected
    spans = [[item["offsets"][a][0], item["offsets"][b - 1][1]] for a, b in expected]
    assert item["chunks"]["offsets"] == spans
    assert_pooled(item, spans, prompt)


def test_a_prompt_belongs_to_no_chunk(several: Service) -> None:
    """Offsets are those of the text alone, whatever the model reads before it."""
    text = "hello man. beats boy"
    (item,) = several.encode(text, model="prompted", chunks=[[0, 20]], outputs=["tokens"], normalize=True)[
        "data"
    ]
    prompt = item["offsets"].index([0, 5])
    assert prompt > 1
    assert item["chunks"]["token_spans"] == [[prompt, len(item["tokens"]) - 1]]
    assert_pooled(item, [[0, 20]], prompt)


def test_a_chunk_knows_its_neighbours(service: Service) -> None:
    """The whole text is read at once: the same words after other words have another vector."""
    first, second = "The bank was steep.", "The bank was closed on Sunday."
    same = "It was of no use to her."
    vectors = []
    for before in (first, second):
        text = f"{before} {same}"
        item = chunked(service, text, "sentences")
        assert text[slice(*item["chunks"]["offsets"][1])] == same
        vectors.append(item["chunks"]["embeddings"][1])
    assert distance(*vectors) > 0.01


def test_outputs_decide_on_the_vectors_of_the_whole_text(service: Service) -> None:
    """The sentence vector stays the default beside chunks; an empty list leaves only them."""
    answer = service.encode(TEXT, chunks="sentences")
    (both,) = answer["data"]
    (only,) = service.encode(TEXT, chunks="sentences", outputs=[])["data"]
    assert both["embedding"] == service.encode(TEXT)["data"][0]["embedding"]
    assert distance(both["chunks"]["embeddings"], only["chunks"]["embeddings"]) <= 2e-6
    assert not {"embedding", "token_embeddings"} & only.keys()
    assert answer["usage"]["input_tokens"] == len(both["tokens"]), "the text is run once"


@pytest.mark.in_turns
@pytest.mark.parametrize("precision", ["float32", "int8", "ubinary"])
@pytest.mark.parametrize("kind", [NPZ, SAFETENSORS, NDJSON])
def test_every_format_has_the_same_chunks(service: Service, kind: str, precision: str) -> None:
    """Files have them as the array `i.chunks`, and where they are with the rest of the item."""
    body = {"inputs": [TEXT, "", LONG], "chunks": "sentences", "outputs": [], "precision": precision}
    expected = service.http.post("/encode", json=body).json()["data"]
    response = service.http.post("/encode", json=body, headers={"Accept": kind})
    assert response.status_code == 200, response.text
    if kind == NDJSON:
        items = sorted(map(json.loads, response.text.splitlines()[:-1]), key=lambda item: int(item["index"]))
        vectors: list[Any] = [item["chunks"].pop("embeddings") for item in items]
    else:
        arrays, rest = (read_npz if kind == NPZ else read_safetensors)(response.content)
        items = rest["data"]
        vectors = [arrays[f"{i}.chunks"] for i in range(3)]
        assert vectors[1].shape == (0, 48 if precision == "ubinary" else 384)
        assert vectors[0].dtype == {"ubinary": "uint8"}.get(precision, precision)
    for item, other, found in zip(items, expected, vectors, strict=True):
        exact = other["chunks"].pop("embeddings")
        assert item == other
        close = {"float32": 2e-6, "int8": 1}.get(precision, 0)
        assert len(found) == len(exact)
        assert not exact or np.abs(np.asarray(found, float) - np.asarray(exact, float)).max() <= close


REFUSED: dict[str, tuple[Json, str, str]] = {
    "white space": ({"chunks": [[0, 3], [23, 24]]}, "chunks.1", "only white space"),
    "outside": ({"chunks": [[0, 3], [4, 7], [70, 99]]}, "chunks.2", "code points, not bytes"),
    "huge": ({"chunks": [[0, 1e30]]}, "chunks.0", "code points, not bytes"),
    "within a token": ({"chunks": [[1, 3]]}, "chunks.0", "no token begins there"),
    "reversed": ({"chunks": [[3, 1]]}, "chunks.0", "less than end"),
    "negative": ({"chunks": [[-1, 1]]}, "chunks.0", "at least 0"),
    "not a span": ({"chunks": [[0, 1], 3]}, "chunks.1", "[start, end]"),
    "not a number": ({"chunks": [["0", 1]]}, "chunks.0", "integer"),
    "none": ({"chunks": []}, "chunks", '"sentences"'),
    "too many": ({"chunks": [[0, 3]] * 4097}, "chunks", "limit is 4096: send the rest in another request"),
    "unknown name": ({"chunks": "words"}, "chunks", '"sentences"'),
    "no tokens": ({"chunks": {"overlap": 1}}, "chunks.tokens", "missing"),
    "zero tokens": ({"chunks": {"tokens": 0}}, "chunks.tokens", "at least 1"),
    "all overlap": ({"chunks": {"tokens": 3, "overlap": 3}}, "chunks.overlap", "0 to 2"),
    "unknown field": ({"chunks": {"tokens": 3, "size": 3}}, "chunks", '"size"'),
    "several texts": ({"inputs": ["a", "b"], "chunks": [[0, 1]]}, "chunks", "one text per request"),
    "pairs": ({"inputs": [["a", "b"]], "chunks": "sentences"}, "chunks", "pairs"),
    "pooling": ({"chunks": "sentences", "pooling": "cls"}, "pooling", '"mean"'),
    "layers": ({"chunks": "sentences", "pooling_layers": [2]}, "pooling_layers", "last hidden state"),
    "no outputs": ({"outputs": []}, "outputs", "chunks"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_a_chunk_is_refused(service: Service, name: str) -> None:
    """The answer names the chunk or the field, why, and what to do instead."""
    body, field, says = REFUSED[name]
    response = service.http.post("/encode", json={"inputs": TEXT, **body})
    problem = assert_problem(response, 422, "invalid-request")
    assert problem["field"] == field
    assert says in problem["detail"]


def test_an_empty_text_has_no_listed_chunks(service: Service) -> None:
    """There is nothing to list in it."""
    response = service.http.post("/encode", json={"inputs": "", "chunks": [[0, 1]]})
    assert assert_problem(response, 422, "invalid-request")["field"] == "chunks.0"
