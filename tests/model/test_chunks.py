"""One vector for each chunk of a text, from one pass over all of it, whatever runs it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from model.contract import ChunksWant, SentenceWant, Want
from model.heads.chunks import chunk_vectors
from model.heads.dense import Dense
from tests.references.comparing import distance
from tests.support.backends import Small, both_backends, small
from tests.support.product import run

pytestmark = both_backends

TEXTS = ["The man beats the boy", "a", "hello world, hello boy: " * 6]


@pytest.fixture(scope="module")
def model(backend: str) -> Small:
    """A BERT of three layers, of random weights, in float32."""
    return small(backend)


def means(states: np.ndarray, spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """The mean of each span by its definition, in float64."""
    return np.array([states[first:after].astype(np.float64).mean(0) for first, after in spans])


def test_chunks_are_means_of_the_last_state_in_every_batch(model: Small) -> None:
    """Spans may overlap and repeat; neighbours that want no chunks, or other states, change nothing."""
    encodings = model.tokenizer.encode(TEXTS)
    spans = [((1, 3), (2, 6), (1, 3), (0, 7)), ((1, 2),), tuple((i, i + 5) for i in range(30))]
    wants = [Want(token_layers=(3,), heads=(ChunksWant(one),)) for one in spans]
    others = [Want(), Want(SentenceWant(layers=(1,))), Want(token_layers=(0,))]
    outputs = run(model.backend, [*encodings, *encodings], [*wants, *others])
    for output, encoding, want, some in zip(outputs, encodings, wants, spans, strict=False):
        assert output.tokens is not None
        found = output.heads["chunks"]
        assert found.dtype == np.float32
        assert distance(found, means(output.tokens[0], some)) <= 1e-6
        (alone,) = run(model.backend, [encoding], [want])
        assert distance(alone.heads["chunks"], found) <= 2e-6
    assert all(output.heads == {} for output in outputs[3:])


def test_the_whole_text_as_a_chunk_is_its_sentence_vector(model: Small) -> None:
    """Cut and normalised in the same order as a vector that is pooled by the mean."""
    (encoding,) = model.tokenizer.encode(TEXTS[:1])
    sentence = SentenceWant(layers=(3,), normalize=True, dimensions=40)
    chunks = ChunksWant(((0, len(encoding)),), normalize=True, dimensions=40)
    (output,) = run(model.backend, [encoding], [Want(sentence, heads=(chunks,))])
    assert output.sentence is not None
    assert distance(output.heads["chunks"][0], output.sentence) <= 1e-6


def test_dense_layers_follow_the_mean() -> None:
    """What is trained on pooled vectors is applied to each of them, before the cut."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(9, 8)).astype(np.float32)
    weight, bias = rng.normal(size=(6, 8)).astype(np.float32), rng.normal(size=6).astype(np.float32)
    spans = ((0, 4), (3, 9))
    found = chunk_vectors(states, ChunksWant(spans, dimensions=5), [Dense(weight, bias, "Tanh")])
    assert distance(found, np.tanh(means(states, spans) @ weight.T + bias)[:, :5]) <= 1e-6


def test_means_are_finished_later_as_at_once(model: Small) -> None:
    """Of texts that are read in windows, what follows the mean is done to the means of several passes."""
    (encoding,) = model.tokenizer.encode(TEXTS[:1])
    want = ChunksWant(((1, 3), (2, 6)), normalize=True, dimensions=40)
    means = replace(want, means=True)
    at_once, later = run(model.backend, [encoding] * 2, [Want(heads=(want,)), Want(heads=(means,))])
    assert later.heads["chunks"].shape == (2, model.backend.info.hidden_size)
    found = model.backend.finish(later.heads["chunks"], want)
    assert distance(found, at_once.heads["chunks"]) <= 1e-6


def test_no_chunks_are_no_vectors() -> None:
    """An empty text has no parts: its array has no rows, but the size of a vector."""
    assert chunk_vectors(np.ones((2, 8), np.float32), ChunksWant(()), ()).shape == (0, 8)


def test_a_chunk_without_tokens_is_refused() -> None:
    """The mean of nothing would be a NaN."""
    with pytest.raises(ValueError, match="no tokens"):
        chunk_vectors(np.ones((4, 8), np.float32), ChunksWant(((1, 2), (3, 3))), ())


def test_running_sums_lose_nothing_over_long_texts() -> None:
    """The last of many tokens is as exact as the first, with a large mean beside small differences."""
    states = (np.random.default_rng(1).normal(size=(8192, 16)) + 1000).astype(np.float32)
    spans = tuple((i, i + 1) for i in range(0, 8192, 100))
    assert np.array_equal(chunk_vectors(states, ChunksWant(spans), ()), states[::100])
