"""Tokenizes a long text in pieces, with the same result as the whole text, in bounded memory.

The tokenizer needs up to 700 times the bytes of a text, so it gets `cutting.PIECE` characters at a time. Only
the tokens that the model reads are kept; the others are counted.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import cast

from tokenizers import Encoding as RawEncoding
from tokenizers import Tokenizer

from model.tokenization.cutting import Cutter, SpaceCutter

LARGE_PIECE = 64 * 1024
"""A piece of at least this many normalized characters, which cannot be cut, reserves its memory first."""
BYTES_PER_CHARACTER = 900
"""The most memory the tokenizer needs per normalized character: 700 for ASCII punctuation, 890 for others."""

# How many characters are normalized at a time, to count them, while the interpreter lock is held.
_COUNTED = 2 * 1024

Reserve = Callable[[int], AbstractContextManager[None]]
"""Reserves a number of bytes for the duration of a `with` block, or raises."""


@dataclass(slots=True)
class TokenizedText:
    """A tokenized input, with the field names of the tokenizer's own result."""

    ids: list[int] = field(default_factory=list)
    type_ids: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    offsets: list[tuple[int, int]] = field(default_factory=list)
    word_ids: list[int | None] = field(default_factory=list)
    sequence_ids: list[int | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(slots=True)
class Part:
    """The tokens of one piece, which starts at character `start` and word `first_word` of the text.

    The first `skipped` tokens belong to the word before. `last_end` is the true end of the last word, if it
    continues in the next piece.
    """

    raw: RawEncoding
    start: int
    first_word: int
    skipped: int = 0
    last_end: int | None = None

    def __len__(self) -> int:
        return len(self.raw) - self.skipped

    @property
    def words(self) -> list[int]:
        """The number of each token's word within the piece; no token is special, so each has one."""
        return cast("list[int]", self.raw.word_ids)


class LongText:
    """One text, added piece by piece. Keeps at most `most` tokens: the first ones, or the last if `left`.

    The first `prompt` characters are a prompt; `prompt_words` counts the words that end within it.
    """

    def __init__(self, most: int, *, left: bool, prompt: int = 0) -> None:
        self.length = 0
        self.prompt_words = 0
        self._most = most
        self._left = left
        self._prompt = prompt
        self._in_prompt = prompt > 0
        self._kept: deque[Part] = deque()
        self._kept_tokens = 0
        self._tail: Part | None = None
        self._words = 0

    def add(self, raw: RawEncoding, start: int, *, joined: bool) -> None:
        """Add the tokens of the next piece, which starts at character `start`."""
        part = Part(raw, start, self._words)
        if joined and self._tail is not None:
            self._join(part, self._tail)
        if self._in_prompt:
            self._look_for_text(part)
        if not len(part):
            return
        self._tail = part
        self.length += len(part)
        self._words = part.first_word + part.words[-1] + 1
        if self._left or self._kept_tokens < self._most:
            self._kept.append(part)
            self._kept_tokens += len(part)
        while self._left and self._kept_tokens - len(self._kept[0]) >= self._most:
            self._kept_tokens -= len(self._kept.popleft())

    def _join(self, part: Part, tail: Part) -> None:
        """Merge the first word into the last word of the piece before; both are one unknown word."""
        words = part.words
        part.skipped = next((i for i, word in enumerate(words) if word != words[0]), len(words))
        part.first_word -= 1
        tail.last_end = part.start + part.raw.offsets[part.skipped - 1][1]
        if self._in_prompt and tail.last_end > self._prompt:
            self.prompt_words, self._in_prompt = part.first_word, False

    def _look_for_text(self, part: Part) -> None:
        for i, ((_, end), word) in enumerate(zip(part.raw.offsets, part.words, strict=True)):
            if i >= part.skipped and part.start + end > self._prompt:
                self.prompt_words, self._in_prompt = part.first_word + word, False
                return

    def put_into(self, tokenized: TokenizedText, count: int, *, sequence: int, type_id: int) -> None:
        """Move the `count` tokens that the model reads to an input, as one of its sequences."""
        ids: list[int] = []
        tokens: list[str] = []
        offsets: list[tuple[int, int]] = []
        words: list[int | None] = []
        while self._kept:  # each part, and what the library holds of it, is freed
            part = self._kept.popleft()
            ids += part.raw.ids[part.skipped :]
            tokens += part.raw.tokens[part.skipped :]
            offsets += [(part.start + s, part.start + e) for s, e in part.raw.offsets[part.skipped :]]
            if part.last_end is not None:
                offsets[-1] = (offsets[-1][0], part.last_end)
            words += [part.first_word + word for word in part.words[part.skipped :]]
        chosen = slice(max(0, len(ids) - count), None) if self._left else slice(count)
        tokenized.ids += ids[chosen]
        tokenized.tokens += tokens[chosen]
        tokenized.offsets += offsets[chosen]
        tokenized.word_ids += words[chosen]
        tokenized.type_ids += [type_id] * count
        tokenized.sequence_ids += [sequence] * count


class LongTexts:
    """Tokenizes texts and pairs in pieces."""

    def __init__(self, tokenizer: Tokenizer, cutter: Cutter | SpaceCutter) -> None:
        self._tokenizer = tokenizer
        self._cutter = cutter
        self._around = {pair: _around(tokenizer, pair=pair) for pair in (False, True)}

    @classmethod
    def of(cls, tokenizer: Tokenizer, piece: int) -> "LongTexts | None":
        """Return what tokenizes in pieces of `piece` characters; None if that could change the tokens."""
        cutter = Cutter.of(tokenizer) or SpaceCutter.of(tokenizer)
        if cutter is None:
            return None
        try:
            long = cls(tokenizer, replace(cutter, piece=piece))
        except Exception:  # the library raises bare Exception if not even a letter has a token
            return None
        places = [
            [e.sequence for e in entries if e.sequence is not None] for entries in long._around.values()
        ]
        return long if places == [[0], [0, 1]] else None

    def encode_in_steps(
        self, texts: Sequence[str], most: int, *, left: bool, prompt: int, reserve: Reserve
    ) -> Generator[None, None, tuple[TokenizedText, int, int]]:
        """Tokenize a text, or the two of a pair, step by step.

        Returns the columns, truncated to `most` tokens; the number of tokens before truncation; and the
        number of words in the prompt, which is the first `prompt` characters of the first text.
        """
        longs = [LongText(most, left=left, prompt=0 if i else prompt) for i in range(len(texts))]
        for long, text in zip(longs, texts, strict=True):
            for piece in self._cutter.pieces(text):
                raw = self._encode(text[piece.start : piece.end], reserve)
                long.add(raw, piece.start, joined=piece.joined)
                del raw
                yield
        around = self._around[len(texts) == 2]
        special = len(around) - len(texts)
        lengths = [long.length for long in longs]
        tokenized = TokenizedText()
        counts = kept_lengths(lengths, most - special)
        for entry in around:
            if entry.sequence is None:
                entry.put_into(tokenized)
            else:
                longs[entry.sequence].put_into(
                    tokenized, counts[entry.sequence], sequence=entry.sequence, type_id=entry.type_id
                )
        return tokenized, sum(lengths) + special, longs[0].prompt_words

    def _encode(self, piece: str, reserve: Reserve) -> RawEncoding:
        whole = len(piece) <= self._cutter.piece
        with nullcontext() if whole else reserve_memory(self._tokenizer, [piece], reserve):
            return self._tokenizer.encode_batch([piece], add_special_tokens=False)[0]


def reserve_memory(
    tokenizer: Tokenizer, texts: Sequence[str], reserve: Reserve
) -> AbstractContextManager[None]:
    """Reserve the memory that is needed for texts that cannot be cut, if it is much.

    It depends on the normalized texts: a single Arabic character may become eighteen.
    """
    characters = sum(max(len(text), _normalized_length(tokenizer, text)) for text in texts)
    return reserve(BYTES_PER_CHARACTER * characters) if characters >= LARGE_PIECE else nullcontext()


def _normalized_length(tokenizer: Tokenizer, text: str) -> int:
    if (normalizer := tokenizer.normalizer) is None:
        return len(text)
    parts = (text[start : start + _COUNTED] for start in range(0, len(text), _COUNTED))
    return sum(len(normalizer.normalize_str(part)) for part in parts)


@dataclass(frozen=True, slots=True)
class Entry:
    """A special token around the texts of an input, or the place of the text number `sequence`."""

    token_id: int
    token: str
    type_id: int
    sequence: int | None

    def put_into(self, tokenized: TokenizedText) -> None:
        """Append this special token to an input."""
        tokenized.ids.append(self.token_id)
        tokenized.tokens.append(self.token)
        tokenized.type_ids.append(self.type_id)
        tokenized.offsets.append((0, 0))
        tokenized.word_ids.append(None)
        tokenized.sequence_ids.append(None)


def _around(tokenizer: Tokenizer, *, pair: bool) -> list[Entry]:
    """Find the special tokens around texts, by tokenizing short ones."""
    raw = tokenizer.encode("a", "a") if pair else tokenizer.encode("a")
    entries = [*map(Entry, raw.ids, raw.tokens, raw.type_ids, raw.sequence_ids)]
    before = [None, *entries]
    return [
        e
        for e, b in zip(entries, before, strict=False)
        if e.sequence is None or b is None or e.sequence != b.sequence
    ]


def kept_lengths(lengths: Sequence[int], limit: int) -> list[int]:
    """Return how many tokens of each text to keep; of a pair, the longer is cut first, as in `tokenizers`."""
    if sum(lengths) <= limit or len(lengths) == 1:
        return [min(length, limit) for length in lengths]
    short, long = sorted(lengths)
    long = short if short > limit else max(short, limit - short)
    if short + long > limit:
        short = limit // 2
        long = short + limit % 2
    return [long, short] if lengths[0] > lengths[1] else [short, long]
