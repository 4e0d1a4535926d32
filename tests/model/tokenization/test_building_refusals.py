"""A vocabulary that makes no tokenizer is refused in a sentence; an unknown class is not guessed at."""

# ruff: noqa: S106 - tokens are no passwords

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import pre_tokenizers

from model.errors import CheckpointError
from tests.model.tokenization.test_building import SPECIAL, write_lines
from tests.support.folder_tokenizers import build_tokenizer
from tests.support.hostile_folders import NO_FILES, NO_JSON


@pytest.fixture
def byte_pairs(tmp_path: Path) -> Path:
    """A folder with RoBERTa's files, of letters without merges."""
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *pre_tokenizers.ByteLevel.alphabet()]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    assert build_tokenizer(tmp_path, "roberta") is not None
    return tmp_path


def lines(*changed: str, **settings: Any) -> Callable[[Path], object]:
    return lambda folder: write_lines(folder, [*SPECIAL, "a", "b", *changed], **settings)


def beside(name: str, content: Any) -> Callable[[Path], object]:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return lambda folder: (write_lines(folder, [*SPECIAL, "a", "b"]), (folder / name).write_bytes(text))


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a token twice": (lines("a"), "vocab.txt has the token 'a' on the lines 6 and 8: replace it"),
    "a long token": (lines("x" * 2000), "has 2000 characters; the limit is 1000"),
    "no UTF-8": (beside("vocab.txt", b"[UNK]\n\xff"), "vocab.txt is not UTF-8 at byte 6"),
    "nothing": (beside("vocab.txt", b"\n\n"), "vocab.txt has no tokens"),
    "no [CLS]": (
        lambda folder: write_lines(folder, ["[PAD]", "[UNK]", "[SEP]", "a"]),
        "vocab.txt does not have the token '[CLS]', which is the cls_token of ",
    ),
    "another mask": (
        lines(mask_token="<mask>"),
        "does not have the token '<mask>', which is the mask_token of",
    ),
    "no unknown": (lines(unk_token=None), "unk_token is null, but the tokenizer needs one"),
    "a mask of a number": (
        lines(mask_token=7),
        "mask_token is 7; it must be a token of 1 to 1000 characters",
    ),
    "a flag of a word": (
        lines(mask_token={"content": "[MASK]", "lstrip": "no"}),
        "the flags of mask_token are {'lstrip': 'no'}; they must be true or false",
    ),
    "a lower case of a word": (
        lines(do_lower_case="no"),
        "tokenizer_config.json: do_lower_case is 'no'; it must",
    ),
    "accents of a word": (
        lines(strip_accents="no"),
        "tokenizer_config.json: strip_accents is 'no'; it must be",
    ),
    "no basic tokenizer": (
        lines(do_basic_tokenize=False),
        "do_basic_tokenize is False, which is not supported",
    ),
    "never split": (lines(never_split=["a"]), "never_split is ['a'], which is not supported"),
    "a list of no tokens": (
        lines(additional_special_tokens=7),
        "additional_special_tokens is 7; it must be a list",
    ),
    "an added token elsewhere": (
        lines(added_tokens_decoder={"90": {"content": "new"}}),
        "the added token 'new' has the id 90, but the vocabulary gives it the id 7",
    ),
    "added tokens of megabytes": (
        lines(added_tokens_decoder={f"{7 + i}": {"content": f"{i:0900}"} for i in range(2000)}),
        "characters in all; the limit is 1048576",
    ),
    "added tokens of a list": (
        lines(added_tokens_decoder=[1]),
        "added_tokens_decoder is [1]; it must map ids",
    ),
    "added ids of words": (
        beside("added_tokens.json", {"x": "y"}),
        "added_tokens.json is {'x': 'y'}; it must map",
    ),
    "half a character": (
        beside("special_tokens_map.json", {"mask_token": "\ud83d"}),
        "mask_token is '\\ud83d'; it must be a token",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_vocabulary_that_cannot_work_is_refused(what: str, tmp_path: Path) -> None:
    """In a sentence that names the file and the field."""
    damage, said = REFUSED[what]
    damage(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        build_tokenizer(tmp_path, "bert")
    assert said in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("what", [*NO_FILES, "1 GiB"])
@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json"])
def test_what_is_no_file_of_a_vocabulary_is_refused(name: str, what: str, byte_pairs: Path) -> None:
    """A FIFO would be waited for, and a device or a file without end would be read."""
    (byte_pairs / name).touch()
    NO_JSON[what](name)(byte_pairs)
    with pytest.raises(CheckpointError, match=re.escape(str(byte_pairs / name))):
        build_tokenizer(byte_pairs, "roberta")


MERGES = {
    "a merge of three": (
        "merges.txt",
        "#version: 0.2\na b c\n",
        "merges.txt: line 2 is 'a b c'; it must be two",
    ),
    "a merge of nothing known": ("merges.txt", "a Ω\n", "merges.txt: line 1 is 'a Ω'; it must be two tokens"),
    "two of one id": (
        "vocab.json",
        '{"a": 1, "b": 1}',
        "vocab.json: the tokens 'a' and 'b' both have the id 1",
    ),
    "an id of a word": ("vocab.json", '{"a": "b"}', "vocab.json: the id of the token 'a' is 'b'; it must be"),
    "a byte too few": (
        "vocab.json",
        '{"<s>": 0, "</s>": 1, "<unk>": 2}',
        "vocab.json has no token for 256 of the 256 bytes",
    ),
}


@pytest.mark.parametrize("what", MERGES)
def test_pairs_of_bytes_that_cannot_work_are_refused(what: str, byte_pairs: Path) -> None:
    """In a sentence that names the file and the line or the token."""
    name, content, said = MERGES[what]
    (byte_pairs / name).write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError) as caught:
        build_tokenizer(byte_pairs, "roberta")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [
        ("modernbert", {}),
        ("bert", {"tokenizer_class": "BarthezTokenizer"}),
        ("bert", {"tokenizer_class": 7}),
        ("bert", {"auto_map": {"AutoTokenizer": ["mine.Tokenizer", None]}}),
        ("roberta", {}),
    ],
    ids=str,
)
def test_a_class_that_is_not_known_is_not_guessed(
    model_type: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """The same file means something else to another class, or is not one of its files."""
    write_lines(tmp_path, [*SPECIAL, "a"], **settings)
    assert build_tokenizer(tmp_path, model_type) is None
