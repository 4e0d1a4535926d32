"""Late chunking of texts longer than the model reads: in windows, as an independent reference has it."""

import json
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from tests.conftest import PROMPTS
from tests.references.checkpoints import Reference
from tests.references.comparing import Array, distance
from tests.references.windows import long_chunks, windows_of
from tests.support.backends import Kept, both_backends, native
from tests.support.families import write_small
from tests.support.serving import NDJSON, NPZ, Json, Service, assert_problem, read_npz, serve

pytestmark = both_backends

TEXT = " ".join(f"Word{i} runs, it is said 🙂. The {i}th man beats the boy!" for i in range(120))
SPANS = [[0, 23], [24, 60], [0, len(TEXT)], [3000, 3100], [2000, 5800], [len(TEXT) - 40, len(TEXT)]]


LIMIT = 256
"""The tokens that the embedded model reads, which the text has several times."""


KNOWN: dict[tuple[int, tuple[int, ...]], Array] = {}


def states(reference: Reference, ids: Sequence[int]) -> Array:
    """The last hidden state of one window, alone: (N, C). Windows come again."""
    key = id(reference), tuple(ids)
    if key not in KNOWN:
        hidden, _ = reference.run(ids, [0] * len(ids))
        KNOWN[key] = np.asarray(hidden[-1], np.float64)
    return KNOWN[key]


def expected(
    reference: Reference,
    text: str,
    limit: int,
    overlap: int | None,
    spans: Sequence[tuple[int, int]],
    prompt: str = "",
) -> Array:
    """The vectors of spans of a text's tokens, of unit length."""
    whole = reference.tokenizer(prompt + text)["input_ids"]
    first = len(reference.tokenizer(prompt)["input_ids"]) - 1
    around = whole[:first], whole[-1:]
    found = long_chunks(partial(states, reference), whole[first:-1], around, limit, overlap, spans)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def token_spans(reference: Reference, text: str, spans: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The tokens of the text, special ones aside, that begin in each span of characters."""
    offsets = reference.tokenizer(text, return_offsets_mapping=True)["offset_mapping"][1:-1]
    inside = [[i for i, (begin, _) in enumerate(offsets) if start <= begin < end] for start, end in spans]
    return [(places[0], places[-1] + 1) for places in inside]


@pytest.mark.parametrize("overlap", [None, 0, 1, pytest.param(150, marks=pytest.mark.thorough)])
def test_chunks_of_a_long_text_are_those_of_its_windows(
    service: Service, reference: Reference, overlap: int | None
) -> None:
    """Each is from the window with most of its context; what no window has whole is from several."""
    options = {} if overlap is None else {"overlap": overlap}
    (item,) = service.encode(TEXT, chunks=SPANS, outputs=[], **options)["data"]
    spans = token_spans(reference, TEXT, SPANS)
    assert item["chunks"]["offsets"] == SPANS
    assert item["chunks"]["token_spans"] == [[1 + first, 1 + after] for first, after in spans]
    tokens, room = len(item["tokens"]) - 2, LIMIT - 2
    assert item["original_length"] == tokens + 2 > 2 * LIMIT
    assert item["truncated"] is False
    assert "covered" not in item
    windows = windows_of(tokens, room, room // 4 if overlap is None else overlap)
    assert item["chunks"]["windows"] == [[1 + first, 1 + after] for first, after in windows]
    exact = expected(reference, TEXT, LIMIT, overlap, spans)
    assert distance(item["chunks"]["embeddings"], exact) <= 2e-6


@pytest.mark.parametrize("chunks", ["sentences", {"tokens": 40, "overlap": 10}, {"tokens": 700}])
def test_every_part_of_a_long_text_has_a_vector(
    service: Service, reference: Reference, chunks: object
) -> None:
    """From its first character to its last one, also of chunks longer than a window."""
    (item,) = service.encode(TEXT, chunks=chunks, outputs=[], columns=[])["data"]
    found = item["chunks"]
    assert (found["offsets"][0][0], found["offsets"][-1][1]) == (0, len(TEXT))
    spans = [(first - 1, after - 1) for first, after in found["token_spans"]]
    assert distance(found["embeddings"], expected(reference, TEXT, LIMIT, None, spans)) <= 2e-6


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_vector_of_a_whole_long_text_says_what_it_covers(service: Service, side: str) -> None:
    """It is that of the truncated text, as without chunks; its item says so, and which part that is."""
    plain = service.http.post("/encode", json={"inputs": TEXT, "truncation_side": side})
    both = service.http.post("/encode", json={"inputs": TEXT, "chunks": "sentences", "truncation_side": side})
    (item,), (short,) = both.json()["data"], plain.json()["data"]
    assert distance(item["embedding"], short["embedding"]) <= 2e-6
    assert item["truncated"] is short["truncated"] is True
    ran = [offset for offset, special in zip(short["offsets"], short["special"], strict=True) if not special]
    assert item["covered"] == short["covered"] == [[ran[0][0], ran[-1][1]]]
    assert item["chunks"]["offsets"][-1][1] == len(TEXT)
    for response in (plain, both):
        assert response.headers["X-Truncated-Inputs"] == "1"
        assert response.headers["X-Covered"] == f"0={ran[0][0]}-{ran[-1][1]}"


def test_vectors_of_tokens_are_those_of_the_windows_too(service: Service, reference: Reference) -> None:
    """All tokens have one, beside their columns; special ones are those at the text's ends."""
    (item,) = service.encode(TEXT, chunks=[[0, 9]], outputs=["tokens"], layers=[-1, 0])["data"]
    found = np.array(item["token_embeddings"])
    tokens = len(item["tokens"])
    assert found.shape == (2, tokens, 384)
    assert item["token_ids"] == reference.tokenizer(TEXT)["input_ids"]
    ids = item["token_ids"][1:-1]
    each = [(i, i + 1) for i in range(len(ids))]
    exact = long_chunks(partial(states, reference), ids, ([101], [102]), LIMIT, None, each)
    assert distance(found[0, 1:-1], exact) <= 1e-5
    first, last = (states(reference, [101, *some, 102]) for some in (ids[: LIMIT - 2], ids[2 - LIMIT :]))
    assert distance(found[0, [0, -1]], np.array([first[0], last[-1]])) <= 1e-5


def test_a_prompt_is_read_in_each_window(several: Service, prompted_reference: Reference) -> None:
    """It takes room there, and belongs to no chunk; positions are those of the model's own limit."""
    text = " ".join(["the man beats the boy, hello world."] * 12)
    spans = [[0, 20], [100, 135], [60, 320], [len(text) - 6, len(text)]]
    (item,) = several.encode(text, model="prompted", chunks=spans, outputs=[], normalize=True)["data"]
    assert item["chunks"]["windows"][1][0] > item["chunks"]["windows"][0][0]
    inside = token_spans(prompted_reference, text, spans)
    exact = expected(prompted_reference, text, 64, None, inside, PROMPTS["query"])
    assert distance(item["chunks"]["embeddings"], exact) <= 2e-6


@pytest.mark.parametrize("family", ["modernbert", "roberta", "xlm-roberta", "nomic_bert"])
def test_positions_begin_anew_in_each_window(
    kept: Kept, backend: str, family: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Rotary ones and those of a table."""
    folder = tmp_path_factory.mktemp("long") / family
    write_small(folder, family, "Model")
    ours = kept.folder(folder, backend)
    reference = Reference.load(folder)
    text = " ".join(["the man beats the boy, hello world."] * 12)
    spans = [[0, 20], [100, 135], [60, 320], [len(text) - 6, len(text)]]
    with serve(model=str(ours), threads=1, dtype="float32", **native(backend)) as started:
        limit = int(started.http.get("/info").json()["models"][0]["max_length"])
        (item,) = started.encode(text, chunks=spans, outputs=[], normalize=True, overlap=20)["data"]
    exact = expected(reference, text, limit, 20, token_spans(reference, text, spans))
    assert distance(item["chunks"]["embeddings"], exact) <= 2e-6


@pytest.mark.parametrize("kind", [NPZ, pytest.param(NDJSON, marks=pytest.mark.thorough)])
def test_long_and_short_texts_are_answered_together(service: Service, kind: str) -> None:
    """In every format, each text has its own chunks; tokens that run are those of all windows."""
    body = {"inputs": ["One. Two.", TEXT, "", TEXT[:4000]], "chunks": "sentences", "columns": []}
    whole = service.http.post("/encode", json=body).json()
    response = service.http.post("/encode", json=body, headers={"Accept": kind})
    assert response.status_code == 200, response.text
    if kind == NDJSON:
        *lines, last = map(json.loads, response.text.splitlines())
        items = sorted(lines, key=lambda item: int(item["index"]))
        vectors = [item["chunks"].pop("embeddings") for item in items]
        usage = last["usage"]
    else:
        arrays, rest = read_npz(response.content)
        items, usage = rest["data"], rest["usage"]
        vectors = [arrays[f"{i}.chunks"] for i in range(4)]
    assert usage == whole["usage"]
    for i, (item, one) in enumerate(zip(items, whole["data"], strict=True)):
        exact = one["chunks"].pop("embeddings")
        assert ("windows" in one["chunks"]) == (i in (1, 3))
        assert item["chunks"] == one["chunks"]
        assert not exact or distance(vectors[i], exact) <= 2e-6


def test_tokens_that_run_are_counted(service: Service) -> None:
    """Windows without a chunk do not run."""
    every = service.encode(TEXT, chunks="sentences", outputs=[])
    one = service.encode(TEXT, chunks=[[0, 9]], outputs=[])
    assert every["usage"]["input_tokens"] == LIMIT * len(every["data"][0]["chunks"]["windows"])
    assert one["usage"]["input_tokens"] == LIMIT


def test_openai_s_route_reads_windows_by_default(service: Service, reference: Reference) -> None:
    """Jina's field and Voyage's route: parts that are too long together for the model lose nothing."""
    parts = [TEXT[start : start + 500] for start in range(0, len(TEXT), 500)]
    ends = [sum(map(len, parts[: i + 1])) for i in range(len(parts))]
    spans = token_spans(reference, TEXT, [*zip([0, *ends], ends, strict=False)])
    for options in ({}, {"overlap": 7}):
        body = {"input": parts, "late_chunking": True, **options}
        answer = service.http.post("/v1/embeddings", json=body)
        assert answer.status_code == 200, answer.text
        assert "X-Covered" not in answer.headers
        exact = expected(reference, TEXT, LIMIT, options.get("overlap"), spans)
        assert distance([one["embedding"] for one in answer.json()["data"]], exact) <= 2e-6
    documents = service.http.post("/v1/contextualizedembeddings", json={"inputs": [parts, ["short"]]}).json()
    found = [one["embedding"] for one in documents["data"][0]["data"]]
    assert distance(found, expected(reference, TEXT, LIMIT, None, spans)) <= 2e-6


REFUSED: dict[str, tuple[Json, int, str, object, object, str]] = {
    "too much overlap": ({"overlap": 254}, 422, "overlap", 254, 253, "choose 0 to 253"),
    "too many windows": ({"overlap": 253}, 413, "inputs.0", None, 2048, "a smaller `overlap`"),
    "a long prompt": ({"prompt": "word " * 600}, 422, "inputs.0", 602, 256, "a shorter prompt"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_windows_have_limits(service: Service, name: str) -> None:
    """The answer names the field, the value, the limit and what to do."""
    options, status, field, actual, limit, says = REFUSED[name]
    body = {"inputs": TEXT + " more" * 3000, "chunks": "sentences", "outputs": [], **options}
    response = service.http.post("/encode", json=body)
    kind = "too-many-inputs" if status == 413 else "invalid-request"
    problem = assert_problem(response, status, kind, field=field, limit=limit)
    assert actual is None or problem["actual"] == actual
    assert says in problem["detail"]


OPTIONS: dict[str, tuple[str, Json]] = {
    "without chunks": ("/encode", {"inputs": "a", "overlap": 3}),
    "without windows": ("/encode", {"inputs": "a", "chunks": "sentences", "truncate": False, "overlap": 3}),
    "negative": ("/encode", {"inputs": "a", "chunks": "sentences", "overlap": -1}),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_overlap_without_effect_is_refused(service: Service, name: str) -> None:
    """It is that of windows."""
    path, body = OPTIONS[name]
    assert_problem(service.http.post(path, json=body), 422, "invalid-request", field="overlap")


def test_whole_texts_can_still_be_demanded(service: Service) -> None:
    """`"truncate": false` refuses what does not fit into one pass, also with chunks."""
    body = {"inputs": TEXT, "chunks": "sentences", "truncate": False}
    problem = assert_problem(service.http.post("/encode", json=body), 422, "input-too-long")
    assert problem["field"] == "inputs.0"
