"""Ids and names of tokens are those of the vocabulary."""

from pathlib import Path

import pytest
import transformers
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from model.tokenization.tokenizer import TextTokenizer

PIECES = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("▁a", -3.0)]


@pytest.fixture
def twice(tmp_path: Path) -> Path:
    """A vocabulary like CamemBERT's, which has <unk> twice, and a mask that takes the space before it."""
    tokenizer = Tokenizer(models.Unigram([*PIECES, ("<unk>", -9.0), ("<mask>", 0.0)], unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_every_id_that_a_text_has_is_known(twice: Path) -> None:
    """The map of names to ids has only one of two ids."""
    ours = TextTokenizer.from_file(twice / "tokenizer.json", max_length=64)
    (encoding,) = ours.encode(["a 😀 <mask>"])
    assert 3 in encoding.token_ids
    assert ours.decoder.find_unknown(encoding.token_ids) is None
    assert ours.decoder.find_unknown(range(8)) is None
    assert ours.decoder.find_unknown([7, 8]) == 1
    assert ours.vocab_size == 8
    assert ours.decoder.text_bytes([3, 6]) == 22


@pytest.mark.parametrize("text", ["a 😀 <mask> a", "<mask>😀", "😀 a" * 9000])
def test_tokens_have_the_names_of_the_vocabulary(twice: Path, text: str) -> None:
    """Not those of the text that they are of, which the library says."""
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(twice / "tokenizer.json"))
    ours = TextTokenizer.from_file(twice / "tokenizer.json", max_length=10**6)
    (encoding,) = ours.encode([text])
    assert encoding.tokens == theirs.convert_ids_to_tokens(encoding.token_ids)
    assert {"<unk>"} < {*encoding.tokens}
