"""Weights, aggregates, special tokens and words of `POST /attention`, against loops over definitions."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.contract.test_encode import PAIRS, TEXTS
from tests.references.attention import Text
from tests.references.comparing import distance, relative_distance
from tests.references.encoder import softmax
from tests.support.attention_answers import PAIR, ROUNDING, SHORT, TEXT, Subject
from tests.support.backends import both_backends
from tests.support.serving import LONG

pytestmark = both_backends

Array = NDArray[np.float64]
WEIGHTS = ["probability", "score", "value_norm"]


def rows(item: Any) -> Array:
    return np.array(item["attention"]).sum(-1)


def test_without_options_everything_comes(mini: Subject, prompted: Subject) -> None:
    """All layers and heads of texts, of pairs, and of texts after the model's own prompt."""
    mini.check(TEXT, "", TEXTS[3])
    mini.check(PAIR, *PAIRS)
    prompted.check("worldly man beats boying", "")
    prompted.check("boying beating " * 20, truncation_side="left")


# ------------------------------------------------------------------------------------------ weights


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("text", [TEXT, TEXTS[3], "", PAIR, PAIRS[0]])
def test_every_kind_of_weights_is_that_of_the_reference(mini: Subject, text: Text, weights: str) -> None:
    """All layers and heads of the probabilities, of the scores before the softmax, and of the value norms."""
    mini.check(text, weights=weights)


@pytest.mark.parametrize("weights", ["score", "value_norm"])
def test_weights_of_a_text_that_was_cut(mini: Subject, weights: str) -> None:
    """At the model's limit too."""
    mini.check(LONG, weights=weights, layers=[-1], heads=[3])


def test_scores_are_what_the_softmax_is_of(mini: Subject) -> None:
    """The softmax of the scores that are served are the probabilities that are served."""
    scores, probabilities = (
        np.array(mini.ask(TEXT, weights=weights)["data"][0]["attention"])
        for weights in ("score", "probability")
    )
    assert scores.min() < 0, "scores are no probabilities"
    assert distance(softmax(scores), probabilities) <= 1e-6
    assert np.abs(probabilities.sum(-1) - 1).max() <= 1e-6


@pytest.mark.parametrize("weights", WEIGHTS)
def test_weights_alone_are_those_inside_a_batch(mini: Subject, weights: str) -> None:
    """Who else is in the batch does not change a map by more than 2e-6 (of its largest number)."""
    texts = [TEXT, "short", "", LONG[:300], TEXTS[1], TEXT + " and more of it"]
    options: Any = {"weights": weights, "layers": [0, 3, 5], "heads": [0, 5, 11]}
    together = mini.ask(*texts, **options)["data"]
    for text, item in zip(texts, together, strict=True):
        (alone,) = mini.ask(text, **options)["data"]
        assert relative_distance(item["attention"], alone["attention"]) <= 2e-6 + 2 * ROUNDING


# ---------------------------------------------------------------------------------------- aggregate


@pytest.mark.parametrize("aggregate", ["mean", "max"])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_head_listed_twice_counts_twice(mini: Subject, aggregate: str, weights: str) -> None:
    """Means and maxima are over the heads as they are listed."""
    mini.check(TEXT, aggregate=aggregate, weights=weights, heads=[3, 3, -1], layers=[4, 0, 4])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"layers": [0]},
        {"layers": [-3]},
        {"layers": [2, 0, 2]},
        {"heads": [7]},
        {"heads": [1, 1, -1], "layers": [1, -2]},
    ],
)
def test_rollout_is_the_product_up_to_the_last_layer_asked(mini: Subject, options: Any) -> None:
    """From layer 0 to the largest of `layers`, of the mean of the chosen heads, in one map."""
    (item,) = mini.check(PAIR, aggregate="rollout", **options)
    assert np.abs(rows(item) - 1).max() <= 1e-6
    assert "layers" not in item
    assert "heads" not in item


def test_rollout_of_uniform_attention(uniform: Subject) -> None:
    """Two layers that look at all 5 tokens alike: ¾·U + ¼·I, whatever the model."""
    (item,) = uniform.check(SHORT, aggregate="rollout")
    assert distance(item["attention"], 0.75 / 5 + 0.25 * np.eye(5)) <= 1e-6


# ----------------------------------------------------------------------------------- special tokens


@pytest.mark.parametrize("text", [TEXT, PAIR, "a literal [SEP] stays", ("", "only a pair")])
@pytest.mark.parametrize("level", ["token", "word"])
def test_special_tokens_can_be_dropped(mini: Subject, text: Text, level: str) -> None:
    """Their rows and columns are gone, what was run is told whole, and labels name what is left."""
    (item,) = mini.check(text, special_tokens="drop", level=level, layers=[0, 5])
    count = len(item["words"] if level == "word" else item["tokens"])
    assert len(item["queries"]) == count - sum(item["special"])
    assert item["queries"] == item["keys"]


def test_a_literal_separator_is_not_dropped(mini: Subject) -> None:
    """What was written in the text is no special token."""
    (item,) = mini.check("a [SEP] b", special_tokens="drop")
    assert [item["tokens"][i] for i in item["queries"]] == ["a", "[SEP]", "b"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"level": "word"},
        {"renormalize": True},
        {"top_k": 3},
        {"aggregate": "mean"},
        {"aggregate": "rollout"},
        {"weights": "value_norm", "top_k": 1},
        {"summary": True},
    ],
)
@pytest.mark.parametrize("text", ["", ("", "")])
def test_dropping_everything_leaves_maps_of_nothing(mini: Subject, text: Text, options: Any) -> None:
    """An empty text has nothing but special tokens: maps without rows are legal."""
    (item,) = mini.check(text, special_tokens="drop", **options)
    assert item["queries"] == item["keys"] == []


def test_an_empty_text_among_others(mini: Subject) -> None:
    """Inputs of nothing and inputs of something share a request."""
    mini.check("", TEXT, "", special_tokens="drop", level="word", top_k=2, layers=[1])


# --------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize("text", [*TEXTS[:8], "", PAIR, *PAIRS])
def test_words_are_merged_from_their_pieces(mini: Subject, text: Text) -> None:
    """Sum over the pieces of the key, mean over the pieces of the query; rows still sum to 1."""
    (item,) = mini.check(text, level="word", layers=[0, -1], heads=[2, 9])
    assert np.abs(rows(item) - 1).max() <= 1e-6


def test_words_are_told_as_they_are_written(mini: Subject) -> None:
    """Text between the offsets, in the text it comes from; the two texts of a pair are kept apart."""
    (item,) = mini.check(PAIR, level="word", layers=[0], heads=[0])
    assert item["words"] == [
        *("[CLS]", "Unbelievable", "antidisestablishmentarianism", "?", "[SEP]"),
        *("Unbelievably", "so", "🙂", "naïve", ".", "[SEP]"),
    ]
    assert item["word_offsets"][1:4] == [[0, 12], [13, 41], [41, 42]]
    assert item["word_offsets"][4:7] == [[0, 0], [0, 12], [13, 15]]
    assert len(item["tokens"]) > len(item["words"]) == len(item["queries"])


def test_the_last_word_of_a_text_and_the_first_of_its_pair_are_two(mini: Subject) -> None:
    """Both have the number 0, and nothing but a separator between them; dropping it does not join them."""
    (item,) = mini.check(("hello", "world"), level="word", special_tokens="drop")
    assert item["word_ids"] == [None, 0, None, 0, None]
    assert item["words"] == ["[CLS]", "hello", "[SEP]", "world", "[SEP]"]
    assert item["queries"] == [1, 3]


@pytest.mark.parametrize("weights", ["score", "value_norm"])
def test_words_of_other_weights(mini: Subject, weights: str) -> None:
    """Whatever the numbers are, words are merged in the same way."""
    mini.check(TEXT, level="word", weights=weights)


@pytest.mark.parametrize("level", ["token", "word"])
@pytest.mark.parametrize("special_tokens", ["keep", "drop"])
@pytest.mark.parametrize(
    "options", [{}, {"prompt_name": "passage"}, {"prompt": "manman: "}, {"prompt": "boy"}, {"prompt": ""}]
)
def test_tokens_of_a_prompt_are_words_of_their_own(
    prompted: Subject, level: str, special_tokens: str, options: Any
) -> None:
    """They are run, they stay where special tokens are dropped, and they belong to no word of the text."""
    prompted.check("worldly man beats boying", level=level, special_tokens=special_tokens, **options)
    prompted.check(("beating man", "beats boying"), level=level, special_tokens=special_tokens, **options)


def test_words_of_a_prompt_are_its_tokens(prompted: Subject) -> None:
    """The token strings stand for them, one by one, at [0, 0]."""
    (item,) = prompted.check("boying", level="word", prompt="worldman ")
    assert item["words"] == ["[CLS]", *item["tokens"][1:5], "boying", "[SEP]"]
    assert item["tokens"][1] == "world"
    assert item["word_offsets"] == [[0, 0]] * 5 + [[0, 6], [0, 0]]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("text", ["boying beating " * 20, ("boying " * 20, "beating " * 20)])
def test_words_of_a_text_that_was_cut(prompted: Subject, side: str, text: Text) -> None:
    """A word that was cut is what is left of it, on either side, with its offsets in the whole text."""
    (item,) = prompted.check(text, level="word", truncation_side=side, layers=[1], heads=[0, 3])
    assert item["truncated"]
    (item,) = prompted.check(text, level="word", truncation_side=side, prompt="", special_tokens="drop")
    assert item["truncated"]
