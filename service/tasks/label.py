"""Labels of texts and of their tokens, and entities: what a head's logits say."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from model.contract import Encoding, HeadInfo, HeadKind, LogitsWant
from model.heads.scores import scores
from model.heads.spans import Grouping, SpanLabels, find_spans
from model.tokenization.decoding import json_bytes
from model.tokenization.subwords import Subwords
from model.tokenization.tokenizer import Text
from service.engine.engine import Engine
from service.tasks.errors import OptionError
from service.tasks.results import Item
from service.tasks.view import View

# Bytes, with punctuation, of a float32 and a label's field names, and of an entity's fields and offsets.
_LABEL_BYTES = 48
_ENTITY_BYTES = 112

_LOGITS = ("logits", "token_logits")

HEADS: tuple[HeadKind, ...] = ("classification", "token_classification")
"""The heads that label texts or tokens."""
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class LabelOptions:
    """What to make of a head's logits; `top_k` is only for whole texts, `aggregation` only for tokens."""

    raw_scores: bool = False
    top_k: int | None = None
    """All labels if None."""
    aggregation: Literal["none"] | Grouping = "none"


@dataclass(frozen=True, slots=True)
class TokenizedInput:
    """An input, and its tokens."""

    encoding: Encoding
    text: Text

    def segments(self) -> list[tuple[int, str, list[int]]]:
        """Return each text of the input that has tokens: its number, the text, and its non-special tokens."""
        found: dict[int, list[int]] = {}
        for i, segment in enumerate(self.encoding.segment_ids):
            if not self.encoding.special[i]:
                found.setdefault(segment, []).append(i)
        texts = (self.text,) if isinstance(self.text, str) else self.text
        return [(segment, texts[segment], tokens) for segment, tokens in sorted(found.items())]


@dataclass(frozen=True, slots=True)
class TextLabels:
    """The `top_k` labels of the whole input, the largest logit first, ties by label number."""

    head: HeadInfo
    top_k: int
    raw: bool

    def expect(self, _: TokenizedInput, /) -> tuple[dict[str, tuple[int, ...]], int]:
        """Bound the name and the score of each label."""
        return {}, self.saved(0)

    def saved(self, count: int) -> int:
        """Return how many bytes less the bound is with `count` labels instead of `top_k`."""
        return (self.top_k - count) * (_LABEL_BYTES + longest_label(self.head))

    def label(self, logits: Arrays, _: TokenizedInput, /) -> tuple[Mapping[str, Any], Arrays]:
        """Make `labels` from the logits (labels,)."""
        found = scores(logits["logits"], self.head, raw=self.raw)
        best = np.argsort(-logits["logits"], kind="stable")[: self.top_k]
        names = self.head.labels
        listed = [{"label": names[i], "score": found[i]} for i in best]
        return {"labels": listed}, {}


@dataclass(frozen=True, slots=True)
class TokenLabels:
    """The label of each token, special ones too, and its score."""

    head: HeadInfo
    raw: bool

    def expect(self, reading: TokenizedInput, /) -> tuple[dict[str, tuple[int, ...]], int]:
        """Bound a column of names, and an array of scores."""
        tokens = len(reading.encoding)
        return {"token_scores": (tokens,)}, _LABEL_BYTES + tokens * (1 + longest_label(self.head))

    def label(self, logits: Arrays, _: TokenizedInput, /) -> tuple[Mapping[str, Any], Arrays]:
        """Make `token_labels` and `token_scores` from the logits (N, labels)."""
        found = scores(logits["token_logits"], self.head, raw=self.raw)
        chosen = logits["token_logits"].argmax(-1)
        names = self.head.labels
        return (
            {"token_labels": [names[i] for i in chosen.tolist()]},
            {"token_scores": found[np.arange(len(found)), chosen]},
        )


@dataclass(frozen=True, slots=True)
class EntityLabels:
    """Entities: tokens of each text, special ones left out, grouped by their labels."""

    head: HeadInfo
    labels: SpanLabels
    grouping: Grouping
    subwords: Subwords

    def expect(self, reading: TokenizedInput, /) -> tuple[dict[str, tuple[int, ...]], int]:
        """Bound the entities: every token may be one, and tokens that share a character repeat it."""
        encoding, size = reading.encoding, _LABEL_BYTES
        for _, text, tokens in reading.segments():
            offsets = [encoding.offsets[i] for i in tokens]
            covered = text[offsets[0][0] : offsets[-1][1]]
            size += json_bytes(covered) + json_bytes("".join([text[start:end] for start, end in offsets]))
        return {}, size + len(encoding) * (_ENTITY_BYTES + longest_label(self.head))

    def label(self, logits: Arrays, reading: TokenizedInput, /) -> tuple[Mapping[str, Any], Arrays]:
        """Make `entities` from the logits (N, labels)."""
        return {"entities": self.find(logits, reading)}, {}

    def find(self, logits: Arrays, reading: TokenizedInput) -> list[dict[str, Any]]:
        """Find the entities, in order."""
        found = scores(logits["token_logits"], self.head)
        encoding, entities = reading.encoding, []
        for segment, text, tokens in reading.segments():
            described = [(encoding.token_ids[i], encoding.tokens[i], encoding.offsets[i]) for i in tokens]
            continues = self.subwords.continues(described, text)
            for span in find_spans(found[tokens], continues, self.labels, self.grouping):
                start, end = described[span.first][2][0], described[span.last][2][1]
                entities.append(
                    {
                        "label": span.label,
                        "score": span.score,
                        "start": start,
                        "end": end,
                        "text": text[start:end],
                        "segment": segment,
                    }
                )
        return entities


Labelling = TextLabels | TokenLabels | EntityLabels
"""What a request makes of the logits of each input: `expect` bounds it, and `label` makes it."""


def choose_labelling(engine: Engine, head: HeadInfo, options: LabelOptions) -> Labelling:
    """Choose what to make of the logits; raises OptionError for options of the other kind of classifier."""
    if head.kind == "classification":
        if options.aggregation != "none":
            raise OptionError(
                lambda name: (
                    f"{name('aggregation')} is {options.aggregation}, which joins the tokens of a "
                    f'token_classification head, and the model "{engine.name}" labels whole texts: leave it '
                    "out."
                ),
                option="aggregation",
                kind="unsupported",
            )
        return TextLabels(head, min(options.top_k or len(head.labels), len(head.labels)), options.raw_scores)
    if options.top_k is not None:
        raise OptionError(
            lambda name: (
                f"{name('top_k')} is {options.top_k}, but it applies only to models that label whole texts, "
                f'and the model "{engine.name}" gives each token one label: leave {name("top_k")} out.'
            ),
            option="top_k",
            kind="unsupported",
        )
    if options.aggregation == "none":
        return TokenLabels(head, options.raw_scores)
    return EntityLabels(head, SpanLabels.of(head.labels), options.aggregation, engine.subwords)


@lru_cache(maxsize=64)
def longest_label(head: HeadInfo) -> int:
    """Return the bytes of the longest label as a JSON string."""
    return max(2 + json_bytes(label) for label in head.labels)


def add_labels(view: View, labelling: Labelling, labels: int, reading: TokenizedInput) -> View:
    """Add labels to a view; the text, or each token, has as many logits as there are `labels`."""
    arrays, size = labelling.expect(reading)
    rows = 1 if isinstance(labelling, TextLabels) else len(reading.encoding)
    expected = replace(
        view.expected,
        arrays={**view.expected.arrays, **arrays},
        column_bytes=view.expected.column_bytes + size,
        held_bytes=view.expected.held_bytes + 4 * rows * labels,
    )
    want = replace(view.want, heads=(*view.want.heads, LogitsWant()))

    def finish(item: Item) -> Item:
        logits = {name: array for name, array in item.arrays.items() if name in _LOGITS}
        columns, found = labelling.label(logits, reading)
        others = {name: array for name, array in item.arrays.items() if name not in logits}
        return Item({**item.columns, **columns}, {**others, **found})

    return replace(view, want=want, expected=expected, finish=finish)
