"""The words of an input: their tokens, and their text."""

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from model.contract import Encoding
from model.tokenization.tokenizer import Text


@dataclass(frozen=True)
class Words:
    """The words of one input, in order.

    Special tokens and those of a prompt are words of their own. `starts` has the first token of each word,
    and the number of tokens at the end.
    """

    encoding: Encoding
    text: Text
    starts: tuple[int, ...]

    @classmethod
    def of(cls, encoding: Encoding, text: Text) -> "Words":
        """Find the words, separately for the two texts of a pair."""
        columns = zip(encoding.segment_ids, encoding.word_ids, strict=True)
        keys = [(s, w, -1 if w is not None else i) for i, (s, w) in enumerate(columns)]
        starts, token = [0], 0
        for _, pieces in groupby(keys):
            token += len(list(pieces))
            starts.append(token)
        return cls(encoding, text, tuple(starts))

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.starts) - 1

    def pieces(self, word: int) -> range:
        """Return the tokens of a word."""
        return range(self.starts[word], self.starts[word + 1])

    @cached_property
    def offsets(self) -> list[tuple[int, int]]:
        """`[start, end]` of each word in its text; [0, 0] for special and prompt tokens."""
        offsets = self.encoding.offsets
        return [
            (offsets[first][0], offsets[after - 1][1])
            for first, after in zip(self.starts, self.starts[1:], strict=False)
        ]

    @cached_property
    def texts(self) -> list[str]:
        """The text of each word; for special and prompt tokens, the token itself."""
        return [
            self._text_of(first, start, end)
            for first, (start, end) in zip(self.starts, self.offsets, strict=False)
        ]

    def _text_of(self, token: int, start: int, end: int) -> str:
        if self.encoding.word_ids[token] is None:
            return self.encoding.tokens[token]
        text = self.text if isinstance(self.text, str) else self.text[self.encoding.segment_ids[token]]
        return text[start:end]
