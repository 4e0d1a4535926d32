"""The Python client's calls of /predict, /rerank, /similarity, /tokenize and /decode, and chunks."""

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

from headlight_client import AsyncHeadlight, Headlight, HeadlightError, InputsError
from tests.references.families import write_model
from tests.support.families import SIZES
from tests.support.serving import Service, serve

TEXTS = ["A man is eating food.", "A dog sleeps.", "Someone eats a meal."]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headlight]:
    """A client of a service with a small classifier."""
    folder = tmp_path_factory.mktemp("classifier")
    write_model(folder, "Bert", architecture="BertForSequenceClassification", num_labels=3, **SIZES)
    with serve(model=folder) as started, Headlight(started.url) as client:
        yield client


def test_similarities_are_an_array(service: Service) -> None:
    """Of texts to a source, or of all texts to each other."""
    with Headlight(service.url) as client:
        vectors = client.encode(TEXTS).embeddings
        whole = client.similarity(TEXTS)
        to_first = client.similarity(TEXTS[1:], TEXTS[0], function="dot")
    assert np.abs(whole.similarities - vectors @ vectors.T).max() < 1e-5
    assert whole.function == "cosine"
    assert to_first.similarities.shape == (2,)
    assert np.abs(to_first.similarities - vectors[1:] @ vectors[0]).max() < 1e-5


def test_any_number_of_texts_is_ranked(service: Service) -> None:
    """The best of all requests come first, with their place among all texts."""
    texts = [*(f"The number {i}." for i in range(300)), *TEXTS]
    with Headlight(service.url) as client:
        whole = client.rerank("Who eats?", texts, return_texts=True)
        best = client.rerank("Who eats?", texts, top_n=5)
        few = client.rerank("Who eats?", TEXTS, top_n=1)
    assert whole.method == "bi-encoder"
    assert sorted(item.index for item in whole) == [*range(303)]
    assert [item.score for item in whole] == sorted((item.score for item in whole), reverse=True)
    assert all(item.text == texts[item.index] for item in whole)
    assert [item.index for item in best] == [item.index for item in whole[:5]]
    assert few[0].index == best[0].index - 300


def test_texts_are_tokenized_and_tokens_are_texts(service: Service) -> None:
    """In any number of requests; ids are lists, arrays, or one list."""
    texts = [f"number {i}" for i in range(260)]
    with Headlight(service.url) as client:
        answer = client.tokenize(texts)
        back = client.decode([item.token_ids for item in answer])
        (one,) = client.decode(answer[7].token_ids)
        with pytest.raises(InputsError, match="token_ids is empty"):
            client.decode([])
    assert answer[259].tokens[1] == "number"
    assert list(back) == texts
    assert one == "number 7"


def test_classes_are_typed(classifier: Headlight) -> None:
    """Largest score first; maps of the same pass are those of `attention`."""
    plain, looked = classifier.predict(TEXTS, top_k=2), classifier.predict(TEXTS, attention={"layers": [0]})
    assert [len(item.labels or ()) for item in plain] == [2, 2, 2]
    first = plain[0].labels
    assert first is not None
    assert first[0].label in ("LABEL_0", "LABEL_1", "LABEL_2")
    assert first[0].score >= first[1].score
    (maps,) = classifier.attention(TEXTS[0], layers=[0])
    assert looked[0].maps is not None
    assert looked[0].maps.attention is not None
    assert maps.attention is not None
    assert np.abs(looked[0].maps.attention - maps.attention).max() < 1e-5
    assert plain[0].maps is None


def test_chunks_and_small_vectors_are_arrays(service: Service) -> None:
    """Integers stay integers, from an archive and from a stream; an empty text has no chunks."""
    text = "One sentence. And another one."
    with Headlight(service.url) as client:
        answer = client.encode([text, ""], chunks="sentences", precision="int8")
        streamed = {item.index: item for item in client.stream_encode([text], chunks="sentences")}
    chunks, none = answer[0].chunks, answer[1].chunks
    assert chunks is not None
    assert chunks.embeddings.dtype == np.int8
    assert answer.embeddings.dtype == np.int8
    assert [text[start:end] for start, end in chunks.offsets] == ["One sentence.", "And another one."]
    assert none is not None
    assert len(none.embeddings) == len(none.offsets) == 0
    exact = streamed[0].chunks
    assert exact is not None
    assert np.abs(exact.embeddings * 127 - chunks.embeddings).max() <= 0.51


def test_chunks_of_long_texts_come_with_their_windows(service: Service) -> None:
    """Every part has a vector; what was read for the vector of the whole text is told."""
    text = "It rained. The match was cancelled. " * 120
    with Headlight(service.url) as client:
        (item,) = client.encode(text, chunks="sentences", overlap=20)
        (streamed,) = client.stream_encode(text, chunks="sentences", overlap=20)
        (short,) = client.encode(text)
        (alone,) = client.encode(text[:100], chunks="sentences")
        (ranked,) = client.rerank("Who played?", [text])
    assert item.chunks is not None
    assert streamed.chunks is not None
    assert alone.chunks is not None
    assert len(item.chunks.embeddings) == 240
    assert item.chunks.windows is not None
    assert item.chunks.windows[1].tolist() == [1 + 254 - 20, 1 + 254 - 20 + 254]
    assert streamed.chunks.windows is not None
    assert streamed.chunks.windows.tolist() == item.chunks.windows.tolist()
    assert alone.chunks.windows is None
    assert alone.covered is None
    assert item.covered == short.covered == ranked.covered == [[0, short.offsets[-2][1]]]


def test_asyncio_has_the_same_calls(service: Service) -> None:
    """Awaited, with the same answers."""

    async def calls() -> tuple[float, str]:
        async with AsyncHeadlight(service.url) as client:
            similar = await client.similarity(TEXTS, TEXTS[0])
            ranked = await client.rerank(TEXTS[0], TEXTS)
            assert abs(ranked[0].score - 1) < 1e-5
            return float(similar.similarities[0]), (await client.decode([7592]))[0]

    similarity, text = asyncio.run(calls())
    assert abs(similarity - 1) < 1e-5
    assert text == "hello"


def test_an_answer_that_is_no_answer_is_told(service: Service) -> None:
    """A route that an older service lacks is its 404."""
    with Headlight(f"{service.url}/old") as client, pytest.raises(HeadlightError) as refused:
        client.similarity(TEXTS)
    assert refused.value.status == 404
