"""Labels in a response are never larger than was said before."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from model.contract import Encoding, HeadInfo, HeadKind, Output, Want
from model.heads.spans import SpanLabels
from model.tokenization.subwords import Subwords
from service.replies.answer_size import bound
from service.replies.style import AnswerStyle
from service.tasks.label import (
    EntityLabels,
    Labelling,
    TextLabels,
    TokenizedInput,
    TokenLabels,
    add_labels,
)
from service.tasks.results import Expected, columns
from service.tasks.view import View
from tests.service.replies.test_answer_size import MODEL, NAMES, WORST, size

TOKENS = 200
LABELS = tuple(f"{i}" + "\x01" * 40 for i in range(100, 400))
HEADS = {kind: HeadInfo(kind, LABELS, "softmax") for kind in get_args(HeadKind)}
ENTITIES = EntityLabels(
    HEADS["token_classification"], SpanLabels.of(LABELS), "simple", Subwords(marked=True, unknown=None)
)
LABELLINGS: list[Labelling] = [
    TextLabels(HEADS["classification"], len(LABELS), raw=True),
    TextLabels(HEADS["classification"], 1, raw=False),
    TokenLabels(HEADS["token_classification"], raw=True),
    ENTITIES,
]
TEXTS = {
    "letters": ("abc" * TOKENS, [(3 * i, 3 * i + 3) for i in range(TOKENS)]),
    "shared": ("\x01🙂", [(0, 2)] * TOKENS),
    "gaps": ('"' * 1000 * TOKENS, [(1000 * i, 1000 * i + 1) for i in range(TOKENS)]),
    "far": ("a" * 2_000_000, [(1_999_000 + i, 1_999_001 + i) for i in range(TOKENS)]),
}


def tokens(offsets: list[tuple[int, int]]) -> Encoding:
    """Tokens of a text, at their largest, of which the first is special."""
    return replace(
        WORST,
        token_ids=[2**31 - 1] * TOKENS,
        segment_ids=[0] * TOKENS,
        tokens=['"'] * TOKENS,
        offsets=[(0, 0), *offsets[1:]],
        word_ids=[2_000_000] * TOKENS,
        special=[True] + [False] * (TOKENS - 1),
    )


@pytest.mark.parametrize("format_name", NAMES)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("labelling", LABELLINGS, ids=["all", "one", "tokens", "entities"])
def test_labels_are_never_larger_than_their_bound(labelling: Labelling, text: str, format_name: Any) -> None:
    """Whatever the labels, the numbers and the text are; entities may be as many as tokens."""
    whole, offsets = TEXTS[text]
    encoding = tokens(offsets)
    logits = np.full((TOKENS, len(LABELS)), -1.00000034e-05, np.float32)
    # Every token is an entity of its own, or all are one with the text between them.
    logits[np.arange(TOKENS), 0 if text == "gaps" else np.arange(TOKENS) % 2] = 0.10000001
    plain = View(Want(), columns(0, encoding), Expected(encoding=encoding))
    view = add_labels(plain, labelling, len(LABELS), TokenizedInput(encoding, whole))
    item = view.item(Output(heads={"logits": logits[0], "token_logits": logits}))
    style = AnswerStyle(MODEL, format_name)
    assert size(style, [item]) <= bound(style, [view.expected])
    if labelling is ENTITIES:
        assert len(item.columns["entities"]) == (1 if text == "gaps" else TOKENS - 1)


def test_what_logits_take_is_counted_beside_the_answer() -> None:
    """They wait until the last text has run: float32, of every token or of the text."""
    reading = TokenizedInput(tokens(TEXTS["letters"][1]), TEXTS["letters"][0])
    for labelling, rows in zip(LABELLINGS, (1, 1, TOKENS, TOKENS), strict=True):
        view = add_labels(View(Want(), {}, Expected()), labelling, len(LABELS), reading)
        assert view.expected.held_bytes == 4 * rows * len(LABELS)
