"""Expressions that backtrack: found when a tokenizer is loaded, warned about, and never begun for long."""

import logging
import time
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from model.checkpoints.source import resolve
from model.errors import CheckpointError, InputTooSlow
from model.tokenization.slow_patterns import STEP_S, SlowPatterns
from model.tokenization.tokenizer import TextTokenizer
from tests.references.checkpoints import MINILM

GPT_2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA_3 = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
LATIN = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"""[^\r\n\p{{L}}\p{{N}}]?{LATIN[0]}*{LATIN[1]}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
    rf"""|[^\r\n\p{{L}}\p{{N}}]?{LATIN[0]}+{LATIN[1]}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
    r"""|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
PUBLISHED = {
    "GPT-2": GPT_2,
    "Llama 3 and EuroBERT": LLAMA_3,
    "Qwen": LLAMA_3.replace("{1,3}", ""),
    "o200k": O200K,
    "BLOOM": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "CLIP": r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    "SentencePiece": " {2,}",
    "spaces": r"\s+",
    "SigLIP": r"\s{2,}|[\n\r\t]",
    "both ends": r"^\s+|\s+$",
    "ESM": r"L|A|G|V|S|E|R|T|I|D|P|K|Q|N|F|Y|M|H|W|C|X|B|U|Z|O|\.|\-|<null_1>|<mask>",
}
SLOW = {
    r"\s+$": " " * 20_000 + "a",
    r"\s*\n": "\t" * 20_000 + "a",
    r"\d(?=(?:\d{3})+\b)": "1" * 20_000 + "a",
    r"[a-z ]+$": "a word " * 3_000 + "!",
    r"(?:[^,])*,(?:[^,])*;": "," + "a, b" * 5_000,
}
"""Expressions, and texts for which each takes seconds."""


def with_expression(expression: str, *, splits: bool) -> Tokenizer:
    """A tokenizer of words that splits at, or removes, what an expression finds."""
    made = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, "[UNK]"))
    words: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.WhitespaceSplit()]
    if splits:
        words.insert(0, pre_tokenizers.Split(Regex(expression), "isolated"))
    else:
        made.normalizer = normalizers.Sequence([normalizers.Replace(Regex(expression), "")])
    made.pre_tokenizer = pre_tokenizers.Sequence(words)
    return made


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_expressions_are_not_slow(name: str) -> None:
    """Nothing changes for models that people use: no text of theirs is refused, and none is timed."""
    found = SlowPatterns.of(with_expression(PUBLISHED[name], splits=True))
    assert (found.shortest, found.warnings()) == (None, [])


@pytest.mark.parametrize("splits", [True, False])
@pytest.mark.parametrize("expression", SLOW)
def test_a_text_that_would_take_seconds_is_refused_before_it_is_searched(
    expression: str, *, splits: bool
) -> None:
    """Wherever the expression stands; its limit is far below, and the same characters apart are taken."""
    library = with_expression(expression, splits=splits)
    tokenizer = TextTokenizer(library, 16, slow=SlowPatterns.of(library))
    start = time.thread_time()
    with pytest.raises(
        InputTooSlow, match=r"in long runs, in which the tokenizer would need .* s to search for `"
    ) as refusal:
        tokenizer.encode(["a", SLOW[expression]])
    assert time.thread_time() - start < STEP_S
    assert refusal.value.field == "inputs.1"
    assert refusal.value.actual > refusal.value.limit > 500
    assert tokenizer.encode(["word \n" * 5])[0].truncated is False


def test_a_text_that_may_be_searched_takes_no_longer_than_said() -> None:
    """The longest run that is allowed, measured: the limit that was extrapolated is about right."""
    library = with_expression(r"\s+$", splits=False)
    slow = SlowPatterns.of(library)
    tokenizer = TextTokenizer(library, 16, slow=slow)
    assert slow.shortest is not None
    start = time.thread_time()
    assert tokenizer.encode([" " * slow.shortest + "a"])[0].token_ids == [1]
    assert STEP_S / 10 < time.thread_time() - start < 2 * STEP_S
    with pytest.raises(InputTooSlow):
        tokenizer.encode([(" " * (slow.shortest // 2) + "a") * 8])


def test_ordinary_text_is_taken_whatever_its_length() -> None:
    """Single spaces are not hard for an expression that searches runs of them."""
    library = with_expression(r"\s+$", splits=True)
    tokenizer = TextTokenizer(library, 16, slow=SlowPatterns.of(library))
    assert tokenizer.encode(["a b " * 50_000])[0].original_length == 100_000


def test_the_start_warns_of_slow_expressions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It names the file, the expression, what it takes and what is refused; of others it says nothing."""
    file = tmp_path / "tokenizer.json"
    with_expression(r"\s+$", splits=True).save(str(file))
    with caplog.at_level(logging.WARNING):
        TextTokenizer.from_file(file, max_length=16)
    (warning,) = caplog.messages
    assert warning.startswith(rf"{file}: the expression `\s+$` may take ")
    assert " s for 20,000 spaces in a row; the limit is 0.25 s, so inputs with more than " in warning
    caplog.clear()
    TextTokenizer.from_file(resolve(MINILM) / "tokenizer.json", max_length=16)
    assert caplog.messages == []


@pytest.mark.parametrize("expression", ["(a+)+b", r"(\w+\s?)+$", "(.|a)*(.|b)*c", "x*x*x*y"])
def test_a_model_is_refused_whose_tokenizer_hangs_on_a_short_text(expression: str) -> None:
    """The library gives such a search up after a second, with a panic, or later."""
    with pytest.raises(CheckpointError, match="takes too long"):
        SlowPatterns.of(with_expression(expression, splits=True))


def test_several_slow_expressions_share_the_time() -> None:
    """Each has a tenth if there are ten, so that together they take no longer than one may."""
    library = with_expression(r"\s+$", splits=False)
    one = SlowPatterns.of(library).shortest
    library.normalizer = normalizers.Sequence(
        [normalizers.Replace(Regex(rf"\s+${'x' * i}"), "") for i in range(3)]
    )
    several = SlowPatterns.of(library).shortest
    assert one is not None
    assert several is not None
    assert one / 4 < several < one


def test_timing_takes_little_of_a_start() -> None:
    """A few milliseconds for the most complex of the published expressions."""
    library = with_expression(O200K, splits=True)
    start = time.thread_time()
    SlowPatterns.of(library)
    assert time.thread_time() - start < 0.05
