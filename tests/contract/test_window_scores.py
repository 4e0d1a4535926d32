"""Scores of layers with windows: a key that a query does not see has none, in every format."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.references.comparing import distance
from tests.references.encoder import softmax
from tests.references.families import Written, write_model
from tests.support.families import SIZES
from tests.support.serving import (
    NPZ,
    SAFETENSORS,
    Json,
    Service,
    answered,
    post,
    read_npz,
    read_safetensors,
    serve,
)

TEXT = "the man beats the boy, and the boy beats the man"
HALF = 2
"""Positions that a query of a layer with a window sees on each side."""
GLOBAL = 0
"""The layer that sees all."""
MANY_LAYERS: Json = {"layers": [0, 1, 2], "weights": "score"}

Array = NDArray[Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A small ModernBERT of three layers, two of them with windows."""
    folder = tmp_path_factory.mktemp("models") / "windows"
    return write_model(folder, "ModernBert", local_attention=2 * HALF, global_attn_every_n_layers=3, **SIZES)


@pytest.fixture(scope="module")
def windows(written: Written) -> Iterator[Service]:
    """It, served."""
    with serve(model=written.folder) as started:
        yield started


def ask(service: Service, **options: object) -> Json:
    item: Json = answered(post(service, {"inputs": TEXT, **MANY_LAYERS, **options}, "/attention"))["data"][0]
    return item


def numbers(nested: Any) -> Array:
    """Lists with null, which becomes −inf."""
    found = np.array(nested, np.float64)
    return np.where(np.isnan(found), -np.inf, found)


def hidden(length: int) -> Array:
    """Whether a layer with a window hides a key from a query, (N, N)."""
    positions = np.arange(length)
    return np.asarray(np.abs(positions[:, None] - positions) > HALF)


def test_what_a_query_does_not_see_is_null(windows: Service, written: Written) -> None:
    """Only in the layers with windows; the softmax of the others is what `transformers` computes."""
    item = ask(windows, decimals=9)
    scores = numbers(item["attention"])
    _, expected = written.run(item["token_ids"], item["segment_ids"])
    unseen = hidden(len(item["tokens"]))
    for layer in range(3):
        masked = unseen if layer != GLOBAL else np.zeros_like(unseen)
        assert np.array_equal(np.isneginf(scores[layer]), np.broadcast_to(masked, scores[layer].shape))
        assert distance(softmax(scores[layer]), expected[layer]) <= 1e-5


@pytest.mark.parametrize(("accept", "read"), [(NPZ, read_npz), (SAFETENSORS, read_safetensors)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_files_have_minus_infinity(accept: str, read: Any, dtype: str, windows: Service) -> None:
    """As float16 where that was asked for."""
    body = {"inputs": TEXT, **MANY_LAYERS}
    response = post(windows, body, f"/attention?dtype={dtype}", Accept=accept)
    assert response.status_code == 200, response.text
    arrays, meta = read(response.content)
    scores = arrays["0.attention"]
    expected = numbers(ask(windows, decimals=9)["attention"])
    assert (scores.dtype, meta["dtype"]) == (dtype, dtype)
    assert np.array_equal(np.isneginf(scores), np.isneginf(expected))
    seen = np.isfinite(expected)
    assert np.abs(scores[seen].astype(np.float64) - expected[seen]).max() <= meta["max_error"] + 1e-6
    assert "float32_arrays" not in meta


@pytest.mark.parametrize("how", ["mean", "max"])
def test_heads_are_aggregated_where_they_see(how: str, windows: Service) -> None:
    """All heads of a layer see the same keys."""
    scores = numbers(ask(windows, decimals=9)["attention"])
    expected = getattr(scores, how)(axis=1)
    found = numbers(ask(windows, decimals=9, aggregate=how)["attention"])
    assert np.array_equal(np.isneginf(found), np.isneginf(expected))
    assert distance(np.exp(found), np.exp(expected)) <= 1e-5


def test_words_of_which_a_part_is_not_seen_have_no_score(windows: Service) -> None:
    """A sum or a mean with a score that is missing is missing."""
    scores = numbers(ask(windows, decimals=9)["attention"])
    item = ask(windows, decimals=9, level="word")
    found = numbers(item["attention"])
    assert len(item["words"]) < scores.shape[-1], "no word has several pieces"
    assert np.isneginf(found[1:]).any()
    assert np.isfinite(found[GLOBAL]).all()
    diagonal = np.diagonal(found, axis1=-2, axis2=-1)
    assert np.isfinite(diagonal).all(), "every word here is shorter than the window"


def test_the_largest_and_the_rest_are_of_what_is_seen(windows: Service) -> None:
    """The sum of the rest is of the scores there are; null where fewer keys are seen than asked for."""
    scores = numbers(ask(windows, decimals=9)["attention"])
    k = HALF + 2
    item = ask(windows, decimals=9, top_k=k)
    weights = numbers(item["top_weights"])
    order = -np.sort(-scores, axis=-1)
    assert np.array_equal(np.isneginf(weights), np.isneginf(order[..., :k]))
    assert distance(np.exp(weights), np.exp(order[..., :k])) <= 1e-5
    rest = np.where(np.isneginf(order[..., k:]), 0, order[..., k:]).sum(-1)
    assert distance(item["residual"], rest) <= 1e-4


def test_thumbnails_have_the_largest_that_is_seen(windows: Service) -> None:
    """A cell in which nothing is seen has no score."""
    scores = numbers(ask(windows, decimals=9)["attention"])
    found = numbers(ask(windows, decimals=9, thumbnail=4)["thumbnails"])
    bounds = np.arange(5) * scores.shape[-1] // 4
    for i, j in product(range(4), range(4)):
        cell = scores[..., bounds[i] : bounds[i + 1], bounds[j] : bounds[j + 1]].max((-2, -1))
        assert np.array_equal(np.isneginf(cell), np.isneginf(found[..., i, j]))
        assert distance(np.exp(cell), np.exp(found[..., i, j])) <= 1e-5
    assert np.isneginf(found[1:]).any()
