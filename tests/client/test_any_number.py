"""Calls with more texts than a request may have: both Python clients split them and join the answers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

from headlight_client import AsyncHeadlight, Headlight, HeadlightError, InputsError
from model.checkpoints.source import resolve
from tests.client.test_many import echo
from tests.references.checkpoints import MINILM, SUITED
from tests.references.classifiers import write_classifier
from tests.references.fitted import write_fitted
from tests.support.serving import Service, serve
from tests.support.stand_in import Received, Reply, refused, stand_in

MOST = 8
TEXTS = [f"{'very ' * (i % 5)}long sentence number {i}" for i in range(3 * MOST + 5)]
Ask = Callable[[Callable[[Any], Any]], Any]
"""Makes a call of a client, and returns the whole answer."""


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that takes few texts at once, whose models encode, label texts, and label tokens."""
    place = tmp_path_factory.mktemp("models")
    labels = write_classifier(place / "labels", ["sad", "plain", "glad"], **SUITED).folder
    write_fitted(place / "names", tokens=True)
    models = f"mini={resolve(MINILM)},labels={labels},names={place / 'names'}"
    with serve(model=models, max_inputs=MOST) as started:
        yield started


def ask_with(url: str, *, awaited: bool) -> Ask:
    """Make calls with a client of its own for each, the synchronous or the asynchronous one."""

    def ask(call: Callable[[Any], Any]) -> Any:
        with Headlight(url) as client:
            answer = call(client)
            return answer if hasattr(answer, "request_ids") else [*answer]

    async def wait(call: Callable[[Any], Any]) -> Any:
        async with AsyncHeadlight(url) as client:
            answer = call(client)
            return (
                await cast(Awaitable[Any], answer)
                if hasattr(answer, "__await__")
                else [i async for i in answer]
            )

    return (lambda call: asyncio.run(wait(call))) if awaited else ask


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest, narrow: Service) -> Ask:
    """Make calls with either client."""
    return ask_with(narrow.url, awaited=request.param)


def in_parts(answer: Any) -> bool:
    """Whether an answer came in several requests."""
    return len(set(answer.request_ids)) == len(answer.request_ids) >= len(TEXTS) / MOST


def alone(service: Service, path: str, **body: object) -> Any:
    """The native answer of one text, by plain HTTP."""
    response = service.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()["data"][0]


def test_texts_are_labelled(ask: Ask, narrow: Service) -> None:
    """In order, each as if it were alone, also as rows of a data frame."""
    answer = ask(lambda client: client.predict(TEXTS, model="labels"))
    assert in_parts(answer)
    assert [item.index for item in answer] == [*range(len(TEXTS))]
    for i in (0, MOST, len(TEXTS) - 1):
        expected = alone(narrow, "/predict", inputs=TEXTS[i], model="labels")["labels"]
        assert [one.label for one in answer[i].labels] == [one["label"] for one in expected]
        assert np.allclose(
            [one.score for one in answer[i].labels], [one["score"] for one in expected], atol=1e-5
        )
    frame = answer.to_pandas()
    assert frame["index"].tolist() == [*range(len(TEXTS))]
    assert frame["label"].tolist() == [item.labels[0].label for item in answer]


def test_entities_keep_their_texts(ask: Ask) -> None:
    """The rows of a data frame count over all texts of the call."""
    texts = ["Ada Lovelace lived in London."] * (MOST + 3)
    answer = ask(lambda client: client.predict(texts, model="names", aggregation="simple"))
    found = answer.to_pandas().groupby("index")["text"].apply(list)
    assert found.index.tolist() == [*range(len(texts))]
    assert all(names == ["Ada Lovelace", "London"] for names in found)


def test_texts_are_ranked(ask: Ask, narrow: Service) -> None:
    """By the scores that each has alone, the best first, with their places among all texts."""
    answer = ask(lambda client: client.rerank("which number", TEXTS, return_texts=True))
    assert in_parts(answer)
    expected = [alone(narrow, "/rerank", query="which number", texts=[text])["score"] for text in TEXTS]
    assert sorted(item.index for item in answer) == [*range(len(TEXTS))]
    assert np.allclose([item.score for item in answer], sorted(expected, reverse=True), atol=2e-6)
    assert all(abs(item.score - expected[item.index]) <= 2e-6 for item in answer)
    frame = answer.to_pandas()
    assert frame["text"].tolist() == [TEXTS[item.index] for item in answer]
    best = ask(lambda client: client.rerank("which number", TEXTS, top_n=3))
    assert [item.index for item in best] == [item.index for item in answer[:3]]


@pytest.mark.in_turns
@pytest.mark.parametrize("function", [None, "cosine", "dot", "euclidean", "manhattan"])
def test_texts_are_compared_with_each_other(ask: Ask, narrow: Service, function: Any) -> None:
    """Each pair as the service compares it, by every function, though no request has all texts."""
    answer = ask(lambda client: client.similarity(TEXTS, function=function))
    assert answer.similarities.shape == (len(TEXTS), len(TEXTS))
    assert answer.similarities.dtype == np.float32
    for rows in (range(MOST), range(len(TEXTS) - MOST, len(TEXTS)), (0, 9, 17, 25)):
        body = {"texts": [TEXTS[i] for i in rows]} | ({"function": function} if function else {})
        expected = narrow.http.post("/similarity", json=body).json()
        assert answer.function == expected["function"]
        most = np.abs(expected["similarities"]).max()
        found = answer.similarities[np.ix_([*rows], [*rows])]
        assert np.abs(found - expected["similarities"]).max() <= 5e-6 * max(1, most)
    frame = answer.to_pandas(TEXTS)
    assert frame.loc[TEXTS[3], TEXTS[20]] == answer.similarities[3, 20]
    assert in_parts(answer)


def test_texts_are_compared_with_a_source(ask: Ask, narrow: Service) -> None:
    """In their order, by the service, whose tokens of all requests are counted."""
    answer = ask(lambda client: client.similarity(TEXTS, TEXTS[4]))
    vectors = np.array([one["embedding"] for text in TEXTS for one in narrow.encode(text)["data"]])
    assert answer.similarities.shape == (len(TEXTS),)
    assert np.abs(answer.similarities - vectors @ vectors[4]).max() <= 5e-6
    assert answer.usage["input_tokens"] > sum(narrow.encode(text)["usage"]["input_tokens"] for text in TEXTS)
    assert in_parts(answer)
    assert answer.to_pandas()["similarity"].shape == (len(TEXTS),)


def test_options_hold_for_texts_that_are_compared_here(ask: Ask, narrow: Service) -> None:
    """The model and the prompt are those of the call; an error is that of the service."""
    few = narrow.http.post("/similarity", json={"texts": TEXTS[:2], "prompt": "query: "}).json()
    answer = ask(lambda client: client.similarity(TEXTS, prompt="query: "))
    assert np.abs(answer.similarities[:2, :2] - few["similarities"]).max() <= 2e-6
    with pytest.raises(HeadlightError) as raised:
        ask(lambda client: client.similarity(TEXTS, model="nobody"))
    assert raised.value.status == 404


def test_errors_of_texts_that_are_compared_here_name_them_as_the_call_does(ask: Ask) -> None:
    """Not as the inputs of a request that the caller did not make."""
    with pytest.raises(HeadlightError) as raised:
        ask(lambda client: client.similarity([*TEXTS, "word " * 600, "a"], truncate=False))
    assert raised.value.field == f"texts.{len(TEXTS)}"
    assert str(raised.value).startswith(f"texts.{len(TEXTS)} is 602 tokens long")
    for call in (
        lambda client: client.similarity(["a", None]),
        lambda client: client.rerank("a", ["a", None]),
    ):
        with pytest.raises(InputsError, match=r"^texts\[1\] is None, not a string") as wrong:
            ask(call)
        assert wrong.value.field == "texts.1"


def test_another_function_is_refused_before_texts_are_encoded() -> None:
    """Nobody waits for the vectors of a thousand texts to learn of a slip."""
    another: Any = "cosinus"
    with stand_in(echo) as server, pytest.raises(ValueError, match="use cosine, dot, euclidean, manhattan"):
        ask_with(server.url, awaited=False)(lambda client: client.similarity(["1"] * 1000, function=another))
    assert not [one for one in server.received if one.path == "/encode"]


def test_texts_are_tokenized_and_decoded(ask: Ask) -> None:
    """And back, in order; a text's tokens are rows of a data frame."""
    answer = ask(lambda client: client.tokenize(TEXTS))
    assert in_parts(answer)
    assert answer.to_pandas()["tokens"].tolist() == [len(item.tokens) for item in answer]
    assert answer[20].to_pandas()["token"].tolist() == answer[20].tokens
    back = ask(lambda client: client.decode([item.token_ids for item in answer]))
    assert [*back] == TEXTS
    assert in_parts(back)


@pytest.mark.parametrize("streamed", [False, True])
def test_edges_stay_with_their_texts(ask: Ask, narrow: Service, streamed: bool) -> None:
    """Of a call that takes several requests, each has the edges of its texts; errors count over the call."""
    edges = [[[i % 4, 1]] * (i % 3) for i in range(len(TEXTS))]

    def call(client: Any, given: Any = edges) -> Any:
        ways = {False: client.attention, True: client.stream_attention}
        return ways[streamed](TEXTS, edges=given, layers=[0])

    items = sorted(ask(call), key=lambda item: item.index)
    for i, item in enumerate(items):
        assert item.edges == edges[i]
        assert item.attention.shape == (1, 12, len(edges[i]))
    one = alone(narrow, "/attention", inputs=TEXTS[11], edges=edges[11], layers=[0])
    assert np.abs(items[11].attention - np.array(one["attention"])).max() <= 1e-6
    with pytest.raises(
        HeadlightError, match=rf"^edges\.{len(TEXTS) - 1}\.0\.1 is 99 and inputs\.{len(TEXTS) - 1} "
    ):
        ask(lambda client: call(client, [*edges[:-1], [[0, 99]]]))
    with pytest.raises(InputsError, match="edges has 2 items"):
        ask(lambda client: call(client, [[[0, 1]], []]))
    with pytest.raises(InputsError, match="pass a list of edges for each"):
        ask(lambda client: call(client, [[0, 1]] * len(TEXTS)))


def test_items_stream(ask: Ask) -> None:
    """All of them, each with its place among all texts, in lines of several responses."""
    whole = ask(lambda client: client.encode(TEXTS))
    assert in_parts(whole)
    assert len(whole.to_pandas()) == len(TEXTS)
    streamed = {item.index: item for item in ask(lambda client: client.stream_encode(TEXTS))}
    assert sorted(streamed) == [*range(len(TEXTS))]
    for i, item in enumerate(whole):
        assert np.abs(streamed[i].embedding - item.embedding).max() <= 2e-6
    maps = {
        item.index: item for item in ask(lambda client: client.stream_attention(TEXTS, layers=[1], heads=[2]))
    }
    assert sorted(maps) == [*range(len(TEXTS))]
    assert all(maps[i].tokens == item.tokens for i, item in enumerate(whole))


def test_similarities_of_a_service_without_info() -> None:
    """A gateway that passes only inference: the call says how vectors are compared, since no answer does."""

    def answer(received: Received) -> Reply:
        if received.path == "/similarity":
            return refused(413, {"type": "urn:headlight:too-many-inputs", "limit": 2, "actual": 4})
        return echo(received)

    for awaited in (False, True):
        with stand_in(answer) as server:
            ask = ask_with(server.url, awaited=awaited)
            with pytest.raises(ValueError, match=r"4 texts are too many .* pass the model's function"):
                ask(lambda client: client.similarity(["3", "0", "-1", "2"]))
            assert not [one for one in server.received if one.path == "/encode"]
            found = ask(lambda client: client.similarity(["3", "0", "-1", "2"], function="cosine"))
        assert found.function == "cosine"
        assert found.similarities.tolist() == [[1, 0, -1, 1], [0, 0, 0, 0], [-1, 0, 1, -1], [1, 0, -1, 1]]
        assert [len(one.body["inputs"]) for one in server.received if one.path == "/encode"] == [2, 2]
