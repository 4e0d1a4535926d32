"""The parsed answers of `/predict` and `/rerank`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headlight_client.answers import (
    Answer,
    AttentionMaps,
    FloatArray,
    Json,
    Tokens,
    attention_maps,
    joined,
    token_columns,
)
from headlight_client.frames import Columns, Row


@dataclass(frozen=True)
class Label:
    """A class, and its score."""

    label: str
    score: float


@dataclass(frozen=True)
class Entity:
    """A labelled part of a text: `start` and `end` as for Python slices, in text `segment` of a pair."""

    label: str
    score: float
    start: int
    end: int
    text: str
    segment: int


@dataclass(frozen=True, eq=False, repr=False)
class Predicted(Tokens):
    """What a model predicts of one input: of the whole text, of its tokens, or of parts of it."""

    labels: list[Label] | None
    """The classes of the text, largest score first."""
    token_labels: list[str] | None
    """The class of each token."""
    token_scores: FloatArray | None
    """(N,): the score of each token's class."""
    entities: list[Entity] | None
    """Tokens of one class joined, with `aggregation`."""
    maps: AttentionMaps | None
    """With `attention`: that of the same pass."""

    def _rows(self) -> list[Row]:
        """The rows of `Answer.to_pandas`: the best class of the text, or a row for each entity."""
        if self.entities is not None:
            return [{"index": self.index, **vars(entity)} for entity in self.entities]
        (row,) = super()._rows()
        if self.labels:
            row |= {"label": self.labels[0].label, "score": self.labels[0].score}
        return [row]

    def _token_columns(self) -> Columns:
        columns = super()._token_columns()
        if self.token_labels is not None and self.token_scores is not None:
            columns |= {"label": self.token_labels, "score": self.token_scores.tolist()}
        return columns

    def _more(self) -> list[str]:
        best = [] if not self.labels else [f"label={self.labels[0].label!r}"]
        return best + super()._more()


@dataclass(frozen=True)
class Ranked:
    """One text and its score; `index` is its place among the texts of the call."""

    index: int
    score: float
    text: str | None
    """With return_texts=True."""
    truncated: bool
    original_length: int
    """Tokens before truncation."""
    covered: list[list[int]] | None
    """What was read of a truncated text, or of both of a pair: [start, end), as for Python slices."""
    maps: AttentionMaps | None
    """With `attention`: that of the query and the text."""

    def _rows(self) -> list[Row]:
        """The rows of `Answer.to_pandas`."""
        row = {name: value for name, value in vars(self).items() if name not in ("maps", "covered")}
        if self.text is None:
            del row["text"]
        return [row]


def predicted(item: Json, axes: Sequence[str], scale: float) -> Predicted:
    """Parse an item of `/predict`; raises KeyError, TypeError or ValueError if it is invalid."""
    labels, entities, scores = (item.get(name) for name in ("labels", "entities", "token_scores"))
    return Predicted(
        **token_columns(item, scale),
        labels=None if labels is None else [Label(**label) for label in labels],
        token_labels=item.get("token_labels"),
        token_scores=None if scores is None else np.asarray(scores, np.float32),
        entities=None if entities is None else [Entity(**entity) for entity in entities],
        maps=_maps(item, axes, scale),
    )


def ranked(item: Json, axes: Sequence[str], scale: float) -> Ranked:
    """Parse an item of `/rerank`; raises KeyError, TypeError or ValueError if it is invalid."""
    return Ranked(
        item["index"],
        item["score"],
        item.get("text"),
        item["truncated"],
        item["original_length"],
        item.get("covered"),
        _maps(item, axes, scale),
    )


def tokens_of(item: Json, _axes: Sequence[str], scale: float) -> Tokens:
    """Parse an item of `/tokenize`; raises KeyError, TypeError or ValueError if it is invalid."""
    return Tokens(**token_columns(item, scale))


def decoded(item: Json, _axes: Sequence[str], _scale: float) -> str:
    """Parse an item of `/decode`; raises KeyError if it is invalid."""
    return str(item["text"])


def best(answers: Sequence[Answer[Ranked]], top_n: int | None) -> Answer[Ranked]:
    """Join the answers to the parts of a call: the best of all texts first, ties by index."""
    whole = joined(answers)
    items = sorted(whole.items, key=lambda item: (-item.score, item.index))
    return Answer(**{**vars(whole), "items": tuple(items[:top_n])})


def _maps(item: Json, axes: Sequence[str], scale: float) -> AttentionMaps | None:
    """Parse the maps of an item that has some."""
    given: Any = item.get("layers")
    return None if given is None else attention_maps(item, axes, scale)
