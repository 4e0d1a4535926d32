"""Entities of labelled tokens, against the pipeline of `transformers`."""

from typing import Any

import numpy as np
import pytest

from model.contract import HeadInfo
from model.heads.scores import scores
from model.heads.spans import SpanLabels, find_spans
from model.tokenization.tokenizer import TextTokenizer
from tests.references.comparing import distance
from tests.references.labelled_tokens import GROUPINGS, LABELS, Tagger, write_tagger

HEAD = HeadInfo("token_classification", LABELS, "softmax")
TEXTS = [
    "the man beats the boy",
    "Hello, World! unbelievably helloing beating",
    "€5.20 for日本the boy🙂🙂 the-man's",
    "  spaces   before\tand after \n",
    "[SEP] <unk> a<unk>b [UNK]",
    "é à la ﬁn crème brûlée",
    ".",
    " ".join(["beating the worldly boys"] * 8),
]


@pytest.fixture(scope="module", params=[False, True], ids=["WordPiece", "bytes"])
def tagger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tagger:
    """A token classifier with each kind of tokenizer."""
    return write_tagger(tmp_path_factory.mktemp("tagger"), bytes_alone=request.param, seed=5)


def entities(tagger: Tagger, text: str, grouping: Any) -> list[dict[str, Any]]:
    """What we find in a text, of the reference's logits."""
    tokenizer = TextTokenizer.from_file(tagger.folder / "tokenizer.json", max_length=64)
    (encoding,) = tokenizer.encode([text])
    logits = tagger.logits(encoding.token_ids, encoding.segment_ids).numpy()
    tokens = [i for i, special in enumerate(encoding.special) if not special]
    described = [(encoding.token_ids[i], encoding.tokens[i], encoding.offsets[i]) for i in tokens]
    spans = find_spans(
        scores(logits[tokens], HEAD),
        tokenizer.subwords.continues(described, text),
        SpanLabels.of(LABELS),
        grouping,
    )
    return [
        {
            "entity_group": span.label,
            "score": span.score,
            "start": described[span.first][2][0],
            "end": described[span.last][2][1],
        }
        for span in spans
    ]


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_spans_are_those_of_the_pipeline(tagger: Tagger, grouping: str) -> None:
    """Labels, scores and offsets, with subwords, unknown tokens and any characters."""
    found: list[str] = []
    for text in TEXTS:
        ours, theirs = entities(tagger, text, grouping), tagger.entities(text, grouping)
        for name in ("entity_group", "start", "end"):
            assert [each[name] for each in ours] == [each[name] for each in theirs], text
        assert distance([each["score"] for each in ours], [each["score"] for each in theirs]) <= 1e-6
        found += [each["entity_group"] for each in ours]
    assert len(found) > 30, "the weights label too little for the test to tell anything"
    assert len(set(found)) > 1


def test_words_that_disagree_get_one_label() -> None:
    """The first token's, the mean's or the surest token's, each of which differs here."""
    labels = SpanLabels.of(["B-A", "B-B", "B-C"])
    word = np.array([[0.5, 0.4, 0.1], [0.0, 0.45, 0.55], [0.0, 0.42, 0.58]], np.float32)
    continues = [False, True, True]
    chosen = {
        grouping: find_spans(word, continues, labels, grouping) for grouping in ("first", "average", "max")
    }
    assert {grouping: span.label for grouping, (span,) in chosen.items()} == {
        "first": "A",
        "average": "B",
        "max": "C",
    }
    assert [(span.first, span.last) for (span,) in chosen.values()] == [(0, 2)] * 3


def test_no_tokens_have_no_spans() -> None:
    """An empty text has none."""
    empty = np.zeros((0, len(LABELS)), np.float32)
    assert find_spans(empty, [], SpanLabels.of(LABELS), "average") == []
