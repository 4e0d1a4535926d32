"""Texts that are cut below the limit of the model."""

from dataclasses import replace
from functools import cache

import pytest

from model.checkpoints.source import resolve
from model.tokenization.shortening import shorten
from model.tokenization.tokenizer import Side, TextTokenizer, Truncation
from tests.references.checkpoints import MINILM

FILE = resolve(MINILM) / "tokenizer.json"
TEXT = "A man is eating unbelievably many sandwiches, and Zürich is 東京."


@cache
def reading(limit: int) -> TextTokenizer:
    """The tokenizer of a model that reads so many tokens, whose file takes longer to read than texts do."""
    return TextTokenizer.from_file(FILE, max_length=limit)


@pytest.mark.parametrize("prompt", ["", "query: ", "find what answers this question: "])
def test_a_text_is_cut_as_its_tokenizer_cuts_it(prompt: str) -> None:
    """At each limit that leaves a place to the text, in each column, within a prompt or behind it."""
    (whole,) = reading(256).encode([TEXT], prompt=prompt)
    for limit in range(4, len(whole) + 2):
        (expected,) = reading(limit).encode([TEXT], prompt=prompt)
        assert shorten(whole, limit) == expected
        assert len(expected) == min(limit, len(whole))


def test_what_was_cut_before_is_cut_further() -> None:
    """Its length before both is kept."""
    (cut,) = reading(8).encode([TEXT])
    (expected,) = reading(5).encode([TEXT])
    assert shorten(cut, 5) == expected
    assert shorten(cut, 8) is cut
    assert replace(cut, truncated=False) != cut


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pair", [(TEXT, "A short one."), ("A short one.", TEXT), (TEXT, TEXT)])
def test_of_a_pair_the_longer_text_is_cut_first(pair: tuple[str, str], side: Side) -> None:
    """As its tokenizer cuts it at the limit of the model, from either side, whatever the segments."""
    sided = Truncation(side=side)
    (whole,) = reading(256).encode([pair])
    for limit in range(6, len(whole) + 2):
        (expected,) = reading(limit).encode([pair], sided)
        assert shorten(whole, limit, left=side == "left") == expected
