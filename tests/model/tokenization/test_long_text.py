"""Long texts in pieces: the same tokens, offsets, words and lengths as whole."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, normalizers

from model.checkpoints.source import resolve
from model.errors import InputTooLong
from model.tokenization.cutting import Cutter, _goes_with_letters, _is_letter
from model.tokenization.long_text import BYTES_PER_CHARACTER, kept_lengths
from model.tokenization.tokenizer import TextTokenizer, Truncation
from tests.references.checkpoints import MINILM

pytestmark = pytest.mark.thorough

FILE = resolve(MINILM) / "tokenizer.json"
STATE: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
WHOLE = 10**9
LARGEST = 2_000_000


def changed(*, added: list[AddedToken] | None = None, **parts: Any) -> str:
    """The embedded model's tokenizer with other parts, as JSON."""
    tokenizer = Tokenizer.from_str(json.dumps({**STATE, **parts}))
    tokenizer.add_tokens(added or [])
    return tokenizer.to_str()


def words_of(limit: int) -> dict[str, Any]:
    """A model that knows no word of more characters."""
    return {**STATE["model"], "max_input_chars_per_word": limit}


BERT = STATE["normalizer"]
TOKENIZERS = {
    "embedded": changed(),
    "short words": changed(model=words_of(5)),
    "cased": changed(normalizer={**BERT, "lowercase": False}, model=words_of(9)),
    "accents kept": changed(normalizer={**BERT, "strip_accents": False}),
    "not cleaned": changed(normalizer={**BERT, "clean_text": False, "handle_chinese_chars": False}),
    "lowered before": changed(normalizer={"type": "Sequence", "normalizers": [{"type": "Lowercase"}, BERT]}),
    "not normalized": changed(normalizer=None, model=words_of(5)),
    "composed": changed(normalizer={"type": "NFC"}),
    "compatible": changed(normalizer={"type": "Sequence", "normalizers": [{"type": "NFKD"}, BERT]}),
    "split at spaces": changed(pre_tokenizer={"type": "WhitespaceSplit"}),
    "letters are tokens": changed(
        added=[AddedToken("zz", normalized=False), AddedToken("e.x", normalized=False)]
    ),
    "tokens take spaces": changed(
        added=[
            AddedToken("<l>", lstrip=True, normalized=False),
            AddedToken("<r>", rstrip=True, normalized=False),
        ]
    ),
    "tokens are words": changed(
        added=[AddedToken("fox", single_word=True), AddedToken("don't", normalized=True)]
    ),
}
PIECES = st.sampled_from(
    [
        "a",
        "fox",
        "zz",
        "z",
        "e",
        "é",
        "é",
        "̣",
        "ͅ",
        "中",
        "文",
        "中́",
        "豈",
        "丽",
        "한",
        "가",
        "が",
        "ア",
        "Σ",
        "ΑΣ",
        "İ",
        "ß",
        "ŉ",
        "K",
        "K",
        "ﬁ",
        "!",
        ".",
        "'",
        "--",
        "<",
        "≮",
        "=",
        "≠",
        "≠",
        "≮",
        "`",
        ";",
        "`",
        "$",
        "€",
        "½",
        "²",
        "١",
        "।",
        "。",
        "、",
        "[SEP]",
        "[MASK]",
        "[sep]",
        "[SE",
        "P]",
        "<l>",
        "<r>",
        "don't",
        "DON'T",
        "e.x",
        "zzz",
        "😀",
        "👩\u200d💻",
        "🇩🇪",
        "\u200b",
        "\u200d",
        "\xad",
        "\xa0",
        "\u3000",
        "\u2028",
        "\x85",
        "\x00",
        "\x01",
        "\x7f",
        "�",
        "\ue000",
        "\ufeff",
        "\u166d",
        "12",
        "1.5",
        "embeddings",
        " ",
        "  ",
        "\n",
        "\t",
        "\r\n",
        " \n ",
    ]
)
SEGMENTS = st.tuples(
    st.one_of(PIECES, PIECES, PIECES, st.text(st.characters(exclude_categories=["Cs"]), max_size=4)),
    st.sampled_from([1, 1, 1, 1, 2, 7, 40, 130]),
)
TEXTS = st.lists(SEGMENTS, max_size=14).map(lambda parts: "".join(text * times for text, times in parts))


def no_room(size: int) -> AbstractContextManager[None]:
    """Memory for nothing at all."""
    raise MemoryError(size)


_made: dict[tuple[str, int, int], TextTokenizer] = {}


def tokenizer(name: str, max_length: int, piece: int) -> TextTokenizer:
    key = name, max_length, piece
    if key not in _made:
        _made[key] = TextTokenizer(Tokenizer.from_str(TOKENIZERS[name]), max_length, piece=piece)
    return _made[key]


def test_where_a_cut_is_known_to_change_nothing() -> None:
    """All of these are cut; what looks at more than a word, or knows no words, is not."""
    for name, state in TOKENIZERS.items():
        cutter = Cutter.of(Tokenizer.from_str(state))
        assert cutter is not None, name
        assert (cutter.isolated is None) == (
            name in ("composed", "compatible", "split at spaces", "tokens take spaces", "tokens are words")
        )
    for parts in (
        {"normalizer": {"type": "Replace", "pattern": {"String": " a"}, "content": "b"}},
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        {
            "pre_tokenizer": {
                "type": "ByteLevel",
                "add_prefix_space": True,
                "trim_offsets": True,
                "use_regex": True,
            }
        },
        {"pre_tokenizer": None},
        {"model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}, "added_tokens": []},
        {"added": [AddedToken("two words", normalized=False)]},
    ):
        assert Cutter.of(Tokenizer.from_str(changed(**parts))) is None, parts


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60)
@example(text="z" * 300 + "zz" + "y" * 300, pair=None, prompt="", side="right", piece=120, most=16)
@example(text="y" * 400 + "e.x" + "y" * 200, pair=None, prompt="y" * 150, side="left", piece=120, most=16)
@given(
    text=TEXTS,
    pair=st.none() | TEXTS,
    prompt=st.sampled_from(["", "", "q: ", "é", "中", "y" * 150, "a b " * 20]),
    side=st.sampled_from(["right", "left"]),
    piece=st.sampled_from([4, 17, 120]),
    most=st.sampled_from([8, 16, 4000]),
)
def test_pieces_are_the_whole(
    name: str, text: str, pair: str | None, prompt: str, side: Any, piece: int, most: int
) -> None:
    """Tokens, ids, offsets, words, segments, `truncated` and the length before: all the same."""
    given = text if pair is None else (text, pair)
    truncation = Truncation(side=side)
    [whole] = tokenizer(name, most, WHOLE).encode([given], truncation, prompt)
    cutting = tokenizer(name, most, piece)
    assert cutting._long is not None
    [pieces] = cutting.encode([given], truncation, prompt)
    assert pieces == whole


@settings(max_examples=300)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 30), st.sampled_from(["right", "left"]))
def test_of_a_pair_as_much_is_kept_as_the_library_keeps(
    first: int, second: int, room: int, side: Any
) -> None:
    """Longest first, for every pair of lengths."""
    library = Tokenizer.from_str(TOKENIZERS["embedded"])
    library.no_padding()
    library.enable_truncation(room + 3, strategy="longest_first", direction=side)
    raw = library.encode("a " * first, "a " * second)
    assert kept_lengths([first, second], room) == [raw.sequence_ids.count(0), raw.sequence_ids.count(1)]


@pytest.mark.parametrize(
    "text",
    [
        "!" * LARGEST,
        "中" * (LARGEST // 3),
        ("z" * 99 + "q ") * 100,
        "z" * LARGEST,
        "é" * 200_000,
        "😀" * 200_000,
        "¡" * (LARGEST // 2),
        "a。" * (LARGEST // 4),
        "“ab”" * (LARGEST // 8),
        "㐀" * (LARGEST // 3),
        "\U00020000" * (LARGEST // 4),
        "a\u3000" * (LARGEST // 4),
        "e\u0301" * (LARGEST // 3),
        "e\u0301\u200d\u0302\u0303" * (LARGEST // 10),
    ],
    ids=[
        "punctuation",
        "ideographs",
        "long words",
        "one word",
        "one word with accents",
        "emoji",
        "other punctuation",
        "words and full stops",
        "words in quotes",
        "rare ideographs",
        "ideographs of four bytes",
        "words and wide spaces",
        "letters with marks",
        "letters with several marks",
    ],
)
def test_the_worst_texts_are_cut_everywhere(text: str) -> None:
    """No piece of them asks for memory: each step is a short one."""
    cutter = Cutter.of(Tokenizer.from_str(TOKENIZERS["embedded"]))
    assert cutter is not None
    assert all(piece.end - piece.start <= 1024 for piece in cutter.pieces(text))


@pytest.mark.parametrize("char", ["\ufffd", "\u166d", "\u0378", "\ue000"])
def test_what_is_no_part_of_a_word_does_not_make_one_long(char: str) -> None:
    """The character that stands for undecodable bytes is removed: no word consists of them."""
    text = "a" * 900 + char * 3000 + "b c"
    [whole] = tokenizer("embedded", 4000, WHOLE).encode([text])
    assert tokenizer("embedded", 4000, 1024).encode([text]) == [whole]


def test_a_letter_of_a_long_word_is_one_to_the_tokenizer() -> None:
    """No character at which a word may be cut is removed, or splits the word; of all that there are."""
    library = Tokenizer.from_str(TOKENIZERS["embedded"])
    for code in range(0x110000):
        char = chr(code)
        if 0xD800 <= code < 0xE000 or not _is_letter(char):
            continue
        normalized = library.normalizer.normalize_str(f"a{char}a")
        assert len(normalized) >= 3, hex(code)
        assert len(library.pre_tokenizer.pre_tokenize_str(normalized)) == 1, hex(code)


@pytest.mark.parametrize("name", ["embedded", "accents kept", "not cleaned", "not normalized"])
def test_a_mark_leaves_the_letters_around_it_one_word(name: str) -> None:
    """Kept or removed: no mark, of all that there are, ends the word that it stands in."""
    library = Tokenizer.from_str(TOKENIZERS[name])
    for code in range(0x110000):
        char = chr(code)
        if 0xD800 <= code < 0xE000 or not _goes_with_letters(char):
            continue
        text = f"a{char}b"
        normalized = library.normalizer.normalize_str(text) if library.normalizer else text
        assert len(library.pre_tokenizer.pre_tokenize_str(normalized)) == 1, hex(code)


@pytest.mark.parametrize("name", ["embedded", "cased", "accents kept", "not cleaned", "not normalized"])
def test_where_a_text_may_be_cut_the_tokenizer_ends_a_word(name: str) -> None:
    """Of all characters, those that the pattern has: the word before such a one is whole."""
    library = Tokenizer.from_str(TOKENIZERS[name])
    cutter = Cutter.of(library)
    assert cutter is not None
    assert cutter.isolated is not None
    found = cutter.isolated.findall("".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000))
    for char in found:
        text = f"ab{char}cd"
        normalized = library.normalizer.normalize_str(text) if library.normalizer else text
        first, *_, last = [word for word, _ in library.pre_tokenizer.pre_tokenize_str(normalized)]
        assert (first, last) == ("ab", "cd"), hex(ord(char))
    assert {"!", "¡", "。", "”", "\u3000"} <= {*found}


def test_what_cannot_be_cut_asks_for_memory() -> None:
    """A hundred thousand marks on one letter, and what an unknown tokenizer is given."""
    asked = []

    @contextmanager
    def reserve(size: int) -> Iterator[None]:
        asked.append(size)
        yield

    text = "e" + "\u0301" * 100_000
    steps = tokenizer("embedded", 16, 1024).encode_in_steps([text], reserve=reserve)
    assert list(steps) == [None]
    assert asked == [BYTES_PER_CHARACTER * len(text)]
    unknown = TextTokenizer(Tokenizer.from_str(changed(pre_tokenizer=None)), 16)
    with pytest.raises(MemoryError):
        list(unknown.encode_in_steps(["a" * 70_000], reserve=no_room))
    list(unknown.encode_in_steps(["a" * 60_000], reserve=no_room))


def test_a_text_that_grows_when_it_is_normalized_asks_for_what_it_becomes() -> None:
    """A sign of Arabic that stands for a sentence becomes eighteen characters, and each a token or two."""
    library = Tokenizer.from_str(changed(pre_tokenizer=None))
    library.normalizer = normalizers.NFKC()
    asked = []

    @contextmanager
    def reserve(size: int) -> Iterator[None]:
        asked.append(size)
        yield

    assert list(TextTokenizer(library, 16).encode_in_steps(["\ufdfa" * 10_000], reserve=reserve)) == []
    assert asked == [BYTES_PER_CHARACTER * 180_000]


def test_a_long_text_that_may_not_be_cut_is_refused_with_its_length() -> None:
    """The number of tokens is that of the whole text."""
    with pytest.raises(InputTooLong) as refusal:
        tokenizer("embedded", 16, 1024).encode(["short", "a " * 5000], Truncation(allowed=False))
    assert (refusal.value.field, refusal.value.actual) == ("inputs.1", 5002)


def test_a_tokenizer_file_of_the_other_kind_still_works(tmp_path: Path) -> None:
    """Tokenizers that are not known are asked for the whole text."""
    (tmp_path / "tokenizer.json").write_text(changed(pre_tokenizer=None), encoding="utf-8")
    loaded = TextTokenizer.from_file(tmp_path / "tokenizer.json", max_length=16)
    assert loaded.encode(["a" * 5000])[0].tokens == ["[CLS]", "[UNK]", "[SEP]"]
