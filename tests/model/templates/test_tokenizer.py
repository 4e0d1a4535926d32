"""Pairs in a chat template have the tokens of sentence-transformers, and the offsets of their texts."""

import json
from pathlib import Path
from typing import Any

import pytest

from model.checkpoints.folder import read_folder
from model.contract import Encoding
from model.errors import InputTooLong
from model.tokenization.tokenizer import Truncation
from tests.references.decoders import LENGTH
from tests.references.logit_score import FIXED, TAIL, TEMPLATE, Reranker, write_reranker

PAIRS = [
    ("the man", "the boy"),
    ("", ""),
    (" who?\n", "\u00e9\U0001f642 hello"),
    ("a", "hello world " * 5000),
]


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Reranker:
    return write_reranker(tmp_path_factory.mktemp("model") / "model", tie_word_embeddings=True)


def whole(reranker: Reranker, query: str, text: str) -> list[int]:
    """All tokens of a pair, by `transformers`."""
    messages = [{"role": "query", "content": query}, {"role": "document", "content": text}]
    rendered = reranker.tokenizer.apply_chat_template(messages, tokenize=False)
    ids: list[int] = reranker.tokenizer(rendered, add_special_tokens=False)["input_ids"]
    return ids


@pytest.mark.parametrize("limit", [None, 30, 20, 3])
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_pair_that_is_cut_ends_as_the_template_does(
    side: Any, limit: int | None, reranker: Reranker
) -> None:
    """At both sides, also of texts that are tokenized in pieces, and below a limit of the request."""
    tokenizer = read_folder(reranker.folder).tokenizer
    tail = reranker.tokenizer(TAIL, add_special_tokens=False)["input_ids"]
    most = limit or LENGTH
    encodings = tokenizer.encode(PAIRS, Truncation(side=side, limit=limit))
    for pair, encoding in zip(PAIRS, encodings, strict=True):
        ids = whole(reranker, *pair)
        cut = ids[-most:] if side == "left" else [*ids[: most - len(tail)], *tail][-most:]
        assert encoding.token_ids == (cut if len(ids) > most else ids)
        assert encoding.original_length == len(ids)
        assert encoding.truncated == (len(ids) > most)
        assert encoding.tokens == reranker.tokenizer.convert_ids_to_tokens(encoding.token_ids)


def spans(encoding: Encoding, pair: tuple[str, str]) -> list[str]:
    """What the tokens of each text say, in their order."""
    found = ["", ""]
    for (start, end), segment, special in zip(
        encoding.offsets, encoding.segment_ids, encoding.special, strict=True
    ):
        if not special:
            found[segment] += pair[segment][start:end]
    return found


@pytest.mark.parametrize(
    ("template", "stripped"), [(TEMPLATE, False), (FIXED, True)], ids=["as it is", "trimmed"]
)
def test_offsets_are_those_of_each_text(template: str, stripped: bool, tmp_path: Path) -> None:
    """Tokens of the template are special; words count from 0 in each text."""
    folder = write_reranker(tmp_path / "model", template=template, tie_word_embeddings=True).folder
    tokenizer = read_folder(folder).tokenizer
    pair = ("  the man", "hello world  ")
    (encoding,) = tokenizer.encode([pair])
    assert spans(encoding, pair) == [text.strip() if stripped else text for text in pair]
    words = zip(encoding.segment_ids, encoding.word_ids, encoding.special, strict=True)
    of_each: list[list[int]] = [[], []]
    for segment, word, special in words:
        assert (word is None) == special
        if word is not None:
            of_each[segment].append(word)
    assert [listed[0] for listed in of_each] == [0, 0]
    assert all(listed == sorted(listed) for listed in of_each)


def test_the_end_of_the_template_may_be_cut(reranker: Reranker, tmp_path: Path) -> None:
    """With `restore_suffix` of the folder, as in sentence-transformers."""
    folder = write_reranker(tmp_path / "model", tie_word_embeddings=True).folder
    file = folder / "sentence_bert_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["processing_kwargs"] = {"chat_template": {"restore_suffix": False}}
    file.write_text(json.dumps(config), encoding="utf-8")
    (encoding,) = read_folder(folder).tokenizer.encode(PAIRS[-1:])
    assert encoding.token_ids == whole(reranker, *PAIRS[-1])[:LENGTH]


def test_a_long_pair_may_be_refused(reranker: Reranker) -> None:
    """With its place and its length."""
    tokenizer = read_folder(reranker.folder).tokenizer
    with pytest.raises(InputTooLong) as refused:
        tokenizer.encode(PAIRS, Truncation(allowed=False))
    assert refused.value.field == "inputs.3"
    assert refused.value.actual == len(whole(reranker, *PAIRS[-1]))


def test_a_text_alone_is_no_pair(reranker: Reranker) -> None:
    """It stands in no template, and ends as the tokenizer says."""
    (encoding,) = read_folder(reranker.folder).tokenizer.encode(["the man"])
    assert encoding.token_ids == reranker.tokenizer("the man")["input_ids"]
