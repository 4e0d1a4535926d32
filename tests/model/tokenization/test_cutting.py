"""Long texts of byte-level pairs and unigrams in pieces: all the same as of the whole text."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from model.tokenization.cutting import SpaceCutter
from model.tokenization.tokenizer import TextTokenizer, Truncation
from tests.model.tokenization.test_long_text import PIECES, WHOLE
from tests.model.tokenization.test_slow_patterns import LLAMA_3

pytestmark = pytest.mark.thorough

SPLITTING = {"Llama 3": LLAMA_3, "Qwen": LLAMA_3.replace("{1,3}", "")}
SURROUNDED = processors.TemplateProcessing(
    single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 1), ("</s>", 2)]
)


def pairs(pre_tokenizer: pre_tokenizers.PreTokenizer, after: processors.PostProcessor) -> Tokenizer:
    """A tokenizer of bytes, and of a few pairs of them."""
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("Ġ", "a"), ("o", "r"), ("f", "o")]
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    vocabulary = {word: i for i, word in enumerate(["<unk>", "<s>", "</s>", *words])}
    made = Tokenizer(models.BPE(vocabulary, merges))
    made.pre_tokenizer = pre_tokenizer
    made.post_processor = after
    return made


def unigrams(
    pre_tokenizer: pre_tokenizers.PreTokenizer, normalizer: normalizers.Normalizer | None = None
) -> Tokenizer:
    """A tokenizer of likely pieces, for which many characters are unknown."""
    letters = [(char, -3.0 - i / 100) for i, char in enumerate("▁abcdefghijklmnopqrstuvwxyz.,!'-éΣ中")]
    pieces = [("▁the", -2.0), ("▁a", -2.0), ("ox", -2.2), ("▁f", -2.1)]
    made = Tokenizer(models.Unigram([("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *letters, *pieces], 0))
    made.pre_tokenizer = pre_tokenizer
    made.post_processor = SURROUNDED
    if normalizer is not None:
        made.normalizer = normalizer
    return made


def with_mask(made: Tokenizer, content: str = "<mask>", **flags: Any) -> Tokenizer:
    made.add_special_tokens([AddedToken(content, **flags)])
    return made


def byte_level(*, space: bool, trimmed: bool) -> Tokenizer:
    """RoBERTa's."""
    after = processors.RobertaProcessing(("</s>", 2), ("<s>", 1), trimmed, space)
    return pairs(pre_tokenizers.ByteLevel(add_prefix_space=space), after)


def split(expression: str) -> pre_tokenizers.PreTokenizer:
    """What splits texts as Llama 3 does."""
    first = pre_tokenizers.Split(Regex(expression), "isolated")
    return pre_tokenizers.Sequence([first, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


METASPACE = pre_tokenizers.Metaspace()
AT_SPACES = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), METASPACE])
COMPATIBLE = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
QUOTES = normalizers.Sequence(
    [normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents()]
)
TOKENIZERS = {
    "RoBERTa": with_mask(byte_level(space=False, trimmed=True), lstrip=True, normalized=False),
    "RoBERTa, a space before": byte_level(space=True, trimmed=False),
    "ModernBERT": with_mask(pairs(pre_tokenizers.ByteLevel(add_prefix_space=False), SURROUNDED), lstrip=True),
    **{name: pairs(split(expression), SURROUNDED) for name, expression in SPLITTING.items()},
    "XLM-R": with_mask(unigrams(AT_SPACES, COMPATIBLE), lstrip=True, rstrip=True),
    "T5": with_mask(unigrams(METASPACE), "<extra_id_0>"),
    "ALBERT": unigrams(AT_SPACES, QUOTES),
    "words are added": with_mask(unigrams(METASPACE), "fox", single_word=True),
}
TEXTS = st.lists(
    st.tuples(
        st.one_of(PIECES, st.sampled_from(["the", "a", "fox", "Ab", "<mask>", "don't", "слово", "``"])),
        st.sampled_from([" ", " ", " ", ""]),
        st.sampled_from([1, 1, 1, 2, 7, 30]),
    ),
    max_size=16,
).map(lambda parts: "".join((text + space) * times for text, space, times in parts))


BESIDE = (
    "<mask>",
    "<extra_id_0>",
    "'s",
    "12",
    "1.",
    "--",
    "…",
    "é",
    "e\u0301",
    "中",
    "\u0301",
    "\n",
    "\t",
    " ",
    "ﬁ",
    "``",
)
EVERYWHERE = " a fox ".join(before + after for before in BESIDE for after in BESIDE)
"""All of these beside spaces and letters, on either side."""


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60, deadline=None)
@example(text=EVERYWHERE, pair=None, prompt="", side="right", piece=1, most=4000)
@example(text=EVERYWHERE, pair=EVERYWHERE, prompt="a fox ", side="left", piece=3, most=16)
@given(
    text=TEXTS,
    pair=st.none() | TEXTS,
    prompt=st.sampled_from(["", "", "q: ", "é", "the fox ", "a b " * 20]),
    side=st.sampled_from(["right", "left"]),
    piece=st.sampled_from([4, 17, 120]),
    most=st.sampled_from([8, 16, 4000]),
)
def test_pieces_are_the_whole(
    name: str, text: str, pair: str | None, prompt: str, side: Any, piece: int, most: int
) -> None:
    """Tokens, ids, offsets, words, segments, `truncated` and the length before: all the same."""
    given = text if pair is None else (text, pair)
    library = TOKENIZERS[name].to_str()
    whole, cutting = (TextTokenizer(Tokenizer.from_str(library), most, piece=size) for size in (WHOLE, piece))
    assert cutting._long is not None
    truncation = Truncation(side=side)
    assert cutting.encode([given], truncation, prompt) == whole.encode([given], truncation, prompt)


def test_long_texts_are_cut_in_short_steps() -> None:
    """Where words of letters are apart, in several scripts; elsewhere a piece is as long as it must be."""
    for library in TOKENIZERS.values():
        cutter = SpaceCutter.of(library)
        assert cutter is not None
        for text in ("the fox, a fox. " * 10_000, "съешь ещё этих " * 10_000, "다람쥐 헌 쳇바퀴에 " * 10_000):
            assert max(piece.end - piece.start for piece in cutter.pieces(text)) <= 1024
        pieces = [*cutter.pieces("a b" * 1000 + "12 " * 5000 + "a b" * 1000)]
        assert max(piece.end - piece.start for piece in pieces) > 15_000
        assert len(pieces) >= 6
        assert (pieces[0].start, pieces[-1].end) == (0, 21_000)


@pytest.mark.parametrize(
    "library",
    [
        byte_level(space=True, trimmed=True),
        pairs(split(r"[a-z] [a-z]|\s+"), SURROUNDED),
        unigrams(pre_tokenizers.Metaspace(split=False)),
        unigrams(METASPACE, normalizers.Strip()),
        unigrams(METASPACE, normalizers.Replace("a b", "c")),
        unigrams(METASPACE, normalizers.Replace(Regex("a b"), "c")),
        unigrams(METASPACE, normalizers.Replace("-", " ")),
        with_mask(unigrams(METASPACE), "a fox"),
        with_mask(unigrams(METASPACE), "fox", lstrip=True),
        with_mask(unigrams(METASPACE), "fox", rstrip=True),
        Tokenizer(models.BPE({"a": 0}, [])),
    ],
    ids=[
        "the first word has other offsets",
        "an expression that is not known",
        "one word for a text",
        "spaces at the ends are removed",
        "spaces are replaced",
        "an expression is replaced",
        "signs become spaces",
        "an added token has a space",
        "an added token takes the space before it",
        "an added token takes the space after it",
        "no words",
    ],
)
def test_where_a_cut_could_change_tokens_there_is_none(library: Tokenizer) -> None:
    """What looks across a space, or has no words, gets the whole text."""
    assert SpaceCutter.of(library) is None
