"""Answers as pandas' data frames, of the running service."""

import importlib
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from headlight_client import Headlight
from tests.references.families import write_model
from tests.support.families import SIZES
from tests.support.serving import Service, serve

pandas = importlib.import_module("pandas")

TEXTS = ["The cat sat.", "A dog barked loudly."]


@pytest.fixture
def client(service: Service) -> Iterator[Headlight]:
    """A client of the service."""
    with Headlight(service.url) as made:
        yield made


@pytest.fixture(scope="module")
def labelling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headlight]:
    """A client of a service with a small classifier of texts, and one of tokens."""
    folder = tmp_path_factory.mktemp("labelling")
    for name, architecture in (("texts", "Sequence"), ("tokens", "Token")):
        write_model(
            folder / name, "Bert", architecture=f"BertFor{architecture}Classification", num_labels=3, **SIZES
        )
    with (
        serve(model=f"texts={folder / 'texts'},tokens={folder / 'tokens'}") as started,
        Headlight(started.url) as made,
    ):
        yield made


def test_vectors_are_cells(client: Headlight) -> None:
    """One row for each text, in their order."""
    answer = client.encode(TEXTS)
    frame = answer.to_pandas()
    assert list(frame.columns) == ["index", "tokens", "truncated", "original_length", "embedding"]
    assert frame["index"].tolist() == [0, 1]
    assert frame["tokens"].tolist() == [len(item.tokens) for item in answer]
    assert np.array_equal(np.stack(frame["embedding"]), answer.embeddings)


def test_each_head_has_a_row(client: Headlight) -> None:
    """With its statistics, for the layers and heads that were asked for."""
    (item, _) = answer = client.attention(TEXTS, summary=True, layers=[1, 4], heads=[0, 2, 11])
    frame = answer.to_pandas().set_index(["index", "layer", "head"])
    assert len(frame) == 2 * 2 * 3
    assert item.summary is not None
    assert set(frame.columns) == set(item.summary)
    for name, values in item.summary.items():
        assert frame.loc[(0, 4, 11), name] == values[1, 2]


def test_each_token_has_a_row(client: Headlight) -> None:
    """Of an item."""
    (item,) = client.tokenize("Hello, world!")
    frame = item.to_pandas()
    assert frame["token"].tolist() == item.tokens
    assert frame["token_id"].tolist() == item.token_ids.tolist()
    assert frame[["start", "end"]].to_numpy().tolist() == item.offsets.tolist()
    assert frame["special"].tolist() == [True, False, False, False, False, True]


def test_classes_are_columns(labelling: Headlight) -> None:
    """The best class of each text."""
    answer = labelling.predict(TEXTS, model="texts")
    frame = answer.to_pandas()
    best = [item.labels[0] for item in answer if item.labels]
    assert frame["label"].tolist() == [one.label for one in best]
    assert frame["score"].tolist() == [one.score for one in best]


def test_labels_of_tokens_are_columns(labelling: Headlight) -> None:
    """Of an item; with an aggregation, each entity of the answer has a row."""
    (item,) = labelling.predict(TEXTS[0], model="tokens")
    frame = item.to_pandas()
    assert item.token_scores is not None
    assert frame["label"].tolist() == item.token_labels
    assert frame["score"].tolist() == item.token_scores.tolist()
    answer = labelling.predict(TEXTS, model="tokens", aggregation="simple")
    entities = [(item.index, entity) for item in answer for entity in item.entities or ()]
    assert entities
    found = answer.to_pandas()[["index", "label", "start", "end", "text"]].to_numpy().tolist()
    assert found == [[index, one.label, one.start, one.end, one.text] for index, one in entities]


def test_ranking_and_similarities(client: Headlight) -> None:
    """The order of the ranking is kept; similarities have the given names."""
    ranked = client.rerank("Who barked?", TEXTS)
    frame = ranked.to_pandas()
    assert frame["index"].tolist() == [item.index for item in ranked]
    assert frame["score"].tolist() == [item.score for item in ranked]
    assert "text" not in frame
    assert client.rerank("Who barked?", TEXTS, return_texts=True).to_pandas()["text"].tolist()[0] == TEXTS[1]
    found = client.similarity(TEXTS)
    square = found.to_pandas(TEXTS)
    assert square.loc[TEXTS[0], TEXTS[1]] == found.similarities[0, 1]
    one = client.similarity(TEXTS, source="A cat.").to_pandas()
    assert one["similarity"].shape == (2,)


def test_without_pandas_the_error_says_what_to_install(
    client: Headlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for the other optional packages."""
    answer = client.encode("a")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
        answer.to_pandas()


def test_decoded_texts_have_no_rows(client: Headlight) -> None:
    """They are strings, which pandas takes as they are."""
    (tokens,) = client.tokenize("a")
    with pytest.raises(TypeError, match="of type str"):
        client.decode(tokens.token_ids).to_pandas()
