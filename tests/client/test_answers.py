"""What the Python client makes of answers: archives, JSON, streams, and what is none of them."""

import io
import json
import sys
import threading
from typing import Any

import httpx
import numpy as np
import pytest

from headlight_client import AttentionMaps, Headlight, HeadlightError
from tests.support.serving import Json
from tests.support.stand_in import PROBLEM, Reply, assert_columns, stand_in

NDJSON = {"Content-Type": "application/x-ndjson"}
COLUMNS: Json = {
    "index": 0,
    "tokens": ["[CLS]", "heads", "##light", "[SEP]"],
    "token_ids": [101, 5, 6, 102],
    "offsets": [[0, 0], [0, 5], [5, 10], [0, 0]],
    "word_ids": [None, 0, 0, None],
    "segment_ids": [0, 0, 0, 0],
    "special": [True, False, False, True],
    "truncated": False,
    "original_length": 4,
}
LABELS: Json = {"layers": [3, 5], "heads": [1], "queries": [0, 1, 2, 3], "keys": [0, 1, 2, 3]}
AXES = ["layer", "head", "query", "key"]


def archive(meta: Json, **arrays: Any) -> Reply:
    """An answer as `application/x-npz`; `m0_name` is the member 0.name."""
    members = {name[1:].replace("_", ".", 1): array for name, array in arrays.items()}
    members["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **members)
    headers = {"Content-Type": "application/x-npz", "X-Request-ID": "r1"}
    return Reply(pieces=[buffer.getvalue()], headers=headers)


def meta(*items: Json, axes: list[str] | None = None, **members: object) -> Json:
    """The rest of an answer."""
    named = {} if axes is None else {"axes": axes}
    return {"model": "m", **named, "data": list(items), "usage": {"input_tokens": 4}, **members}


MAPS = np.random.default_rng(0).random((2, 1, 4, 4), dtype=np.float32)


@pytest.mark.parametrize(
    ("stored", "scale", "max_error"),
    [
        (MAPS, 1.0, 0.0),
        (MAPS.astype(np.float16), 1.0, 2.0**-12),
        (np.round(MAPS * 255).astype(np.uint8), 1 / 255, 0.5 / 255 + 1e-7),
    ],
    ids=["float32", "float16", "uint8"],
)
def test_archives_are_float32_again(stored: Any, scale: float, max_error: float) -> None:
    """Whatever numbers were sent as, maps are float32 within the bound; embeddings are never scaled."""
    embedding = np.array([200.5, -3], np.float32)
    rest = meta(COLUMNS | LABELS, axes=AXES, dtype="…", scale=scale, max_error=max_error)
    with (
        stand_in(archive(rest, m0_attention=stored, m0_embedding=embedding)) as server,
        Headlight(server.url) as client,
    ):
        answer = client.attention("a", dtype="uint8")
    (item,) = answer
    assert (answer.model, answer.usage, answer.max_error) == ("m", {"input_tokens": 4}, max_error)
    assert answer.request_id == "r1"
    assert_columns(item, COLUMNS)
    assert item.attention is not None
    assert item.attention.dtype == np.float32
    assert np.abs(item.attention - MAPS).max() <= max_error
    assert item.embedding is not None
    assert item.embedding.tolist() == [200.5, -3]
    assert (item.layers, item.heads, item.queries) == ([3, 5], [1], [0, 1, 2, 3])
    assert server.received[0].path == "/attention?dtype=uint8"


def test_archives_hold_many_items() -> None:
    """Members belong to items by their number, ten and above too; vectors of tokens among them."""
    items = [COLUMNS | {"index": i} for i in range(12)]
    arrays: dict[str, Any] = {f"m{i}_embedding": np.array([i], np.float32) for i in range(12)}
    arrays |= {"m11_token_embeddings": np.ones((1, 4, 2), np.float16)}
    with stand_in(archive(meta(*items, scale=1.0), **arrays)) as server, Headlight(server.url) as client:
        answer = client.encode(["a"] * 12)
    assert [float(item.embedding[0]) for item in answer if item.embedding is not None] == list(range(12))
    assert answer[-1].token_embeddings is not None
    assert answer[-1].token_embeddings.dtype == np.float32
    assert answer[-1].token_embeddings.shape == (1, 4, 2)
    assert [item.index for item in answer[2:4]] == [2, 3]


def attention_item(rest: Json, *, options: Any = None, **arrays: Any) -> AttentionMaps:
    reply = archive(rest, **arrays) if arrays else json_reply(rest)
    with stand_in(reply) as server, Headlight(server.url) as client:
        (item,) = client.attention("a", **(options or {}))
    return item


def json_reply(body: object) -> Reply:
    return Reply(pieces=[json.dumps(body).encode()], headers={"Content-Type": "application/json"})


@pytest.mark.parametrize("binary", [True, False], ids=["npz", "json"])
def test_sparse_rows_words_and_summaries(binary: bool) -> None:
    """top_k, level and summary are read from archives and from JSON alike."""
    keys = np.array([[[[3, 0], [1, 2], [2, 1], [0, 3]]]] * 2, np.int32)
    weights = np.array([[[[0.5, 0.25], [1, 0], [1, 0], [1, 0]]]] * 2, np.float32)
    residual = 1 - weights.sum(-1)
    item = COLUMNS | LABELS | {"summary": {"entropy": [[0.5], [0.25]]}}
    item |= {"words": ["[CLS]", "headslight", "[SEP]"], "word_offsets": [[0, 0], [0, 10], [0, 0]]}
    arrays = {"top_keys": keys, "top_weights": weights, "residual": residual}
    if binary:
        read = attention_item(meta(item, axes=AXES), **{f"m0_{name}": a for name, a in arrays.items()})
    else:
        read = attention_item(meta(item | {n: a.tolist() for n, a in arrays.items()}, axes=AXES))
    assert read.attention is None
    assert read.top_keys is not None
    assert read.top_keys.dtype == np.int32
    for name, expected in arrays.items():
        assert np.array_equal(getattr(read, name), expected), name
    assert read.summary is not None
    assert read.summary["entropy"].dtype == np.float32
    assert read.summary["entropy"].tolist() == [[0.5], [0.25]]
    assert read.words == ["[CLS]", "headslight", "[SEP]"]
    assert read.word_offsets is not None
    assert read.word_offsets.tolist() == [[0, 0], [0, 10], [0, 0]]


def test_maps_without_rows_keep_their_axes() -> None:
    """JSON cannot say how many axes an empty map has: the labels do."""
    none = LABELS | {"queries": [], "keys": []}
    read = attention_item(meta(COLUMNS | none | {"attention": [[[]], [[]]]}, axes=AXES))
    assert read.attention is not None
    assert read.attention.shape == (2, 1, 0, 0)
    top: Json = {"top_keys": [[[]], [[]]], "top_weights": [[[]], [[]]], "residual": [[[]], [[]]]}
    read = attention_item(meta(COLUMNS | none | top, axes=AXES))
    assert read.top_keys is not None
    assert read.top_keys.shape == (2, 1, 0, 0)
    assert read.residual is not None
    assert read.residual.shape == (2, 1, 0)
    read = attention_item(meta(COLUMNS | none | {"thumbnails": [[[]], [[]]]}, axes=AXES))
    assert read.thumbnails is not None
    assert read.thumbnails.shape == (2, 1, 0, 0)
    labels = {"layers": [0], "heads": [0, 1], "summary": {"self": [[0.5, 0.25]]}}
    read = attention_item(meta(COLUMNS | labels, axes=["layer", "head"]))
    assert (read.attention, read.queries, read.axes) == (None, None, ("layer", "head"))


def lines(*documents: object) -> list[bytes]:
    return [json.dumps(document, ensure_ascii=False).encode() + b"\n" for document in documents]


def test_streams_give_items_as_they_come() -> None:
    """The first item is there while the service still works on the second; texts may hold line separators."""
    columns = COLUMNS | {"tokens": ["\u2028", "\x85", "\x0b", "\x1c"], "embedding": [0.5]}
    gate = threading.Event()
    pieces = lines(columns | {"index": 1}, columns, meta())
    cut = [pieces[0] + pieces[1][:7], pieces[1][7:] + pieces[2]]
    with stand_in(Reply(pieces=cut, headers=NDJSON, gate=gate)) as server, Headlight(server.url) as client:
        items = client.stream_encode(["a", "b"])
        first = next(items)
        assert (first.index, first.tokens) == (1, ["\u2028", "\x85", "\x0b", "\x1c"])
        gate.set()
        assert [item.index for item in items] == [0]


@pytest.mark.parametrize(
    ("options", "axes"),
    [
        ({}, AXES),
        ({"aggregate": "none"}, AXES),
        ({"aggregate": "max"}, ["layer", "query", "key"]),
        ({"aggregate": "rollout"}, ["query", "key"]),
        ({"summary": True, "maps": False}, ["layer", "head"]),
    ],
)
def test_streamed_maps_have_the_axes_that_were_asked_for(options: Any, axes: list[str]) -> None:
    """The axes come with the last line, the maps before it: the request says them."""
    shape = [len(LABELS[axis + "s" if axis != "query" else "queries"]) for axis in axes]
    maps = {} if "maps" in options else {"attention": np.ones(shape).tolist()}
    body = lines(COLUMNS | LABELS | maps, {"model": "m", "axes": axes, "usage": {"input_tokens": 4}})
    with stand_in(Reply(pieces=body, headers=NDJSON)) as server, Headlight(server.url) as client:
        (item,) = client.stream_attention("a", decimals=3, **options)
    assert item.axes == tuple(axes)
    assert item.attention is None if "maps" in options else item.attention is not None
    assert server.received[0].body["decimals"] == 3


def test_a_failure_within_a_stream_is_raised() -> None:
    """A line that is a problem document ends the stream as an error, after what came before."""
    body = lines(COLUMNS, PROBLEM | {"status": 500, "detail": "It failed.", "request_id": "r2"})
    with stand_in(Reply(pieces=body, headers=NDJSON)) as server, Headlight(server.url) as client:
        items = client.stream_encode("a")
        assert next(items).tokens == COLUMNS["tokens"]
        with pytest.raises(HeadlightError, match=r"It failed\.") as raised:
            next(items)
    assert (raised.value.status, raised.value.request_id) == (500, "r2")


def test_a_stream_without_its_end_is_an_error() -> None:
    """Without the line that says the usage, nobody knows whether all items came."""
    with (
        stand_in(Reply(pieces=lines(COLUMNS), headers=NDJSON)) as server,
        Headlight(server.url) as client,
        pytest.raises(HeadlightError, match="ends without the last line"),
    ):
        list(client.stream_encode("a"))


def test_a_stream_that_is_left_gives_its_connection_back() -> None:
    """Closing the iterator ends the request, and the client goes on."""
    gate = threading.Event()
    left = Reply(pieces=lines(COLUMNS, meta()), headers=NDJSON, gate=gate)
    limits = httpx.Timeout(5, pool=1)
    with stand_in(left, json_reply(meta(COLUMNS))) as server, Headlight(server.url, timeout=limits) as client:
        items = client.stream_encode("a")
        next(items)
        items.close()
        assert client._sender.http._transport._pool.connections == []  # type: ignore[attr-defined]
        gate.set()
        assert len(client.encode("a")) == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(pieces=[b"PK\x03\x04 not an archive"], headers={"Content-Type": "application/x-npz"}),
        Reply(pieces=[b""], headers={"Content-Type": "application/x-npz"}),
        archive({"model": "m", "usage": {}}),
        archive(meta({"index": 0})),
        archive(meta(COLUMNS | {"token_ids": [1]}, scale=1.0)),
        archive(meta(COLUMNS | LABELS, axes=AXES), m0_attention=np.ones((1, 1, 4, 4))),
        json_reply([1]),
        json_reply({"model": "m", "data": ["item"], "usage": {}}),
        Reply(pieces=[b"<html>A login page</html>"], headers={"Content-Type": "text/html"}),
        Reply(pieces=[b"\xff\xfe"]),
    ],
)
def test_what_cannot_be_read_is_an_error(reply: Reply) -> None:
    """A broken or foreign answer is a HeadlightError with its cause, never a stray KeyError."""
    with stand_in(reply) as server, Headlight(server.url) as client:
        with pytest.raises(HeadlightError, match="cannot be read") as raised:
            client.attention("a")
        assert raised.value.__cause__ is not None
        with pytest.raises(HeadlightError, match="cannot be read"):
            list(client.stream_attention("a"))


def test_pickles_are_not_opened() -> None:
    """An archive with objects in it, which could run code, is refused."""
    objects = archive(meta(COLUMNS, scale=1.0), m0_embedding=np.array([{}], object))
    with (
        stand_in(objects) as server,
        Headlight(server.url) as client,
        pytest.raises(HeadlightError, match="allow_pickle"),
    ):
        client.encode("a")


def test_a_proxys_error_is_an_error() -> None:
    """What stands in between answers in words of its own: status, words, no problem document."""
    html = Reply(502, [b"<h1>Bad Gateway</h1>" + b"." * 1000], {"Content-Type": "text/html"})
    with (
        stand_in(html) as server,
        Headlight(server.url) as client,
        pytest.raises(HeadlightError, match=r"<h1>Bad Gateway</h1>.*… \(502 Bad Gateway\)") as raised,
    ):
        client.encode("a")
    assert raised.value.type == "about:blank"
    assert len(str(raised.value)) < 300


def test_without_torch_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch is not installed, everything but BertViz works, and that says what is missing."""
    item = attention_item(meta(COLUMNS | LABELS | {"attention": MAPS.tolist()}, axes=AXES))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match="install torch"):
        item.to_bertviz()


def test_bertviz_gets_whole_maps_with_weights() -> None:
    """top_k, thumbnail and maps=False leave nothing that BertViz can draw."""
    top = {"top_keys": [[[[0]] * 4]] * 2, "top_weights": [[[[1.0]] * 4]] * 2, "residual": [[[0.0] * 4]] * 2}
    with pytest.raises(ValueError, match="top_k"):
        attention_item(meta(COLUMNS | LABELS | top, axes=AXES)).to_bertviz()
    with pytest.raises(ValueError, match="thumbnail"):
        attention_item(meta(COLUMNS | LABELS | {"thumbnails": [[[[1.0]]]] * 2}, axes=AXES)).to_bertviz()
    with pytest.raises(ValueError, match="maps"):
        attention_item(meta(COLUMNS | LABELS, axes=["layer", "head"])).to_bertviz()


def test_statistics_may_be_arrays() -> None:
    """Members such as 0.summary.entropy are the same statistics that a summary in JSON has."""
    entropy, own = np.array([[0.5], [0.25]], np.float32), np.array([[1.0], [0.0]], np.float32)
    rest = meta(COLUMNS | {"layers": [3, 5], "heads": [1]}, axes=["layer", "head"], scale=1.0)
    reply = archive(rest, **{"m0_summary.entropy": entropy, "m0_summary.self": own})
    with stand_in(reply) as server, Headlight(server.url) as client:
        (read,) = client.attention("a", summary=True, maps=False, statistics=["entropy", "self"])
    assert server.received[0].body["statistics"] == ["entropy", "self"]
    assert read.summary is not None
    assert {name: values.tolist() for name, values in read.summary.items()} == {
        "entropy": [[0.5], [0.25]],
        "self": [[1.0], [0.0]],
    }
    assert read.summary["self"].dtype == np.float32


def test_answers_and_items_are_shown_in_one_line() -> None:
    """A notebook that shows a value shows what there is and how large, never the numbers."""
    item = COLUMNS | LABELS | {"summary": {"entropy": [[0.5], [0.25]]}}
    tokens = np.ones((1, 4, 300), np.float32)
    arrays = {"m0_attention": MAPS, "m0_embedding": tokens[0, 0], "m0_token_embeddings": tokens}
    replies = [
        archive(meta(COLUMNS | {"truncated": True}, COLUMNS | {"index": 1}), m0_embedding=MAPS[0, 0, 0]),
        archive(meta(item, axes=AXES), **arrays),
        archive(meta(item | {"words": ["a", "b"]}, axes=["layer", "head"])),
    ]
    with stand_in(*replies) as server, Headlight(server.url) as client:
        vectors, maps, words = client.encode(["a", "b"]), client.attention("a"), client.attention("a")
    assert repr(vectors) == (
        "Answer(model='m', items=2 × Encoded, embeddings=float32(2, 4), usage={'input_tokens': 4})"
    )
    assert repr(vectors[0]) == "Encoded(index=0, tokens=4, embedding=float32(4,), truncated=True)"
    assert repr(vectors[1]) == "Encoded(index=1, tokens=4)"
    assert repr(maps[0]) == (
        "AttentionMaps(index=0, tokens=4, embedding=float32(300,), token_embeddings=float32(1, 4, 300), "
        "attention=float32(2, 1, 4, 4), axes=(layer, head, query, key), summary=[entropy])"
    )
    assert repr(words) == "Answer(model='m', items=1 × AttentionMaps, usage={'input_tokens': 4})"
    assert repr(words[0]) == "AttentionMaps(index=0, tokens=4, words=2, summary=[entropy])"
    shown = repr(maps[0].to_bertviz())
    assert shown == "BertViz(attention=2 × (1, 1, 4, 4), tokens=4, sentence_b_start=None)"


def test_an_answer_without_vectors_says_how_to_get_them() -> None:
    """`embeddings` is one array, or an error with the way out; never an array of nothing."""
    reply = archive(meta(COLUMNS | LABELS, axes=AXES), m0_attention=MAPS)
    with stand_in(reply) as server, Headlight(server.url) as client:
        answer = client.attention("a")
    with pytest.raises(ValueError, match=r'use outputs=\["sentence"\]'):
        _ = answer.embeddings


def test_an_answer_that_is_too_short_is_none() -> None:
    """Vectors never slide to the texts of others: as many items come as inputs went."""
    with (
        stand_in(archive(meta(COLUMNS))) as server,
        Headlight(server.url) as client,
        pytest.raises(HeadlightError, match="has 1 items, not 2"),
    ):
        client.encode(["a", "b"])
