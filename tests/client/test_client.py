"""The Python client: what it asks for, and what it makes of every kind of answer."""

import asyncio
import inspect
import json
import pickle
import subprocess
import sys
import typing
from typing import Any, Literal

import numpy as np
import pytest
import torch
from pydantic import BaseModel

from headlight_client import AsyncHeadlight, Headlight, HeadlightError, routes
from model import contract
from service.protocols.native import decode, explain, predict, rerank, schemas, similarity, tokenize
from tests.support.backends import both_backends
from tests.support.serving import ROOT, Json, Service
from tests.support.stand_in import assert_columns, refused, stand_in

pytestmark = both_backends

AXES = ["layer", "head", "query", "key"]
TEXTS = ["The man went to the store.", "Embeddings ünïcode 漢字"]


def test_importing_the_client_loads_no_service() -> None:
    """A notebook that imports the client needs httpx and numpy, and gets none of the rest."""
    program = "import sys, headlight_client; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    loaded = done.stdout.split()
    assert {"httpx", "numpy"} <= set(loaded)
    heavy = {
        "torch",
        "fastapi",
        "starlette",
        "uvicorn",
        "prometheus_client",
        "pydantic",
        "orjson",
        "tokenizers",
    }
    assert not {name.partition(".")[0] for name in loaded} & (heavy | {"model", "export", "service"})


@pytest.mark.parametrize("client", [Headlight, AsyncHeadlight])
def test_every_field_is_a_parameter(client: Any) -> None:
    """What a request may say, an editor completes, with the same choices."""
    encode, attention = (
        set(inspect.signature(client.encode).parameters),
        set(inspect.signature(client.attention).parameters),
    )
    ours = {"self", "dtype", "progress"}
    assert encode == {*schemas.EncodeRequest.model_fields, *ours}
    assert attention == {*schemas.AttentionRequest.model_fields, "statistics", *ours} - {"decimals"}
    whole = {"dtype", "progress"}
    assert set(inspect.signature(client.stream_encode).parameters) == encode - whole
    assert set(inspect.signature(client.stream_attention).parameters) == attention - whole | {"decimals"}


REQUESTS: dict[str, Any] = {
    "encode": schemas.EncodeRequest,
    "stream_encode": schemas.EncodeRequest,
    "attention": schemas.AttentionRequest,
    "stream_attention": schemas.AttentionRequest,
    "predict": predict.PredictRequest,
    "rerank": rerank.RerankRequest,
    "similarity": similarity.SimilarityRequest,
    "tokenize": tokenize.TokenizeRequest,
    "decode": decode.DecodeRequest,
    "explain": explain.ExplainRequest,
}


@pytest.mark.parametrize("method", REQUESTS)
def test_every_choice_of_a_field_is_one_of_its_parameter(method: str) -> None:
    """Pooling modes, statistics and the like are listed by the service; the types of the client follow."""
    parameters = typing.get_type_hints(getattr(routes.Routes, method))
    for name, field in REQUESTS[method].model_fields.items():
        if name in parameters and name != "chunks":  # either a word, numbers or spans, which no schema lists
            assert choices(parameters[name]) == choices(field.annotation), name


def choices(annotation: Any) -> list[str]:
    """List the literal values that are in a type, in order; types of single items come after these."""
    if typing.get_origin(annotation) is Literal:
        return list(typing.get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return []  # an object, which is a mapping in Python
    return [one for part in typing.get_args(annotation) for one in choices(part)]


def test_every_dtype_of_maps_is_one_of_the_parameter() -> None:
    """Vectors are not between 0 and 1, so they have no uint8."""
    of_maps = choices(contract.MapDtype)
    assert choices(typing.get_type_hints(routes.Routes.attention)["dtype"]) == of_maps
    assert choices(typing.get_type_hints(routes.Routes.encode)["dtype"]) == [
        dtype for dtype in of_maps if dtype != "uint8"
    ]


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 2, "heads": [3]},
        {"thumbnail": 4, "layers": [2, 0]},
        {"thumbnail": 3, "weights": "value_norm", "aggregate": "max"},
        {"level": "word", "special_tokens": "drop", "renormalize": True, "aggregate": "max"},
        {"aggregate": "rollout", "queries": [0, -1]},
        {"weights": "value_norm", "layers": [5, 0]},
        {"edges": [[[1, 2], [-1, 0]], *[[[0, 1]]] * (len(TEXTS) - 1)], "aggregate": "max"},
        {"summary": True, "aggregate": "mean", "outputs": ["sentence", "tokens"], "dimensions": 7},
        {"aggregate": "mean", "outputs": ["query", "key"], "layers": [3, 1], "heads": [2], "queries": [1, 0]},
    ],
    ids=str,
)
def test_every_way_of_asking_gives_the_same_numbers(service: Service, options: Json, dtype: Any) -> None:
    """Arrays of any dtype and streamed items are those of the JSON, within the error that is declared."""
    expected = service.attention(TEXTS, decimals=9, **options)
    with Headlight(service.url) as client:
        whole = client.attention(TEXTS, dtype=dtype, **options)
        streamed = sorted(client.stream_attention(TEXTS, decimals=9, **options), key=lambda one: one.index)
    assert whole.max_error is not None
    for items, error in ((whole, whole.max_error + 1e-6), (streamed, 1e-6)):
        for item, plain in zip(items, expected["data"], strict=True):
            assert item.axes == tuple(expected["axes"])
            for name in (
                "embedding",
                "token_embeddings",
                "attention",
                "top_weights",
                "residual",
                "thumbnails",
                "query_vectors",
                "key_vectors",
            ):
                assert (getattr(item, name) is None) == (name not in plain), name
                if name in plain:
                    assert np.abs(getattr(item, name) - np.array(plain[name])).max() <= error
            assert (item.top_keys is None) == ("top_keys" not in plain)
            assert item.top_keys is None or item.top_keys.tolist() == plain["top_keys"]
            assert item.words == plain.get("words")
            assert (item.queries, item.keys) == (plain.get("queries"), plain.get("keys"))
            assert (item.edges, item.score_scale) == (plain.get("edges"), plain.get("score_scale"))
            for name, values in plain.get("summary", {}).items():
                assert np.abs((item.summary or {})[name] - np.array(values)).max() <= 1e-6


@pytest.mark.parametrize("columns", [[], ["special", "tokens"], ["offsets"]])
def test_columns_may_be_left_out(service: Service, columns: list[Any]) -> None:
    """What remains is the same; what is missing raises an error that says so, and is in no table."""
    with Headlight(service.url) as client:
        (full,) = client.encode(["One text."])
        (maps,) = client.attention("One text.", columns=columns, layers=[0], level="word")
        answer = client.encode(["One text."], columns=columns)
        items = [*answer, *client.stream_encode(["One text."], columns=columns), maps]
        items += client.stream_attention("One text.", columns=columns, layers=[0])
    for item in items:
        for name in ("tokens", "token_ids", "offsets", "word_ids", "segment_ids", "special"):
            if name in columns:
                assert np.array_equal(getattr(item, name), getattr(full, name))
                continue
            with pytest.raises(AttributeError, match=f"answer has no {name}: add it to `columns` in the"):
                getattr(item, name)
        with pytest.raises(AttributeError, match="no attribute 'colour'"):
            _ = item.colour  # type: ignore[attr-defined]
        assert item.original_length == len(full.tokens)
        assert ("tokens=5" in repr(item)) == bool(columns)
        assert pickle.loads(pickle.dumps(item)).index == 0  # noqa: S301
        named = {"token": "tokens", "start": "offsets", "end": "offsets", "special": "special"}
        frame, whole = item.to_pandas(), full.to_pandas()
        assert list(frame) == [name for name in whole if named.get(name) in columns]
        assert all(frame[name].tolist() == whole[name].tolist() for name in frame)
    assert ("tokens" in answer.to_pandas()) == bool(columns)
    with pytest.raises(AttributeError, match="answer has no"):
        maps.to_bertviz()


def test_statistics_come_without_maps(service: Service) -> None:
    """With maps=False there is a summary of each layer and head, and no array."""
    with Headlight(service.url) as client:
        (item,) = client.attention("hello", summary=True, maps=False, layers=[0, 5])
    assert item.axes == ("layer", "head")
    assert (item.attention, item.queries, item.keys) == (None, None, None)
    assert item.summary is not None
    assert {values.shape for values in item.summary.values()} == {(2, 12)}


@pytest.mark.parametrize("route", ["encode", "attention", "stream_encode", "stream_attention"])
def test_what_is_given_is_sent_and_nothing_else(route: str) -> None:
    """Each parameter arrives under its name, False and "" too; None is left to the service."""
    given: Json = {name: f"the {name}" for name in inspect.signature(getattr(Headlight, route)).parameters}
    given |= {"truncate": False, "prompt": "", "layers": [0]}
    del given["self"]
    given.pop("progress", None)
    with stand_in(refused(422)) as server, Headlight(server.url, api_key="k") as client:
        for options in (given, {"inputs": "a"}, {"inputs": "a"} | dict.fromkeys(given.keys() - {"inputs"})):
            with pytest.raises(HeadlightError):
                list(getattr(client, route)(**options))
    whole, little, nothing = server.received
    dtype = given.pop("dtype", None)
    assert whole.body == given
    assert whole.path == "/" + route.removeprefix("stream_") + ("?dtype=the+dtype" if dtype else "")
    assert little.body == nothing.body == {"inputs": "a"}
    assert whole.headers["authorization"] == "Bearer k"
    assert whole.headers["content-type"] == "application/json"
    wanted = "application/x-ndjson" if route.startswith("stream") else "application/x-npz"
    assert whole.headers["accept"].split(", ")[0] == wanted


def test_ranges_arrays_and_pairs_are_sent_as_json() -> None:
    """What Python has instead of lists is taken: ranges, tuples, numpy's arrays and integers."""
    pairs = [("a", "b"), ("c", "漢")]
    with stand_in(refused(422)) as server, Headlight(server.url) as client:
        with pytest.raises(HeadlightError):
            client.attention(pairs, layers=range(2), heads=np.array([1, 3]).tolist(), top_k=np.int64(2))  # type: ignore[arg-type]
        with pytest.raises(HeadlightError):
            client.encode(np.array(["a", "b"]))
        with pytest.raises(TypeError, match="cannot be sent"):
            client.encode(object())  # type: ignore[arg-type]
    first, second = server.received
    assert first.body == {"inputs": [["a", "b"], ["c", "漢"]], "layers": [0, 1], "heads": [1, 3], "top_k": 2}
    assert second.body == {"inputs": ["a", "b"]}


def test_the_service_answers_encode(service: Service) -> None:
    """What the client makes of an answer is what curl shows, as arrays."""
    options: Any = {"outputs": ["sentence", "tokens"], "layers": [0, -1]}
    shown = service.encode(TEXTS, **options)
    with Headlight(service.url) as client:
        answer = client.encode(TEXTS, **options)
    assert (answer.model, answer.usage, len(answer)) == (shown["model"], shown["usage"], 2)
    assert answer.request_id
    for item, expected in zip(answer, shown["data"], strict=True):
        assert_columns(item, expected)
        assert item.embedding is not None
        assert item.token_embeddings is not None
        assert item.embedding.dtype == item.token_embeddings.dtype == np.float32
        assert np.allclose(item.embedding, np.float32(expected["embedding"]), atol=2e-6)
        assert item.token_embeddings.shape == (2, len(item.tokens), 384)
        assert np.allclose(item.token_embeddings, np.float32(expected["token_embeddings"]), atol=2e-5)
    assert answer.embeddings.shape == (2, 384)
    assert answer.embeddings.dtype == np.float32
    assert [row.tolist() for row in answer.embeddings] == [
        item.embedding.tolist() for item in answer if item.embedding is not None
    ]


@pytest.mark.parametrize(
    ("options", "axes", "shape"),
    [
        ({}, AXES, (6, 12, 9, 9)),
        ({"layers": [3, -1], "heads": [1], "queries": [2, 0], "keys": [-1]}, AXES, (2, 1, 2, 1)),
        ({"aggregate": "mean", "layers": [3]}, ["layer", "query", "key"], (1, 9, 9)),
    ],
)
def test_the_service_answers_attention(
    service: Service, options: Any, axes: list[str], shape: tuple[int, ...]
) -> None:
    """Maps come with the shape that their axes and labels say."""
    shown = service.attention(TEXTS[0], **options)["data"][0]
    with Headlight(service.url) as client:
        (item,) = client.attention(TEXTS[0], **options)
        (streamed,) = client.stream_attention(TEXTS[0], **options)
    for read in (item, streamed):
        assert_columns(read, shown)
        assert read.axes == tuple(axes)
        assert read.attention is not None
        assert read.attention.dtype == np.float32
        assert read.attention.shape == shape
        assert np.allclose(read.attention, np.float32(shown["attention"]), atol=3e-6)
        assert [read.layers, read.heads, read.queries, read.keys] == [
            shown.get(name) for name in ("layers", "heads", "queries", "keys")
        ]


def test_the_service_answers_asynchronously(service: Service) -> None:
    """Many requests at once, and streams, by one asynchronous client."""

    async def run() -> None:
        async with AsyncHeadlight(service.url) as client:
            answers = await asyncio.gather(*(client.encode(text) for text in TEXTS))
            together = await client.encode(TEXTS)
            for (alone,), item in zip(answers, together, strict=True):
                assert alone.embedding is not None
                assert item.embedding is not None
                assert np.allclose(alone.embedding, item.embedding, atol=2e-6)
            indices = {item.index async for item in client.stream_encode(TEXTS)}
            assert indices == {0, 1}
            maps = await client.attention(TEXTS, layers=[0])
            assert [item.layers for item in maps] == [[0], [0]]

    asyncio.run(run())


def test_problems_are_errors_that_say_what_to_change(service: Service) -> None:
    """The members of a problem document are attributes, its sentence is the message."""
    with Headlight(service.url) as client:
        with pytest.raises(HeadlightError) as raised:
            client.encode("a", pooling="average")  # type: ignore[arg-type]
        error = raised.value
        assert (error.status, error.type) == (422, "urn:headlight:invalid-request")
        assert (error.title, error.field, error.actual) == ("The request is not valid", "pooling", "average")
        assert str(error) == f"{error.detail} (422 invalid-request, request {error.request_id})"
        assert error.detail.startswith("pooling must be 'mean'")
        with pytest.raises(HeadlightError, match="256") as long:
            client.encode("word " * 300, truncate=False)
        assert (long.value.field, long.value.limit, long.value.actual) == ("inputs.0", 256, 302)
        with pytest.raises(HeadlightError) as half:
            client.encode("half a character: \ud83d")
        assert half.value.status == 400
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    assert (str(copy), copy.document, copy.field) == (str(error), error.document, "pooling")


def test_the_maps_fit_bertviz(service: Service) -> None:
    """BertViz is handed one torch tensor per layer, and where the second text of a pair begins."""
    with Headlight(service.url) as client:
        single = client.attention("A man eats.")[0]
        pair = client.attention([("A man eats.", "Who eats?")], layers=[3, 5])[0]
    attention, tokens, sentence_b_start = single.to_bertviz()
    assert (tokens, sentence_b_start) == (single.tokens, None)
    assert [tuple(layer.shape) for layer in attention] == [(1, 12, 6, 6)] * 6
    assert single.attention is not None
    assert all(layer.dtype == torch.float32 for layer in attention)
    assert np.array_equal(torch.cat(attention).numpy(), single.attention)
    second = pair.to_bertviz()
    assert second.sentence_b_start == pair.tokens.index("[SEP]") + 1
    assert len(second.attention) == 2


@pytest.mark.parametrize(
    ("options", "tokens", "second"),
    [
        (
            {"level": "word"},
            ["[CLS]", "Transformers", "hallucinate", ".", "[SEP]", "Really", "?", "[SEP]"],
            5,
        ),
        (
            {"level": "word", "special_tokens": "drop", "renormalize": True},
            ["Transformers", "hallucinate", ".", "Really", "?"],
            3,
        ),
        (
            {"special_tokens": "drop"},
            ["transformers", "hall", "##uc", "##inate", ".", "really", "?"],
            5,
        ),
    ],
    ids=str,
)
def test_bertviz_gets_words_and_maps_without_special_tokens(
    service: Service, options: Any, tokens: list[str], second: int
) -> None:
    """Rows and columns are named by what they are, and the second text begins where it does among them."""
    with Headlight(service.url) as client:
        (item,) = client.attention([("Transformers hallucinate.", "Really?")], layers=[2, 5], **options)
    shown = item.to_bertviz()
    assert (shown.tokens, shown.sentence_b_start) == (tokens, second)
    assert item.attention is not None
    assert np.array_equal(torch.cat(shown.attention).numpy(), item.attention)


# BertViz (1.4) leaves its scripts open for the garbage collector to close.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_bertviz_draws_the_maps(service: Service) -> None:
    """The real thing takes them."""
    bertviz = pytest.importorskip("bertviz", reason="bertviz is not installed, which is not needed elsewhere")
    with Headlight(service.url) as client:
        pair = [("A man hallucinates.", "Who eats?")]
        words = client.attention(pair, level="word", special_tokens="drop")
        for (item,) in (client.attention("A man eats."), client.attention(pair), words):
            names = [(item.words or item.tokens)[i] for i in item.queries or []]
            for view in (bertviz.head_view, bertviz.model_view):
                page = view(*item.to_bertviz(), html_action="return").data
                assert all(json.dumps(name) in page for name in names)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"aggregate": "mean"}, "aggregate"),
        ({"queries": [0, 1]}, "queries"),
        ({"keys": [5, 4, 3, 2, 1, 0]}, "keys"),
        ({"level": "word", "queries": [0, 1], "keys": [0, 1]}, "queries"),
    ],
)
def test_bertviz_gets_whole_maps_only(service: Service, options: Any, named: str) -> None:
    """Maps that BertViz would label wrongly are refused, with the option to leave out."""
    with Headlight(service.url) as client:
        (item,) = client.attention("A man eats.", **options)
    with pytest.raises(ValueError, match=f"BertViz shows .*{named}"):
        item.to_bertviz()
