"""How a text is split into chunks, whatever its tokenizer counts as part of a word."""

from dataclasses import replace
from typing import Any

import pytest

from model.contract import Encoding
from service.protocols.native.schemas import EncodeRequest
from service.tasks.chunking.chunks import Chunking, ChunkPlan, Parts, Windows
from service.tasks.embed import EncodePlan, plan_encode
from service.tasks.errors import OptionError
from tests.service.test_encode_plan import DENSE, INFO


def encoding(*offsets: tuple[int, int], prompt: int = 0, truncated: bool = False) -> Encoding:
    """Tokens with these offsets, after a special token and those of a prompt, and before a special one."""
    count = len(offsets) + 2 + prompt
    return Encoding(
        token_ids=[0] * count,
        segment_ids=[0] * count,
        tokens=["x"] * count,
        offsets=[(0, 0)] * (1 + prompt) + list(offsets) + [(0, 0)],
        word_ids=[None] * count,
        special=[True] + [False] * (count - 2) + [True],
        truncated=truncated,
        original_length=count + 100 * truncated,
        prompt_length=prompt + 1 if prompt else 0,
    )


def split(chunking: Chunking, encoded: Encoding, text: str) -> Parts:
    plan = ChunkPlan(chunking, 8, normalize=True, dimensions=None)
    plan.counts([encoded], [text])
    return plan.split(encoded, text)


def test_white_space_before_a_word_does_not_decide() -> None:
    """SentencePiece counts the space before a word as its own: the word still begins a sentence."""
    text = "One. Two. \n "
    encoded = encoding((0, 4), (4, 9), (9, 12))
    assert split("sentences", encoded, text) == Parts([(0, 4), (5, 9)], [(1, 2), (2, 3)])
    assert split(((0, 5), (5, 9)), encoded, text).tokens == [(1, 2), (2, 3)]
    assert split(((9, 12),), encoding((0, 4), (4, 9), (9, 12), prompt=2), text[:9] + "abc").tokens == [(5, 6)]


def test_tokens_of_one_character_stay_together() -> None:
    """The bytes of a character are tokens with the same place, and all of them belong to its chunk."""
    encoded = encoding((0, 1), (0, 1), (0, 1), (1, 2))
    assert split(((0, 1), (1, 2)), encoded, "🙂a").tokens == [(1, 4), (4, 5)]


def test_offsets_that_step_back_keep_chunks_in_one_piece() -> None:
    """A normalizer may reorder combining marks: spans are still of neighbouring tokens."""
    encoded = encoding((0, 1), (2, 3), (1, 2), (3, 4))
    assert split(((0, 2), (2, 4)), encoded, "abcd").tokens == [(1, 2), (2, 5)]
    assert split(Windows(3, 1), encoded, "abcd") == Parts([(0, 3), (2, 4)], [(1, 4), (3, 5)])


@pytest.mark.parametrize(("count", "limit"), [(4096, True), (4097, False)])
def test_a_text_has_a_bounded_number_of_chunks(count: int, limit: bool) -> None:
    """More are refused, and the answer says how to get fewer."""
    encoded = encoding(*((2 * i, 2 * i + 1) for i in range(count)))
    cases: tuple[tuple[Chunking, str, str], ...] = (
        (Windows(1, 0), "a " * count, "larger `tokens`"),
        ("sentences", "。 " * count, '{"tokens": n}'),
    )
    for chunking, text, way_out in cases:
        if limit:
            assert len(split(chunking, encoded, text).tokens) == count
            continue
        with pytest.raises(OptionError) as refused:
            split(chunking, encoded, text)
        assert (refused.value.option, refused.value.members) == ("chunks", {"limit": 4096})
        assert way_out in str(refused.value)


def test_windows_are_counted_without_looking_at_texts() -> None:
    """Thousands of texts that have too many in all are refused before any of them is split."""
    for count in (0, 1, 2, 5, 6, 7, 100):
        encoded = encoding(*((2 * i, 2 * i + 1) for i in range(count)), prompt=2)
        for windows in (Windows(1, 0), Windows(3, 2), Windows(5, 1), Windows(200, 0)):
            made = ChunkPlan(windows, 8, normalize=True, dimensions=None)
            assert made.most(encoded) == len(made.split(encoded, "ab" * count).tokens)
    # Without the places of its tokens, no text can be split.
    good, bad = (replace(encoding(*[(0, 1)] * count), offsets=[]) for count in (4096, 4097))
    made = ChunkPlan(Windows(1, 0), 8, normalize=True, dimensions=None)
    made.counts([good] * 2, ["a"] * 2)
    with pytest.raises(OptionError) as refused:
        made.counts([good, bad], ["a"] * 2)
    assert "chunks splits inputs.1 into" in str(refused.value)


def plan(options: dict[str, Any], **model: Any) -> EncodePlan:
    request = EncodeRequest.model_validate({"inputs": "a", "chunks": "sentences"} | options)
    return plan_encode(request.embeddings, replace(INFO, **model))


def test_chunks_are_pooled_by_the_mean_whatever_the_model_does() -> None:
    """The model's own pooling is that of its sentence vectors; naming it changes nothing."""
    for options in ({}, {"pooling": "cls"}, {"pooling": "mean"}):
        made = plan(options, pooling=("cls",), normalize=False)
        assert made.chunks is not None
        assert (made.chunks.size, made.chunks.normalize) == (384, False)
    with pytest.raises(OptionError) as refused:
        plan({"pooling": "max"}, pooling=("cls",))
    assert refused.value.members["allowed"] == ["mean"]


def test_dense_layers_take_the_mean_if_it_has_the_size_of_their_pooling() -> None:
    """A layer that was trained on two poolings, side by side, cannot follow the mean alone."""
    made = plan_encode(EncodeRequest(inputs="a", chunks="sentences", dimensions=100).embeddings, DENSE)
    assert made.chunks is not None
    assert made.chunks.size == 100
    with pytest.raises(OptionError):
        plan_encode(EncodeRequest(inputs="a", chunks="sentences", dimensions=129).embeddings, DENSE)
    with pytest.raises(OptionError) as refused:
        plan({}, dense=True, sentence_size=128, pooling=("cls", "mean"))
    assert refused.value.option == "chunks"


def test_a_precision_is_checked_for_chunks_too() -> None:
    """Both vectors of a request have it, and chunks have a size of their own."""
    with pytest.raises(OptionError) as refused:
        plan({"outputs": [], "precision": "int8"}, normalize=False)
    assert refused.value.option == "normalize"
    with pytest.raises(OptionError) as refused:
        plan({"outputs": [], "precision": "binary"}, hidden_size=20)
    assert refused.value.members["actual"] == 20
