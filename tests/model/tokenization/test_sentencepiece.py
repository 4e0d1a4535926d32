"""A tokenizer built from a SentencePiece file is the one that transformers makes of the same pieces."""

import importlib
import json
import struct
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from model.errors import CheckpointError
from tests.model.tokenization.test_building import TEXTS, build, check_fast
from tests.support.folder_tokenizers import build_tokenizer
from tests.support.hostile_folders import NO_FILES, NO_JSON

Pieces = list[tuple[str, float]]
NORMAL, UNKNOWN, CONTROL = 1, 2, 3


@pytest.fixture(scope="module")
def pieces() -> Pieces:
    """The pieces of a unigram vocabulary, without special tokens."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=8000, unk_token="<unk>", show_progress=False)  # noqa: S106
    tokenizer.train_from_iterator([normalizers.NFKC().normalize_str(text) for text in TEXTS[::3]], trainer)
    found = json.loads(tokenizer.to_str())["model"]["vocab"]
    # Scores are of 32 bits in a SentencePiece file.
    return [
        (text, *struct.unpack("<f", struct.pack("<f", score))) for text, score in found if text != "<unk>"
    ]


def field(number: int, value: int | float | bytes) -> bytes:
    """A field of a message, as protocol buffers write it."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


def write(file: Path, pieces: Pieces, special: dict[str, int], *, trainer: bytes = b"") -> Pieces:
    """Write a SentencePiece file with special pieces before the others; returns all of them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    every: list[tuple[str, float, int]] = [(text, 0.0, kind) for text, kind in special.items()]
    every += [(text, score, NORMAL) for text, score in pieces]
    parts = [
        field(1, field(1, text.encode()) + field(2, score) + field(3, kind)) for text, score, kind in every
    ]
    file.write_bytes(b"".join(parts) + field(2, trainer) + field(3, field(1, b"identity")))
    return [(text, score) for text, score, _ in every]


FAIRSEQ = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL}
T5 = {"<pad>": CONTROL, "</s>": CONTROL, "<unk>": UNKNOWN}
ALBERT = {"<pad>": CONTROL, "<unk>": UNKNOWN, "[CLS]": CONTROL, "[SEP]": CONTROL, "[MASK]": CONTROL}


@pytest.mark.parametrize(
    ("name", "file", "special", "settings"),
    [
        ("XLMRoberta", "sentencepiece.bpe.model", FAIRSEQ, {}),
        ("XLMRoberta", "sentencepiece.bpe.model", FAIRSEQ, {"add_prefix_space": False}),
        ("Camembert", "sentencepiece.bpe.model", FAIRSEQ, {}),
        ("T5", "spiece.model", T5, {}),
        ("T5", "spiece.model", T5, {"extra_ids": 7}),
        ("Albert", "spiece.model", ALBERT, {}),
        ("Albert", "spiece.model", ALBERT, {"do_lower_case": False, "keep_accents": True}),
    ],
)
def test_pieces_of_a_file(
    name: str, file: str, special: dict[str, int], settings: dict[str, Any], pieces: Pieces, tmp_path: Path
) -> None:
    """Each class has its own order of ids and its own special tokens."""
    stored = write(tmp_path / file, pieces, special)
    config = {"tokenizer_class": f"{name}Tokenizer", **settings}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    converters = importlib.import_module("transformers.convert_slow_tokenizer")
    converter = getattr(converters, f"{name}Converter")
    theirs = getattr(transformers, f"{name}Tokenizer")(**converter.convert_from_spm(vocab=stored, **settings))
    check_fast(build(tmp_path), theirs)


DEBERTA = {"[PAD]": CONTROL, "[CLS]": CONTROL, "[SEP]": CONTROL, "[UNK]": UNKNOWN}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_lower_case": True},
        {"split_by_punct": True},
        {"add_prefix_space": False},
        {"vocab_type": "spm"},
    ],
    ids=str,
)
def test_pieces_of_deberta(settings: dict[str, Any], pieces: Pieces, tmp_path: Path) -> None:
    """As transformers converts the file, with the mask behind the pieces: number 128000 of deberta-v3.

    Its own class in release 5 leaves out what the file says of characters, so this is the reference.
    """
    trainer = field(3, 1) + field(40, 3)
    stored = write(tmp_path / "spm.model", pieces, DEBERTA, trainer=trainer)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    ids = {token: number for number, (token, _) in enumerate(stored)}
    slow = SimpleNamespace(
        vocab_file=str(tmp_path / "spm.model"),
        do_lower_case=settings.get("do_lower_case", False),
        split_by_punct=settings.get("split_by_punct", False),
        add_prefix_space=settings.get("add_prefix_space", True),
        convert_tokens_to_ids=ids.__getitem__,
    )
    converted = importlib.import_module("transformers.convert_slow_tokenizer").DebertaV2Converter(slow)
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=converted.converted(),
        **{f"{role}_token": f"[{role.upper()}]" for role in ("cls", "sep", "unk", "pad", "mask")},
    )
    assert theirs.convert_tokens_to_ids("[MASK]") == len(stored)
    check_fast(build(tmp_path, "deberta-v2"), theirs)


def test_plain_texts_are_those_of_deberta_s_class_in_transformers_5(pieces: Pieces, tmp_path: Path) -> None:
    """Where characters are composed and spaces single, its own class gives the same tokens."""
    stored = write(tmp_path / "spm.model", pieces, DEBERTA, trainer=field(40, 3))
    ours = build(tmp_path, "deberta-v2")
    theirs = transformers.DebertaV2Tokenizer(vocab=stored, unk_id=3)
    texts = [" ".join(unicodedata.normalize("NFC", text).split()) for text in TEXTS]
    for text, encoding in zip(texts, ours.encode(texts), strict=True):
        assert encoding.token_ids == theirs(text)["input_ids"], text


def test_a_vocabulary_of_bytes_is_left_to_transformers(pieces: Pieces, tmp_path: Path) -> None:
    """The first DeBERTa's kind under the name of the second's is not guessed."""
    write(tmp_path / "spm.model", pieces[:20], DEBERTA)
    (tmp_path / "tokenizer_config.json").write_text('{"vocab_type": "gpt2"}', encoding="utf-8")
    assert build_tokenizer(tmp_path, "deberta-v2") is None


def test_another_algorithm_is_not_guessed(pieces: Pieces, tmp_path: Path) -> None:
    """Pairs of characters, and unknown characters as bytes, are left to transformers."""
    for trainer in (field(3, 2), field(35, 1), field(24, 1)):
        write(tmp_path / "spiece.model", pieces, T5, trainer=trainer)
        assert build_tokenizer(tmp_path, "t5") is None


CONTENT: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "it has no pieces"),
    "cut": (lambda whole: whole[:-1], "it ends within a field"),
    "cut in a number": (lambda whole: whole[:1], "index out of range"),
    "a group": (lambda _: b"\x0b", "a field is of the kind 3"),
    "a number without end": (lambda _: b"\xff" * 20, "a number has more than ten bytes"),
    "a piece that is a number": (lambda _: b"\x08\x01", "a number stands in the place of text"),
    "no UTF-8": (lambda _: field(1, field(1, b"\xff")), "invalid start byte"),
    "a piece of a kilobyte": (
        lambda whole: whole + field(1, field(1, b"a" * 1000)),
        "a piece has 1000 characters; the limit is 128",
    ),
    "a letter of a megabyte": (
        lambda whole: whole + field(3, field(2, struct.pack("<I", 4) + bytes(4) + b"b" * 10**6 + b"\0")),
        "it replaces a character with 1000000; the limit is 32",
    ),
    "a piece twice": (lambda whole: field(1, field(1, b"<pad>")) + whole, "has the piece '<pad>' twice"),
    "unknown elsewhere": (
        lambda whole: field(1, field(1, b"first")) + whole,
        "the piece '<unk>' has the id 3; for this kind of model, the id must be 2",
    ),
}


@pytest.mark.parametrize("what", CONTENT)
def test_a_file_that_cannot_work_is_refused(what: str, pieces: Pieces, tmp_path: Path) -> None:
    """In a sentence that names the file."""
    file = tmp_path / "spiece.model"
    write(file, pieces[:20], T5)
    change, said = CONTENT[what]
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(CheckpointError) as caught:
        build_tokenizer(tmp_path, "t5")
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("what", [*NO_FILES, "1 GiB"])
def test_what_is_no_file_of_pieces_is_refused(what: str, pieces: Pieces, tmp_path: Path) -> None:
    """A FIFO would be waited for, and a device or a file without end would be read."""
    write(tmp_path / "spiece.model", pieces[:20], T5)
    NO_JSON[what]("spiece.model")(tmp_path)
    with pytest.raises(CheckpointError, match=r"spiece\.model"):
        build_tokenizer(tmp_path, "t5")
