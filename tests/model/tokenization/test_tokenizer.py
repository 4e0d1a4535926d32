"""Text to tokens: where each token comes from, prompts, and cutting that is reported."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.checkpoints.source import resolve
from model.contract import Encoding
from model.errors import CheckpointError, InputTooLong
from model.tokenization.tokenizer import TextTokenizer, Truncation
from tests.references.checkpoints import MINILM, write_tokenizer

FILE = resolve(MINILM) / "tokenizer.json"
SHORT = TextTokenizer.from_file(FILE, max_length=16)
LONG = TextTokenizer.from_file(FILE, max_length=512)
NUMBERS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def one(text: str | tuple[str, str], *, prompt: str = "", side: str = "right") -> Encoding:
    truncation = Truncation(side="left" if side == "left" else "right")
    return SHORT.encode([text], truncation, prompt)[0]


def pieces(encoding: Encoding, text: str) -> list[str]:
    """What the offsets cut out of the text."""
    return [text[start:end] for start, end in encoding.offsets]


def test_columns_say_what_each_token_is() -> None:
    """Ids, tokens, offsets in code points, words from 0, segments and special tokens, side by side."""
    encoding = one("Hello, 🙂 embeddings")
    assert encoding.tokens == ["[CLS]", "hello", ",", "[UNK]", "em", "##bed", "##ding", "##s", "[SEP]"]
    assert encoding.token_ids[:3] == [101, 7592, 1010]
    assert pieces(encoding, "Hello, 🙂 embeddings") == ["", "Hello", ",", "🙂", "em", "bed", "ding", "s", ""]
    assert encoding.word_ids == [None, 0, 1, 2, 3, 3, 3, 3, None]
    assert encoding.special == [True, *[False] * 7, True]
    assert encoding.segment_ids == [0] * 9
    assert (encoding.truncated, encoding.original_length, len(encoding)) == (False, 9, 9)


def test_words_and_offsets_of_a_pair_count_from_the_start_of_each_text() -> None:
    """The second text's words and offsets are its own; a special token belongs to the text before it."""
    encoding = one(("big world", "hello big"))
    assert encoding.word_ids == [None, 0, 1, None, 0, 1, None]
    assert encoding.offsets == [(0, 0), (0, 3), (4, 9), (0, 0), (0, 5), (6, 9), (0, 0)]
    assert encoding.segment_ids == [0, 0, 0, 0, 1, 1, 1]


def test_a_literal_sep_in_a_text_is_not_special() -> None:
    """Special means added by the tokenizer: what the client wrote has offsets and a word of its own."""
    encoding = one("a [SEP] b")
    assert encoding.token_ids == [101, 1037, 102, 1038, 102]
    assert encoding.special == [True, False, False, False, True]
    assert encoding.offsets[2] == (2, 7)
    assert encoding.word_ids == [None, 0, 1, 2, None]


@pytest.mark.parametrize("text", ["", "   \n\t", "\u0301", "\u200d"])
def test_an_empty_text_has_its_special_tokens(text: str) -> None:
    """A text of nothing that the model knows encodes [CLS] [SEP], and is not truncated."""
    encoding = one(text)
    assert encoding.token_ids == [101, 102]
    assert not encoding.truncated


def test_segments_are_known_where_the_model_has_none(tmp_path: Path) -> None:
    """A tokenizer that gives every token type 0 still tells the two texts of a pair apart."""
    write_tokenizer(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    for part in content["post_processor"]["pair"]:
        next(iter(part.values()))["type_id"] = 0
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = TextTokenizer.from_file(tmp_path / "tokenizer.json", max_length=16)
    assert tokenizer.encode([("the man", "boy")])[0].segment_ids == [0, 0, 0, 0, 1, 1]


# -------------------------------------------------------------------------------------- truncation


def test_what_is_too_long_is_cut_at_the_chosen_side_and_said_so() -> None:
    """The model's limit includes special tokens; words keep the numbers they have in the whole text."""
    right, left = one(NUMBERS), one(NUMBERS, side="left")
    words = NUMBERS.split()
    assert right.tokens == ["[CLS]", *words[:14], "[SEP]"]
    assert left.tokens == ["[CLS]", *words[2:], "[SEP]"]
    assert left.word_ids[1:-1] == list(range(2, 16))
    assert pieces(left, NUMBERS)[1:-1] == words[2:]
    for encoding in (right, left):
        assert (encoding.truncated, encoding.original_length, len(encoding)) == (True, 18, 16)


def test_of_a_pair_the_longer_text_is_cut_first() -> None:
    """Longest first: the short text stays whole, whichever of the two it is."""
    first, second = one((NUMBERS, "a b c")), one(("a b c", NUMBERS))
    assert first.tokens == ["[CLS]", *NUMBERS.split()[:10], "[SEP]", "a", "b", "c", "[SEP]"]
    assert second.tokens == ["[CLS]", "a", "b", "c", "[SEP]", *NUMBERS.split()[:10], "[SEP]"]
    both = one((NUMBERS, NUMBERS))
    assert [both.segment_ids.count(segment) for segment in (0, 1)] in ([8, 8], [9, 7])


def test_the_limit_itself_is_not_too_long() -> None:
    """Sixteen tokens fit into sixteen; the seventeenth does not."""
    refuse = Truncation(allowed=False)
    fits, not_quite = " ".join(NUMBERS.split()[:14]), " ".join(NUMBERS.split()[:15])
    assert len(SHORT.encode([fits], refuse)[0]) == 16
    with pytest.raises(InputTooLong) as refusal:
        SHORT.encode([fits, not_quite], refuse)
    error = refusal.value
    assert (error.field, error.actual, error.limit) == ("inputs.1", 17, 16)
    assert "inputs.1 is 17 tokens long, but the model reads at most 16" in str(error)


def test_the_file_s_own_truncation_and_padding_are_set_aside() -> None:
    """The embedded model's file asks for 128 tokens, padded; neither is a property of the model."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    assert content["truncation"]["max_length"] == 128
    assert content["padding"]["strategy"] == {"Fixed": 128}
    lengths = [len(encoding) for encoding in LONG.encode(["hello", "a " * 300, "a " * 600])]
    assert lengths == [3, 302, 512]


# ----------------------------------------------------------------------------------------- prompts


def test_a_prompt_is_read_but_does_not_count() -> None:
    """Tokens of the prompt have offsets [0, 0] and no word; the text's offsets and words start at 0."""
    encoding = one("hello big world", prompt="query: ")
    assert encoding.tokens == ["[CLS]", "query", ":", "hello", "big", "world", "[SEP]"]
    assert encoding.offsets == [(0, 0)] * 3 + [(0, 5), (6, 9), (10, 15), (0, 0)]
    assert encoding.word_ids == [None, None, None, 0, 1, 2, None]
    assert encoding.special == [True, *[False] * 5, True]
    assert encoding.prompt_length == 3


def test_a_token_that_reaches_into_the_text_belongs_to_the_text() -> None:
    """ "ab" before "cd" is the pieces "abc" and "d": the first stands for "c"."""
    encoding = one("cd ab", prompt="ab")
    assert encoding.tokens == ["[CLS]", "abc", "##d", "ab", "[SEP]"]
    assert encoding.offsets[1:4] == [(0, 1), (1, 2), (3, 5)]
    assert encoding.word_ids == [None, 0, 0, 1, None]
    assert encoding.prompt_length == 1


def test_a_prompt_stands_before_the_first_text_of_a_pair() -> None:
    """The second text of a pair has no prompt, and keeps its own words and offsets."""
    encoding = one(("hello", "big world"), prompt="query: ")
    assert encoding.tokens == ["[CLS]", "query", ":", "hello", "[SEP]", "big", "world", "[SEP]"]
    assert encoding.word_ids == [None, None, None, 0, None, 0, 1, None]
    assert encoding.offsets[3:] == [(0, 5), (0, 0), (0, 3), (4, 9), (0, 0)]
    assert encoding.segment_ids == [0] * 5 + [1] * 3


def test_a_prompt_before_an_empty_text_is_all_there_is() -> None:
    """The prompt and the special tokens are run, and all of them but the last are the prompt's."""
    encoding = one("", prompt="query: ")
    assert (encoding.tokens, encoding.prompt_length) == (["[CLS]", "query", ":", "[SEP]"], 3)
    assert set(encoding.word_ids) == {None}


def test_a_prompt_that_is_cut_off_moves_no_word() -> None:
    """Cut at the left, a text has the same words and offsets whether or not a prompt stood before it."""
    plain, prompted = one(NUMBERS, side="left"), one(NUMBERS, side="left", prompt="query: ")
    assert prompted.word_ids == plain.word_ids
    assert prompted.offsets == plain.offsets
    assert (prompted.original_length, prompted.prompt_length) == (20, 1)


@settings(deadline=None, max_examples=60)
@given(text=TEXTS, prompt=st.sampled_from(["q: ", "search", "日本", "é\u0301 "]))
def test_with_a_prompt_every_offset_lies_in_the_text(text: str, prompt: str) -> None:
    """Whatever the prompt, offsets stay inside the text and words never run backwards or below 0."""
    encoding = LONG.encode([text], None, prompt)[0]
    assert all(0 <= start <= end <= len(text) for start, end in encoding.offsets)
    words = [word for word in encoding.word_ids if word is not None]
    assert words == sorted(words)
    assert not words or words[0] >= 0
    assert all(word is None for word in encoding.word_ids[: encoding.prompt_length])
    columns = [getattr(encoding, f.name) for f in fields(encoding)]
    assert {len(column) for column in columns if isinstance(column, list)} == {len(encoding)}


# ---------------------------------------------------------------------------------- the file itself


def test_lower_casing_is_before_the_tokenizer_s_own_steps(tmp_path: Path) -> None:
    """A cased tokenizer can be asked to lower the text; offsets still point into the text as written."""
    write_tokenizer(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["normalizer"]["lowercase"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    cased = TextTokenizer.from_file(tmp_path / "tokenizer.json", max_length=16)
    lowered = TextTokenizer.from_file(tmp_path / "tokenizer.json", max_length=16, lower_case=True)
    assert cased.encode(["THE man"])[0].tokens == ["[CLS]", "[UNK]", "man", "[SEP]"]
    assert lowered.encode(["THE man"])[0].tokens == ["[CLS]", "the", "man", "[SEP]"]
    assert lowered.encode(["THE man"])[0].offsets == [(0, 0), (0, 3), (4, 7), (0, 0)]
    content["normalizer"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    bare = TextTokenizer.from_file(tmp_path / "tokenizer.json", max_length=16, lower_case=True)
    assert bare.encode(["THE"])[0].tokens == ["[CLS]", "the", "[SEP]"]


def test_the_vocabulary_is_one_more_than_the_largest_id() -> None:
    """The embedding table needs a row for every id, added tokens included."""
    assert SHORT.vocab_size == 30_522


def test_a_limit_without_room_for_text_is_refused() -> None:
    """Three special tokens of a pair and a limit of three leave nothing to read."""
    with pytest.raises(
        CheckpointError,
        match="reads at most 3 tokens, but a pair has 3 special tokens, which leaves no room for text",
    ):
        TextTokenizer.from_file(FILE, max_length=3)


def test_a_missing_or_damaged_file_is_refused(tmp_path: Path) -> None:
    """The message names the file."""
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing"):
        TextTokenizer.from_file(tmp_path / "tokenizer.json", max_length=16)
    (tmp_path / "tokenizer.json").write_text('{"model": 1}')
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read"):
        TextTokenizer.from_file(tmp_path / "tokenizer.json", max_length=16)


def test_threads_may_share_a_tokenizer() -> None:
    """Cut left, cut right and whole, from eight threads at once: every answer is its own."""
    jobs = [(NUMBERS + f" {i}", "left" if i % 2 else "right") for i in range(200)]
    expected = [one(text, side=side) for text, side in jobs]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda job: one(job[0], side=job[1]), jobs)) == expected
