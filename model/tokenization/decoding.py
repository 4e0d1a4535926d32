"""Token ids -> text."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import Unigram

from model.tokenization.vocabulary import unlisted

_UNNAMED = "\U0010fffd"
"""A character that no vocabulary has."""


class Decoder:
    """Turns the ids of one tokenizer into text. Several threads may use it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        others = unlisted(tokenizer)
        listed = tokenizer.get_vocab(with_added_tokens=True).items()
        vocabulary = {token: index for token, index in listed if index not in others}
        sizes = {index: len(token.encode()) for token, index in vocabulary.items()}
        count = tokenizer.get_vocab_size(with_added_tokens=True) - len(others)
        if len(sizes) < count:  # of a token that a vocabulary has twice, the map has only one id
            twice = ((index, tokenizer.id_to_token(index)) for index in range(count) if index not in sizes)
            sizes |= {index: len(token.encode()) for index, token in twice if token is not None}
        tokens = sorted(sizes.items())
        self.size = tokens[-1][0] + 1 if tokens else 0
        """One more than the largest token id."""
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder().items()
        self._special = frozenset(index for index, token in added if token.special)
        # Not an array with a place for each id: a damaged file may have an id of four billion.
        self._ids: NDArray[np.int64] = np.array([index for index, _ in tokens], np.int64)
        self._bytes: NDArray[np.int64] = np.array([size for _, size in tokens], np.int64)
        self._has_gaps = len(tokens) != self.size
        lengths = np.array([json_bytes(token) for token in vocabulary], np.int64)
        self._longest: NDArray[np.int64] = np.sort(lengths)[::-1].cumsum()

    def name(self, index: int) -> str:
        """Return the token of an id, "" for an id without one: embeddings may have more rows than tokens."""
        return self._tokenizer.id_to_token(index) or ""

    def is_special(self, index: int) -> bool:
        """Whether an id is that of a special token."""
        return index in self._special

    def most_json_bytes(self, count: int) -> int:
        """Bound the bytes of a list of `count` different tokens in JSON."""
        listed = min(count, len(self._longest))
        return 3 * count + (int(self._longest[listed - 1]) if listed else 0)

    def find_unknown(self, ids: Sequence[int]) -> int | None:
        """Return the position of the first id that no token has, None if there is none."""
        if not ids:
            return None
        if min(ids) < 0 or max(ids) >= self.size:
            return next(i for i, index in enumerate(ids) if not 0 <= index < self.size)
        if not self._has_gaps:
            return None
        wanted = np.array(ids, np.int64)
        unknown = self._ids[np.searchsorted(self._ids, wanted)] != wanted
        return int(unknown.argmax()) if unknown.any() else None

    def text_bytes(self, ids: Sequence[int]) -> int:
        """Bound the UTF-8 bytes of the text of these known ids: twice the tokens' own, and a space for each.

        A decoder only removes characters of tokens, or replaces them by shorter ones; a byte that is not
        UTF-8 becomes U+FFFD, which has 3 bytes, but such a byte takes at least 2 in a token.
        """
        places = np.searchsorted(self._ids, ids) if self._has_gaps else np.array(ids, np.int64)
        return 2 * int(self._bytes[places].sum()) + len(ids)

    def decode(self, lists: Sequence[Sequence[int]], *, skip_special_tokens: bool) -> list[str]:
        """Return the text of each list of known ids; releases the interpreter lock."""
        return self._tokenizer.decode_batch(list(lists), skip_special_tokens=skip_special_tokens)


def misnamed(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of tokens that may stand for texts other than their names."""
    added = tokenizer.get_added_tokens_decoder().items()
    found = {number for number, token in added if token.lstrip or token.rstrip or token.normalized}
    found.update(unlisted(tokenizer).values())
    if isinstance(tokenizer.model, Unigram):
        found.update(token.id for token in tokenizer.model.tokenize(_UNNAMED))
    return frozenset(found)


def json_bytes(text: str) -> int:
    """Bound the UTF-8 bytes of a string in JSON, where a control character takes six."""
    if not text.isprintable():
        return 6 * len(text)
    return len(text.encode()) + text.count('"') + text.count("\\")
