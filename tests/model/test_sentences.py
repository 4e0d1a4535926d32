"""Sentences are found by marks alone, in every script that has them."""

import time

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from model.tokenization.sentences import _MARKS, sentences


def parts(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize(
    "expected",
    [
        ["One sentence.", "Another one!", "And a third?", "No mark"],
        ["He said: “Go!”", "(She went.)", "Then… nothing."],
        ["Version 3.14 of example.com, e.g. this one, is out.", "Really?!", "Yes."],
        ["„Er kommt.“", "«Vraiment ?»", "Ja."],
        ["Это предложение.", "А это второе!"],
        ["هل أنت بخير؟", "نعم۔", "شكرا."],
        ["यह एक वाक्य है।", "यह दूसरा है॥"],
        ["Ինչպե՞ս ես։", "Լավ եմ։"],
        ["ሰላም ነው።", "ደህና ነኝ፧"],
        ["မင်္ဂလာပါ။", "နေကောင်းလား။"],
        ["A title that ends with an empty line", "The text below it."],
    ],
)
def test_sentences_of_scripts_with_white_space(expected: list[str]) -> None:
    """Marks and closing quotes belong to the sentence before them, white space to none."""
    assert parts("  " + " ".join(expected[:-1]) + "\n\n" + expected[-1] + "\n") == expected
    assert parts("\r\n\r\n".join(expected)) == expected


@pytest.mark.parametrize(
    "expected",
    [
        ["今日は晴れです。", "明日は雨？！", "「そうです。」", "圧力は３．１４です．"],
        ["他说：“你好。”", "“再见！”", "好"],
    ],
)
def test_sentences_of_scripts_without_white_space(expected: list[str]) -> None:
    """Full-width marks end a sentence by themselves, but not within a number."""
    assert parts("".join(expected)) == expected


@pytest.mark.parametrize(
    "lines", ["\n\n", "\r\r", "\r\n\r\n", "\n\r", "\n \t\n", "\r\n \u3000\x85", "\u2029", " \n\u2029"]
)
def test_an_empty_line_ends_a_sentence(lines: str) -> None:
    """With the line breaks of every system, and white space in it."""
    assert parts(f"A title{lines}a text") == ["A title", "a text"]


def test_what_the_rule_does_not_know() -> None:
    """Abbreviations are in no dictionary; line breaks of wrapped texts and spaces of Thai end no sentence."""
    assert parts("Dr. Smith came.") == ["Dr.", "Smith came."]
    assert parts("a text\nthat is wrapped. Here\nit ends.") == ["a text\nthat is wrapped.", "Here\nit ends."]
    assert parts("a text\r\nthat is wrapped\ras text.\r\n") == ["a text\r\nthat is wrapped\ras text."]
    assert parts("สวัสดีครับ วันนี้อากาศดี") == ["สวัสดีครับ วันนี้อากาศดี"]
    assert parts(" \n\t ") == parts("") == []


@given(st.text(st.sampled_from("aB.!?。” \n\r“1\u2029\x85"), max_size=40))
def test_every_character_is_in_one_sentence(text: str) -> None:
    """Sentences are in order, do not overlap, and leave out nothing but white space."""
    spans = list(sentences(text))
    ends = [0, *(end for _, end in spans)]
    assert all(before <= start < end for before, (start, end) in zip(ends, spans, strict=False))
    assert all(one == one.strip() for one in parts(text))
    inside = {i for start, end in spans for i in range(start, end)}
    assert all(text[i].isspace() for i in range(len(text)) if i not in inside)


def test_the_marks_are_those_of_unicode() -> None:
    """Each is a `Sentence_Terminal`, and none is missing."""
    known = regex.compile(r"\p{Sentence_Terminal}")
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    assert [c for c in characters if _MARKS.match(c)] == [c for c in characters if known.match(c)]


@pytest.mark.thorough
@pytest.mark.parametrize("text", [".", ".)", ". ", "\n", "\n ", ".\n", "a", " ", "。", "a.", "a. ", ".” a"])
def test_no_text_takes_long(text: str) -> None:
    """Repeated a million times, nothing is searched more than a few times."""
    start = time.perf_counter()
    assert all(start < end for start, end in sentences(text * (2**20 // len(text))))
    assert time.perf_counter() - start < 20
