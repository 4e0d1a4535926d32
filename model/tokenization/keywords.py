"""The keywords of a text, weighted by attention: BM42, as fastembed's `Bm42` defines it."""

import math
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import mmh3
import numpy as np
from numpy.typing import NDArray
from py_rust_stemmers import SnowballStemmer
from tokenizers import Tokenizer

from model.contract import Encoding, FloatArray
from model.errors import CheckpointError
from model.files import present, read_bytes

FILE = "stopwords.txt"
"""Of a folder whose model weights keywords: the words that are none, one on each line."""
_BYTES = 16 * 2**20
_LANGUAGE = "english"
_EXPONENT = 0.5
_LARGEST_ID = 2**31 - 1
"""A hash is a signed number of 32 bits, and its absolute value the id."""


@dataclass(frozen=True, slots=True)
class Keyword:
    """A word of a text: its stem, and the positions of its tokens."""

    stem: str
    tokens: tuple[int, ...]

    @property
    def id(self) -> int:
        """The absolute value of the stem's MurmurHash3."""
        return min(abs(mmh3.hash(self.stem)), _LARGEST_ID)


class KeywordFinder:
    """Finds the keywords of tokenized texts: their words without stop words and punctuation, stemmed.

    Words are put together from WordPiece tokens. Special tokens, and a literal "[UNK]", belong to none.
    """

    def __init__(self, stopwords: Iterable[str], tokenizer: Tokenizer) -> None:
        self._ignored = frozenset(stopwords) | frozenset(string.punctuation)
        self._prefix: str = tokenizer.model.continuing_subword_prefix
        added = tokenizer.get_added_tokens_decoder().values()
        self._special = {token.content for token in added if token.special} | {tokenizer.model.unk_token}
        self._stemmer = SnowballStemmer(_LANGUAGE)

    @classmethod
    def read(cls, folder: Path, tokenizer: Tokenizer) -> "KeywordFinder | None":
        """Read the stop words of a folder; None if it has none, or its tokenizer is no WordPiece.

        Raises CheckpointError for a file that cannot be read.
        """
        file = folder / FILE
        if not present(file) or not getattr(tokenizer.model, "continuing_subword_prefix", None):
            return None
        try:
            return cls(read_bytes(file, _BYTES).decode("utf-8").splitlines(), tokenizer)
        except UnicodeDecodeError as error:
            raise CheckpointError(
                f"{file} is not UTF-8 at byte {error.start}: replace it with the model's own file."
            ) from error

    def find(self, encoding: Encoding) -> list[Keyword]:
        """Return the keywords of a text in its order, repeated ones included."""
        words: list[tuple[str, list[int]]] = []
        for position in range(encoding.prompt_length, len(encoding)):
            token = encoding.tokens[position]
            if encoding.special[position] or token in self._special:
                continue
            if words and token.startswith(self._prefix):
                text, tokens = words[-1]
                words[-1] = (text + token[len(self._prefix) :], [*tokens, position])
            else:
                words.append((token.removeprefix(self._prefix), [position]))
        kept = [(text, tokens) for text, tokens in words if text not in self._ignored]
        stems = self._stemmer.stem_words([text for text, _ in kept])
        return [Keyword(stem, tuple(tokens)) for stem, (_, tokens) in zip(stems, kept, strict=True)]


def weigh_keywords(
    keywords: Sequence[Keyword], attention: FloatArray | None, top_k: int | None
) -> tuple[dict[str, NDArray[np.generic]], list[str]]:
    """Weigh keywords by the attention (N,) that the first token pays to each; by 1 each without it.

    A keyword's weight is √log(1 + w), and w the sum over its tokens, of the occurrence with the largest.
    Returns the arrays that `SparseWant` describes, and the stems.
    """
    weights: dict[str, float] = {}
    for keyword in keywords:
        weight = 1.0
        if attention is not None:
            weight = math.log1p(float(attention[[*keyword.tokens]].sum())) ** _EXPONENT
        weights[keyword.stem] = max(weights.get(keyword.stem, 0.0), weight)
    ids = {keyword.id: keyword.stem for keyword in keywords}
    ordered = sorted((-weights[stem], number, stem) for number, stem in ids.items())[:top_k]
    arrays: dict[str, NDArray[np.generic]] = {
        "sparse_ids": np.array([number for _, number, _ in ordered], np.int32),
        "sparse_weights": np.array([-weight for weight, _, _ in ordered], np.float32),
    }
    return arrays, [stem for _, _, stem in ordered]
