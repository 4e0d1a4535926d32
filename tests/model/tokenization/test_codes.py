"""The tokenizers of BERTweet and PhoBERT, of fairseq's files, against those of `transformers` in Python."""

import json
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer, models

from export.contents import add_tokenizer, copy_contents
from model.checkpoints.folder import read_folder
from model.errors import CheckpointError
from model.tokenization.building import find_tokenizer
from model.tokenization.tokenizer import TextTokenizer
from tests.model.tokenization.test_building import LIMIT, PAIRS, TEXTS, build
from tests.references.families import change_config, write_model
from tests.support.families import SIZES
from tests.support.folder_tokenizers import build_tokenizer

CLASSES = ("BertweetTokenizer", "PhobertTokenizer")
VIETNAMESE = (
    "Chúng_tôi là những nghiên_cứu_viên của trường đại_học . Hôm_nay trời đẹp quá , tôi muốn đi chơi với "
    "bạn_bè . Hà_Nội là thủ_đô của Việt_Nam . the man beats the boy , @USER it 's n't HTTPURL :) @@ a@@ @@@"
)
FURTHER = (
    *(
        "Chúng_tôi là sinh_viên đại_học .",
        "the men\nwent\n\nhome",
        "abc\n",
        "\n",
        "a<mask>b",
        "<mask> the <mask>",
    ),
    *("a@@ the@@ @@ @@@ a@@b", " the  man ", "x", "việt_nam's đẹp_đẽ", "@USER HTTPURL :)"),
)
"""Words that nothing was trained on, line breaks, special tokens, and the mark of tokens within words."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of both: codes as subword-nmt learns them, and most of the tokens they make."""
    folder = tmp_path_factory.mktemp("codes")
    words = Counter(VIETNAMESE.split() * 3 + re.findall(r"\S+", " ".join(TEXTS[::3])))
    pieces = {word: [*word[:-1], f"{word[-1]}</w>"] for word in words}
    codes = []
    for _ in range(300):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in zip(pieces[word], pieces[word][1:], strict=False):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        codes.append(f"{best[0]} {best[1]} {pairs[best]}\n")
        pieces = {word: merged(some, best) for word, some in pieces.items()}
    counts: Counter[str] = Counter()
    for word, (*within, last) in pieces.items():
        for token in (*(f"{one}@@" for one in within), last.removesuffix("</w>")):
            counts[token] += words[word]
    listed = counts.most_common(9 * len(counts) // 10)
    (folder / "bpe.codes").write_text("".join(codes), encoding="utf-8")
    (folder / "vocab.txt").write_text("".join(f"{token} {n}\n" for token, n in listed), encoding="utf-8")
    return folder


def merged(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    """Merge a pair wherever it is, from the left."""
    made, at = [], 0
    while at < len(pieces):
        both = tuple(pieces[at : at + 2]) == pair
        made.append("".join(pair) if both else pieces[at])
        at += 1 + both
    return made


def write(folder: Path, trained: Path, **settings: Any) -> None:
    """Copy the files, beside a tokenizer_config.json."""
    for name in ("bpe.codes", "vocab.txt"):
        (folder / name).write_bytes((trained / name).read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def reference(folder: Path, name: str) -> Any:
    """The class of transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(transformers, name).from_pretrained(folder)


def check(ours: TextTokenizer, theirs: Any) -> None:
    """The ids and segments of every text and pair, and the special tokens."""
    texts = [*TEXTS, *FURTHER, VIETNAMESE]
    for text, encoding in zip(texts, ours.encode(texts), strict=True):
        assert encoding.token_ids == theirs(text)["input_ids"], text
    for pair, encoding in zip(PAIRS, ours.encode(PAIRS), strict=True):
        expected = theirs(*pair, return_special_tokens_mask=True)
        assert encoding.token_ids == expected["input_ids"], pair
        assert encoding.special == [bool(one) for one in expected["special_tokens_mask"]]


@pytest.mark.parametrize("name", CLASSES)
def test_ids_are_those_of_the_classes_that_transformers_runs(
    name: str, trained: Path, tmp_path: Path
) -> None:
    """Of pieces that the vocabulary does not list too: they are unknown. Also when saved and read again."""
    write(tmp_path, trained, tokenizer_class=name)
    theirs, ours = reference(tmp_path, name), build(tmp_path, "roberta")
    check(ours, theirs)
    check(TextTokenizer.from_file(tmp_path / "saved/tokenizer.json", max_length=LIMIT), theirs)
    assert ours.vocab_size == len(theirs)
    (one,) = ours.encode([VIETNAMESE[:150]])
    assert ours.decoder.decode([one.token_ids], skip_special_tokens=True) == [VIETNAMESE[:150]]


def test_names_and_offsets_are_those_of_the_text(trained: Path, tmp_path: Path) -> None:
    """A token that a word does not end in, one that it ends in, and an unknown one."""
    write(tmp_path, trained, tokenizer_class="PhobertTokenizer")
    ours, theirs = build(tmp_path), reference(tmp_path, "PhobertTokenizer")
    text = "the Việt_Nam \ue123 zqxjv"
    (found,) = ours.encode([text])
    names = theirs.convert_ids_to_tokens(found.token_ids)
    for (start, end), name, token in zip(found.offsets, names, found.tokens, strict=True):
        if name in ("<s>", "</s>", "<unk>"):
            assert token == name
        else:
            assert text[start:end] == token.removesuffix("</w>") == name.removesuffix("@@")


def test_a_long_text_has_the_same_ids_in_pieces(trained: Path, tmp_path: Path) -> None:
    """Texts of megabytes are cut where it changes nothing."""
    write(tmp_path, trained, tokenizer_class="PhobertTokenizer")
    built = build_tokenizer(tmp_path, "")
    assert built is not None
    text = " ".join(TEXTS)
    whole = TextTokenizer.limited(built[1], built[0], max_length=10**7).encode([text])[0]
    cut = TextTokenizer(built[1], 10**7, piece=64).encode([text])[0]
    assert cut == whole
    assert whole.token_ids == reference(tmp_path, "PhobertTokenizer")(text)["input_ids"]


@pytest.mark.parametrize("name", CLASSES)
def test_a_checkpoint_and_its_export_have_them(name: str, trained: Path, tmp_path: Path) -> None:
    """Its own files go before a tokenizer.json, as in transformers; an export has them too."""
    source, target = tmp_path / "model", tmp_path / "export"
    write_model(source, "Roberta", **SIZES)
    (source / "tokenizer.json").unlink()
    write(source, trained, model_max_length=62)
    theirs = reference(source, name)
    change_config(source, tokenizer_class=name, vocab_size=len(theirs))
    special = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": len(theirs) - 1}
    decoy = Tokenizer(models.WordLevel(special, unk_token="<unk>"))  # noqa: S106 - a vocabulary entry
    decoy.add_special_tokens([*special])
    decoy.save(str(source / "tokenizer.json"))
    target.mkdir()
    folder = read_folder(source)
    copy_contents(source, folder.layout, target)
    add_tokenizer(folder, target)
    short = [text[:20] for text in TEXTS[:200]]
    for one in (folder, read_folder(target)):
        for text, encoding in zip(short, one.tokenizer.encode(short), strict=True):
            assert encoding.token_ids == theirs(text)["input_ids"]
        (pair,) = one.tokenizer.encode([("the man", "the boy")])
        assert pair.token_ids == theirs("the man", "the boy")["input_ids"]
        assert pair.segment_ids == [0] * len(pair)


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        (
            "tokenizer_config.json",
            '{"normalization": true}',
            "normalization is True, but its rules for tweets",
        ),
        ("bpe.codes", "t h\n", "line 1 is 't h'; it must be two pieces and their count"),
        ("bpe.codes", "t h 3\nt h e 3\n", "line 2 is 't h e 3'; it must be two pieces and their count"),
        ("vocab.txt", "the 3\nthe 2\n", "line 2 is 'the 2'; it must be a token that is on no other line"),
        ("vocab.txt", "the\n", "line 1 is 'the'; it must be a token that is on no other line"),
        ("vocab.txt", "<s> 1\n", "line 1 is '<s> 1'; it must be a token that is on no other line"),
        (
            "tokenizer_config.json",
            '{"added_tokens_decoder": {"4194304": {"content": "<more>"}}}',
            "the id 4194304 of an added token is more than 2097152, which is the limit",
        ),
        ("tokenizer_config.json", '{"mask_token": null}', "mask_token is null, but the tokenizer needs one"),
    ],
)
def test_files_that_are_not_understood_are_refused(
    file: str, change: str, said: str, trained: Path, tmp_path: Path
) -> None:
    """With the file, the line, and what it must be."""
    write(tmp_path, trained)
    (tmp_path / file).write_text(change, encoding="utf-8")
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    with pytest.raises(CheckpointError) as refused:
        find_tokenizer(tmp_path, "BertweetTokenizer", settings)
    assert said in str(refused.value)
    assert str(tmp_path / file) in str(refused.value)
