"""Queries, keys and output norms of `POST /attention`, over HTTP in every format."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headlight_client import Headlight
from model.checkpoints.checkpoint import load_checkpoint
from model.choices import HEAD_VECTORS
from tests.references.comparing import distance, relative_distance
from tests.references.families import Written
from tests.references.head_vectors import Seen, see
from tests.support.exporting import export_silently
from tests.support.families import write_small
from tests.support.serving import (
    JSON,
    NDJSON,
    NPZ,
    ROOT,
    SAFETENSORS,
    Json,
    Service,
    answered,
    assert_problem,
    read_npz,
    read_safetensors,
    serve,
)

ARRAYS = ("query_vectors", "key_vectors", "output_norms")
TEXT = "the man beats a boy"
HEADS = 3


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A decoder with rotary positions and norms of queries and keys, of which all heads share one."""
    return write_small(tmp_path_factory.mktemp("models") / "grouped", "qwen3", "Model")


@pytest.fixture(scope="module")
def served(grouped: Written) -> Iterator[Service]:
    with serve(model=grouped.folder, dtype="float32", threads=1) as started:
        yield started


@pytest.fixture(scope="module")
def expected(grouped: Written) -> Seen:
    """What the reference does with the text."""
    (encoding,) = load_checkpoint(grouped.folder).tokenizer.encode([TEXT])
    return see(grouped, encoding.token_ids, encoding.segment_ids, HEADS)


def ask(service: Service, **body: Any) -> Json:
    (item,) = answered(service.http.post("/attention", json={"inputs": TEXT, **body}))["data"]
    return dict(item)


def dots(item: Json) -> Any:
    q, k = (np.array(item[name], np.float64) for name in ("query_vectors", "key_vectors"))
    return item["score_scale"] * q @ k.swapaxes(-1, -2)


def test_scores_are_rebuilt_from_the_vectors(served: Service, expected: Seen) -> None:
    """They are the logits of eager attention, of the group's key for each head; and norms what heads add."""
    item = ask(served, outputs=HEAD_VECTORS, weights="score", decimals=9)
    seen = expected.logits > -1e30
    assert relative_distance(dots(item)[seen], expected.logits[seen]) <= 1e-5
    assert relative_distance(np.array(item["output_norms"]), expected.norms) <= 1e-5
    assert all((one == "null") == (not known) for one, known in zip(_flat(item), seen.ravel(), strict=True))


def _flat(item: Json) -> list[str]:
    return [json.dumps(one) for layer in item["attention"] for head in layer for row in head for one in row]


def test_rows_and_columns_choose_tokens_of_vectors(served: Service) -> None:
    """Layers, heads, queries and keys in their order, with repeats, with maps and without, beside any map."""
    whole = ask(served, outputs=HEAD_VECTORS)
    count = len(whole["tokens"])
    chosen: Json = {"layers": [2, 0], "heads": [1, 1], "queries": [3, -1], "keys": [2]}
    for others in (
        {},
        {"maps": False},
        {"aggregate": "rollout"},
        {"aggregate": "mean"},
        {"top_k": 1},
        {"thumbnail": 2},
    ):
        item = ask(served, outputs=HEAD_VECTORS, **chosen, **others)
        assert (item["layers"], item["heads"]) == ([2, 0], [1, 1])
        assert (item["queries"], item["keys"]) == ([3, count - 1], [2])
        for name, tokens in zip(ARRAYS, ([3, -1], [2], [3, -1]), strict=True):
            expected = np.array(whole[name])[[2, 0]][:, [1, 1]][:, :, tokens]
            assert distance(np.array(item[name]), expected) <= 1e-6
    assert "attention" not in ask(served, outputs=["key"], maps=False)
    assert "score_scale" not in ask(served, outputs=["output_norm"], maps=False)


def test_special_tokens_are_dropped_from_vectors_too(small_models: Service) -> None:
    """As from maps; a text of nothing has empty arrays, which clients read."""
    item = ask(small_models, outputs=HEAD_VECTORS, special_tokens="drop")
    assert item["queries"] == [i for i, special in enumerate(item["special"]) if not special]
    for name in ARRAYS:
        assert len(item[name][0][0]) == len(item["queries"])
    with Headlight(small_models.url) as client:
        for dtype in ("float32", "float16"):
            (empty,) = client.attention("", special_tokens="drop", outputs=HEAD_VECTORS, dtype=dtype)
            assert empty.key_vectors is not None
            assert empty.output_norms is not None
            assert empty.key_vectors.shape[:3] == empty.output_norms.shape == (3, HEADS, 0)
        (streamed,) = client.stream_attention("", special_tokens="drop", outputs=HEAD_VECTORS)
    assert streamed.output_norms is not None
    assert streamed.output_norms.shape == (3, HEADS, 0)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("form", [NPZ, SAFETENSORS])
def test_files_have_the_same_arrays(form: str, dtype: str, served: Service) -> None:
    """Named like the fields of JSON, within the error that is declared; the scale is in the JSON part."""
    plain = ask(served, outputs=HEAD_VECTORS, maps=False)
    response = served.http.post(
        "/attention",
        json={"inputs": TEXT, "outputs": HEAD_VECTORS, "maps": False},
        params={"dtype": dtype},
        headers={"Accept": form},
    )
    assert response.status_code == 200
    arrays, meta = (read_npz if form == NPZ else read_safetensors)(response.content)
    assert meta["data"][0]["score_scale"] == plain["score_scale"]
    assert set(arrays) == {f"0.{name}" for name in ARRAYS}
    for name in ARRAYS:
        assert arrays[f"0.{name}"].dtype == dtype
        assert distance(arrays[f"0.{name}"], np.array(plain[name])) <= meta["max_error"] + 1e-6


def test_the_client_reads_streams_as_it_reads_files(served: Service) -> None:
    """Both have float32 arrays of the same shapes."""
    with Headlight(served.url) as client:
        (whole,) = client.attention(TEXT, outputs=HEAD_VECTORS, maps=False)
        (line,) = client.stream_attention(TEXT, outputs=HEAD_VECTORS, maps=False)
    assert (whole.score_scale, whole.attention) == (line.score_scale, None)
    for name in ARRAYS:
        one, other = getattr(whole, name), getattr(line, name)
        assert one.dtype == other.dtype == np.float32
        assert distance(one, other) <= 1e-6


def test_the_page_rebuilds_scores(service: Service) -> None:
    """The program in docs/attention.md prints what it shows."""
    page = (ROOT / "docs" / "attention.md").read_text(encoding="utf-8")
    ((code, shown),) = re.findall(
        r"```python\n(import numpy.+?)```\n```text\n(.+?)```", page, flags=re.DOTALL
    )
    begin = f"from headlight_client import Headlight\nclient = Headlight({service.url!r})\n"
    program = [sys.executable, "-c", f"{begin}{code}client.close()"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == shown


@pytest.mark.parametrize(
    ("form", "limit"), [(JSON, 250_000), (NDJSON, 250_000), (NPZ, 60_000), (SAFETENSORS, 60_000)]
)
def test_vectors_count_towards_the_limit(form: str, limit: int, grouped: Written) -> None:
    """What is refused says with how few layers or heads it fits; what is answered fits."""
    body = {"inputs": " ".join([TEXT] * 8), "outputs": HEAD_VECTORS, "maps": False}
    with serve(model=grouped.folder, threads=1, max_response_bytes=limit) as small:
        refused = small.http.post("/attention", json=body, headers={"Accept": form})
        detail = assert_problem(refused, 413, "response-too-large", limit=limit)["detail"]
        ways = re.findall(r"choose at most (\d+) of the `(\w+)`", detail)
        assert {"layers", "heads"} <= {field for _, field in ways}
        for count, field in ways:
            chosen = {field: [*range(int(count))]}
            answer = small.http.post("/attention", json=body | chosen, headers={"Accept": form})
            assert answer.status_code == 200, field
            assert len(answer.content) <= limit


def test_what_cannot_be_is_refused_with_a_way_out(served: Service) -> None:
    """Words have no vectors, and nothing returns values."""
    post = served.http.post
    refused = post("/attention", json={"inputs": TEXT, "outputs": ["query"], "level": "word"})
    detail = assert_problem(refused, 422, "invalid-request", field="level", actual="word")["detail"]
    assert 'set level to "token"' in detail
    refused = post("/attention", json={"inputs": TEXT, "outputs": ["value"]})
    assert_problem(refused, 422, "invalid-request", field="outputs.0")
    refused = post("/attention", json={"inputs": TEXT, "outputs": ["query"], "maps": False, "top_k": 2})
    assert_problem(refused, 422, "invalid-request", field="top_k")


@pytest.mark.thorough
def test_a_graph_has_queries_and_keys_but_no_norms(served: Service, grouped: Written, tmp_path: Path) -> None:
    """Over the same route; its refusal says which backend has the norms of outputs."""
    export_silently(grouped.folder, tmp_path / "graph")
    with serve(model=tmp_path / "graph", threads=1) as graph:
        body = {"inputs": TEXT, "outputs": ["output_norm"]}
        detail = assert_problem(
            graph.http.post("/attention", json=body), 422, "unsupported", field="outputs"
        )["detail"]
        assert 'HEADLIGHT_BACKEND="torch"' in detail
        ours = ask(graph, outputs=["query", "key"], weights="score", decimals=9)
        theirs = ask(served, outputs=["query", "key"])
    for name in ARRAYS[:2]:
        assert relative_distance(np.array(ours[name]), np.array(theirs[name])) <= 1e-4
    scores = np.array(ours["attention"], np.float64)
    seen = np.isfinite(scores)
    assert distance(dots(ours)[seen], scores[seen]) <= 1e-4
