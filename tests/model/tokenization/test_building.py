"""A tokenizer built from a vocabulary of its own is the one that transformers makes of the same files."""

# ruff: noqa: S106, S311 - tokens are no passwords, and random texts are repeatable

import json
import random
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from model.contract import Encoding
from model.tokenization.tokenizer import TextTokenizer
from tests.support.folder_tokenizers import build_tokenizer, train_byte_pairs

LIMIT = 100_000
BLOCKS = (
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x5FF),
    (0x600, 0x6FF), (0x900, 0x97F), (0xB80, 0xBFF), (0xE00, 0xE7F), (0x10A0, 0x10FF), (0x1100, 0x11FF),
    (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x20A0, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x4FFF),
    (0xAC00, 0xADFF), (0xFB00, 0xFDFF), (0xFF00, 0xFFEF), (0x10300, 0x1034F), (0x1D400, 0x1D4FF),
    (0x1F300, 0x1F6FF), (0x20000, 0x200FF),
)  # fmt: skip
"""Ranges of Unicode: alphabets with marks and without, syllables, ideographs, signs and pictures."""
ODD = (
    "", " ", "\n\t", "\u200d", "\u0301", "a\u0301b", "[SEP] a [MASK].", "a <mask> b</s>", "<s><pad>x", "it's",
    "don't  you", "e\u0301É", "ﬁ Ⅷ", "x" * 300,
    "日本語のテキスト", "a\u00a0b\u2028c", "\x1c\x85", "🙂👩‍👩‍👧", "\ufffd\x00",
    "M<cls>A", "MKT<mask>LL.-", "[unk] [UNK]", "İstanbul ŞİŞLİ", "straße STRASSE", "naïve\r\ncafé",
)  # fmt: skip


def texts(count: int = 1000) -> list[str]:
    """Texts in many scripts: words of one block each, sometimes of two, with spaces of several kinds."""
    chance = random.Random(0)

    def word() -> str:
        low, high = chance.choice(BLOCKS)
        return "".join(chr(chance.randint(low, high)) for _ in range(chance.randint(1, 8)))

    made = [
        "".join(
            word() + chance.choice((" ", "  ", "", "\n", ". ", ", ")) for _ in range(chance.randint(1, 12))
        )
        for _ in range(count - len(ODD))
    ]
    return [*ODD, *made]


TEXTS = texts()
PAIRS = list(zip(TEXTS[::2], reversed(TEXTS[1::2]), strict=True))
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def copy(source: Path, target: Path) -> Path:
    target.mkdir(parents=True)
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


def check_fast(ours: TextTokenizer, theirs: Any) -> None:
    """Ids, offsets, words and special tokens of every text and pair are those of transformers."""
    assert isinstance(theirs.backend_tokenizer, Tokenizer)
    for text, encoding in zip(TEXTS, ours.encode(TEXTS), strict=True):
        check(encoding, theirs(text, return_offsets_mapping=True, return_special_tokens_mask=True))
    for pair, encoding in zip(PAIRS, ours.encode(PAIRS), strict=True):
        check(encoding, theirs(*pair, return_offsets_mapping=True, return_special_tokens_mask=True))


def check(ours: Encoding, theirs: Any) -> None:
    assert ours.token_ids == theirs["input_ids"]
    added = [sequence is None for sequence in theirs.sequence_ids()]
    assert ours.special == added
    assert ours.offsets == [(0, 0) if a else o for a, o in zip(added, theirs["offset_mapping"], strict=True)]
    assert ours.word_ids == [None if a else w for a, w in zip(added, theirs.word_ids(), strict=True)]
    if any(theirs.get("token_type_ids", ())):
        assert ours.segment_ids == theirs["token_type_ids"]


def build(folder: Path, model_type: str = "") -> TextTokenizer:
    built = build_tokenizer(folder, model_type)
    assert built is not None
    ours = TextTokenizer.limited(built[1], built[0], max_length=LIMIT)
    (folder / "saved").mkdir()
    ours.save(folder / "saved/tokenizer.json")
    saved = TextTokenizer.from_file(folder / "saved/tokenizer.json", max_length=LIMIT)
    assert saved.encode(TEXTS[:100]) == ours.encode(TEXTS[:100])
    return ours


# ------------------------------------------------------------------------------------ WordPiece


@pytest.fixture(scope="module")
def word_pieces() -> list[str]:
    """The tokens of a WordPiece vocabulary, in the order of their ids."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=3000, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator([*TEXTS[::3], "the men and women beat it's naïve café strasse"], trainer)
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=lambda token: vocabulary[token])


def write_lines(folder: Path, tokens: list[str], **settings: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["BertTokenizer", "DistilBertTokenizerFast", "ElectraTokenizer"])
def test_a_plain_vocabulary_of_word_pieces(
    name: str, settings: dict[str, Any], word_pieces: list[str], tmp_path: Path
) -> None:
    """Lower case, accents and ideographs as tokenizer_config.json says, and else as by default."""
    write_lines(tmp_path, word_pieces, tokenizer_class=name, **settings)
    theirs = getattr(transformers, name, transformers.BertTokenizer).from_pretrained(tmp_path)
    check_fast(build(tmp_path), theirs)


def test_mpnet_s_vocabulary(word_pieces: list[str], tmp_path: Path) -> None:
    """Word pieces between RoBERTa's special tokens, of which the mask takes the spaces before it."""
    renamed = {"[PAD]": "<pad>", "[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>"}
    tokens = [renamed.get(token, token) for token in word_pieces]
    write_lines(tmp_path, tokens, tokenizer_class="MPNetTokenizer")
    check_fast(build(tmp_path), transformers.MPNetTokenizer.from_pretrained(tmp_path))


def test_special_tokens_from_each_of_their_files(word_pieces: list[str], tmp_path: Path) -> None:
    """special_tokens_map.json and added_tokens.json count unless the added tokens are described with ids."""
    renamed = {"[CLS]": "<s>", "[SEP]": "</s>"}
    tokens = [renamed.get(token, token) for token in word_pieces]
    old, new = tmp_path / "old", tmp_path / "new"
    mask = {"content": "[MASK]", "lstrip": True, "normalized": False, "rstrip": True, "single_word": False}
    special = {"cls_token": "<s>", "sep_token": {**mask, "content": "</s>"}, "mask_token": mask}
    write_lines(old, tokens, do_lower_case=False)
    (old / "special_tokens_map.json").write_text(json.dumps(special), encoding="utf-8")
    added = {"it's": len(tokens) + 1, "Don't": len(tokens)}
    (old / "added_tokens.json").write_text(json.dumps(added), encoding="utf-8")
    check_fast(build(old, "bert"), transformers.BertTokenizer.from_pretrained(old))
    described = {
        str(len(tokens)): {**mask, "content": "you", "single_word": True, "special": False},
        str(tokens.index("[MASK]")): {**mask, "special": True},
    }
    write_lines(new, tokens, cls_token="<s>", sep_token="</s>", added_tokens_decoder=described)
    (new / "special_tokens_map.json").write_text('{"cls_token": "[UNK]"}', encoding="utf-8")
    check_fast(build(new, "bert"), transformers.BertTokenizer.from_pretrained(new))


# ------------------------------------------------------------------------------------ byte-level


@pytest.fixture(scope="module")
def byte_pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the vocab.json and merges.txt of RoBERTa's kind."""
    folder = tmp_path_factory.mktemp("byte_pairs")
    texts = [*TEXTS[::3], "the men and women beat it's naïve café strasse"]
    train_byte_pairs(texts, 2000).model.save(str(folder))
    return folder


@pytest.mark.parametrize(
    "settings", [{}, {"add_prefix_space": True}, {"add_prefix_space": True, "trim_offsets": False}], ids=str
)
def test_pairs_of_bytes(settings: dict[str, Any], byte_pairs: Path, tmp_path: Path) -> None:
    """RoBERTa's vocab.json and merges.txt, with the space before the first word or without."""
    folder = copy(byte_pairs, tmp_path / "model")
    config = {"tokenizer_class": "RobertaTokenizer", **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    check_fast(build(folder), transformers.RobertaTokenizer.from_pretrained(folder))


# -------------------------------------------------------------------------------- letters, as in ESM

PROTEIN = [
    *("<cls>", "<pad>", "<eos>", "<unk>"),
    *"LAGVSERTIDPKQNFYMHWCXBUZO.-",
    *("<null_1>", "<mask>"),
]


def proteins() -> list[str]:
    """Chains of amino acids, with gaps, masks, spaces, lower case and foreign letters among them."""
    chance = random.Random(0)
    parts = [
        *PROTEIN[4:31],
        *PROTEIN[4:31],
        " ",
        "\t",
        "<mask>",
        "<cls>",
        "<null_1>",
        "a",
        "é",
        "<",
        "J",
        "\x1c",
    ]
    return ["".join(chance.choice(parts) for _ in range(chance.randint(1, 60))) for _ in range(500)]


def test_letters(tmp_path: Path) -> None:
    """ESM's tokens are found anywhere in a text; its tokenizer in transformers gives ids alone.

    Every known token is its own word, and its offsets cut it out of the text; of a run without whitespace
    between them comes one unknown token.
    """
    write_lines(tmp_path, PROTEIN, tokenizer_class="EsmTokenizer")
    ours, theirs = build(tmp_path), transformers.EsmTokenizer.from_pretrained(tmp_path)
    inputs = [*proteins(), *TEXTS[:500]]
    for text, encoding in zip(inputs, ours.encode(inputs), strict=True):
        assert encoding.token_ids == theirs(text)["input_ids"], text
        assert [text[start:end] for start, end in encoding.offsets[1:-1]] == theirs.tokenize(text)
        assert encoding.word_ids == [None, *range(len(encoding) - 2), None]
        assert encoding.special == [True, *[False] * (len(encoding) - 2), True]
    pairs = list(zip(inputs[::2], inputs[1::2], strict=True))
    for pair, encoding in zip(pairs, ours.encode(pairs), strict=True):
        assert encoding.token_ids == theirs(*pair)["input_ids"]


# --------------------------------------------------------------------------------- tokenizer.json


def test_a_unigram_vocabulary(tmp_path: Path) -> None:
    """SentencePiece's kind, as transformers saves it for XLM-RoBERTa."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=8000,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator([normalizers.NFKC().normalize_str(text) for text in TEXTS[::3]], trainer)
    vocabulary = [tuple(entry) for entry in json.loads(tokenizer.to_str())["model"]["vocab"]]
    theirs = transformers.XLMRobertaTokenizer(vocab=vocabulary)
    theirs.save_pretrained(tmp_path)
    ours = TextTokenizer.from_file(tmp_path / "tokenizer.json", max_length=LIMIT)
    check_fast(ours, theirs)


def test_byte_pairs_and_word_pieces_from_tokenizer_json(
    byte_pairs: Path, word_pieces: list[str], tmp_path: Path
) -> None:
    """What transformers saves of the same vocabularies is read as it reads them, and as they are built."""
    (copy(byte_pairs, tmp_path / "pairs") / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    write_lines(tmp_path / "pieces", word_pieces)
    for kind, name in ((transformers.RobertaTokenizer, "pairs"), (transformers.BertTokenizer, "pieces")):
        theirs = kind.from_pretrained(tmp_path / name)
        theirs.save_pretrained(tmp_path / name)
        check_fast(TextTokenizer.from_file(tmp_path / name / "tokenizer.json", max_length=LIMIT), theirs)
