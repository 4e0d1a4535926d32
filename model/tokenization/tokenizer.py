"""Text -> Encoding: token ids, and the part of the text that each token comes from."""

import logging
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol, Self

from tokenizers import Encoding as RawEncoding
from tokenizers import Tokenizer, normalizers

from model.contract import Encoding, Role
from model.errors import CheckpointError, InputTooLong
from model.tokenization.cutting import PIECE
from model.tokenization.decoding import Decoder, misnamed
from model.tokenization.file import read_tokenizer
from model.tokenization.long_text import LongTexts, Reserve, TokenizedText, reserve_memory
from model.tokenization.shortening import shorten
from model.tokenization.slow_patterns import SlowPatterns
from model.tokenization.subwords import Subwords
from model.tokenization.vocabulary import unlisted

log = logging.getLogger(__name__)

# Characters of a short word, with a space.
_SHORT_WORD = 5

Text = str | tuple[str, str]
"""One input: a text, or a text and its pair."""
Side = Literal["right", "left"]

# Characters that are tokenized in tens of microseconds.
_SHORT = 512


@dataclass(frozen=True)
class Truncation:
    """How to handle inputs longer than the model reads: truncate at `side`, or fail if not `allowed`.

    Without a side, the tokenizer's own is used. A `limit` of tokens may be lower than the model's. `most` may
    be higher: it is how many tokens of a text are kept, to be read in windows.
    """

    allowed: bool = True
    side: Side | None = None
    limit: int | None = None
    most: int | None = None


class RoleTokenizing(Protocol):
    """What the tokenizers of texts with and without a role have in common."""

    @property
    def own_prompt(self) -> str | None:
        """The prompt of a text of the role if no other is chosen, None without a rule."""
        ...

    @property
    def added(self) -> int:
        """The most tokens that a text may have in addition to those of its characters."""
        ...

    def encode(
        self, texts: Sequence[Text], truncation: Truncation | None = None, prompt: str = ""
    ) -> list[Encoding]:
        """Tokenize texts; see `TextTokenizer.encode`."""
        ...

    def encode_in_steps(
        self,
        texts: Sequence[Text],
        truncation: Truncation | None = None,
        prompt: str = "",
        reserve: Reserve = lambda _: nullcontext(),
    ) -> Generator[None, None, list[Encoding]]:
        """Tokenize texts in steps; see `TextTokenizer.encode_in_steps`."""
        ...


class TextTokenizer:
    """A `tokenizer.json` with the model's own limit. Several threads may use it.

    Truncation and padding in the file are ignored: they are settings of the program that saved it (128
    tokens, padded, for the embedded model), not of the model.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: int,
        *,
        piece: int = PIECE,
        slow: SlowPatterns | None = None,
        side: Side = "right",
        segments: bool = True,
    ) -> None:
        """Wrap a tokenizer; long texts are cut into pieces of `piece` characters.

        `slow` are the tokenizer's slow expressions. Inputs are truncated at `side` unless a request names
        another. Without `segments`, both texts of a pair have the first segment.
        """
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.max_length = max_length
        self.side = side
        self._segments = segments
        self.subwords = Subwords.of(tokenizer)
        self.roles: dict[Role, RoleTokenizing] = {}
        """How a model for late interaction tokenizes queries and documents."""
        self._whole = tokenizer
        self.slow = slow or SlowPatterns()
        """The tokenizer's expressions that take too long on some texts."""
        self._misnamed = misnamed(tokenizer)
        self._unlisted = unlisted(tokenizer)
        self._step = min(2 * piece, self.slow.shortest or 2 * piece)
        self._long = LongTexts.of(tokenizer, piece)
        self._cut: dict[Side, Tokenizer] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_file(cls, path: Path, *, max_length: int, lower_case: bool = False) -> "TextTokenizer":
        """Read a `tokenizer.json`; `lower_case` lower-cases texts first. Raises CheckpointError."""
        return cls.limited(read_tokenizer(path), path, max_length=max_length, lower_case=lower_case)

    @classmethod
    def limited(
        cls,
        tokenizer: Tokenizer,
        path: Path,
        *,
        max_length: int,
        lower_case: bool = False,
        side: Side | None = None,
        segments: bool = True,
    ) -> Self:
        """Wrap the tokenizer of a file; `lower_case` lower-cases texts first. Raises CheckpointError.

        Without a `side`, inputs are truncated at the file's.
        """
        special = tokenizer.num_special_tokens_to_add(is_pair=True)
        if max_length <= special:
            raise CheckpointError(
                f"{path}: the model reads at most {max_length} tokens, but a pair has {special} special "
                "tokens, which leaves no room for text."
            )
        if lower_case:
            present = [tokenizer.normalizer] if tokenizer.normalizer is not None else []
            tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *present])
        try:
            slow = SlowPatterns.of(tokenizer)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}; replace it with the model's own file.") from error
        for warning in slow.warnings():
            log.warning("%s: %s", path, warning)
        own: Side = "left" if (tokenizer.truncation or {}).get("direction") == "left" else "right"
        return cls(tokenizer, max_length, slow=slow, side=side or own, segments=segments)

    def fitting(self, words: int) -> int:
        """Return how many short words, at most `words`, no slow expression takes too long to search."""
        return words if self.slow.shortest is None else min(words, self.slow.shortest // _SHORT_WORD)

    added, own_prompt = 0, None
    """A text has no more tokens than bytes, apart from special ones; prompts are chosen elsewhere."""

    def of(self, role: Role | None) -> RoleTokenizing:
        """Return the tokenizer for texts of a role, one of `roles`; None: for texts without a role."""
        return self if role is None else self.roles[role]

    def save(self, path: Path) -> None:
        """Write the tokenizer as a `tokenizer.json`."""
        self._whole.save(str(path), pretty=False)

    @property
    def vocab_size(self) -> int:
        """One more than the largest token id."""
        return self.decoder.size

    @cached_property
    def decoder(self) -> Decoder:
        """What turns token ids into text."""
        return Decoder(self._whole)

    def encode(
        self, texts: Sequence[Text], truncation: Truncation | None = None, prompt: str = ""
    ) -> list[Encoding]:
        """Tokenize texts or pairs, with `prompt` before each (first) text.

        Raises InputTooLong for the first input longer than `max_length` if `truncation` is not allowed, and
        InputTooSlow for one on which `slow` expressions would take too long.
        """
        if len(texts) == 1 and len(prompt) + _size(texts[0]) <= self._step:
            return self._short([_prepend(prompt, texts[0])], 0, truncation or Truncation(), prompt)
        return run_steps(self.encode_in_steps(texts, truncation, prompt))

    def encode_in_steps(
        self,
        texts: Sequence[Text],
        truncation: Truncation | None = None,
        prompt: str = "",
        reserve: Reserve = lambda _: nullcontext(),
    ) -> Generator[None, None, list[Encoding]]:
        """Do what `encode` does, in steps of a few milliseconds.

        Long texts are cut into pieces if that changes no token. A text that cannot be cut is one long step,
        which reserves memory through `reserve`; an exception from `reserve` is passed on.
        """
        truncation = truncation or Truncation()
        prompted = [_prepend(prompt, text) for text in texts]
        encodings: list[Encoding] = []
        for group in _groups(prompted, self._step):
            if len(group) > 1 or _size(group[0]) <= self._step:
                some = self._short(group, len(encodings), truncation, prompt)
            else:
                some = [(yield from self._one_long(group[0], len(encodings), truncation, prompt, reserve))]
            encodings += some
            if len(encodings) < len(prompted):
                yield
        return encodings

    def _short(
        self, texts: Sequence[Text], first: int, truncation: Truncation, prompt: str
    ) -> list[Encoding]:
        """Tokenize texts of a short total length; `first` is the index of the first one among the inputs."""
        whole = self._run(texts)
        encodings = []
        for i, (text, raw) in enumerate(zip(texts, whole, strict=True), start=first):
            length, first_word = len(raw), _first_word(raw, len(prompt)) if prompt else 0
            if length > (truncation.most or self.max_length):
                _check_allowed(truncation, i, length, self.max_length)
                raw = self._cutting(truncation.side or self.side).encode_batch([text])[0]  # noqa: PLW2901
            encodings.append(self._finished(_encoding(raw, length, first_word, prompt), i, truncation))
        return encodings

    def _run(self, texts: Sequence[Text]) -> list[RawEncoding]:
        """Run the library; it releases the interpreter lock only for more than one short text.

        Getting the lock back may take longer than a short text. Only `encode_batch` releases it.
        """
        if len(texts) > 1 or _size(texts[0]) > _SHORT:
            return self._whole.encode_batch(list(texts))
        (text,) = texts
        return [self._whole.encode(text) if isinstance(text, str) else self._whole.encode(*text)]

    def _one_long(
        self, text: Text, index: int, truncation: Truncation, prompt: str, reserve: Reserve
    ) -> Generator[None, None, Encoding]:
        texts = [text] if isinstance(text, str) else text
        if self._long is None:
            self.slow.check(texts, f"inputs.{index}")
            with reserve_memory(self._whole, texts, reserve):
                return self._short([text], index, truncation, prompt)[0]
        most, left = truncation.most or self.max_length, (truncation.side or self.side) == "left"
        steps = self._long.encode_in_steps(texts, most, left=left, prompt=len(prompt), reserve=reserve)
        tokenized, length, first_word = yield from steps
        if length > most:
            _check_allowed(truncation, index, length, self.max_length)
        return self._finished(_encoding(tokenized, length, first_word, prompt), index, truncation)

    def _finished(self, encoding: Encoding, index: int, truncation: Truncation) -> Encoding:
        """Name tokens as the vocabulary does, as the library names some after their text; apply a limit."""
        if not self._segments:
            encoding.segment_ids[:] = [0] * len(encoding)
        if self._unlisted:
            encoding.token_ids[:] = [self._unlisted.get(number, number) for number in encoding.token_ids]
        if not self._misnamed.isdisjoint(encoding.token_ids):
            for position, number in enumerate(encoding.token_ids):
                if number in self._misnamed:
                    encoding.tokens[position] = self._whole.id_to_token(number) or ""
        limit = truncation.limit
        if limit is None or len(encoding) <= limit:
            return encoding
        _check_allowed(truncation, index, len(encoding), limit)
        return shorten(encoding, limit, left=(truncation.side or self.side) == "left")

    def _cutting(self, side: Side) -> Tokenizer:
        """Return the tokenizer that truncates at `side`: a copy of a few megabytes, made on first use."""
        with self._lock:
            if side not in self._cut:
                self._cut[side] = _with_truncation(self._whole, self.max_length, side)
            return self._cut[side]


def _check_allowed(truncation: Truncation, index: int, length: int, limit: int) -> None:
    if not truncation.allowed:
        raise InputTooLong(field=f"inputs.{index}", actual=length, limit=limit)


def run_steps(steps: Generator[None, None, list[Encoding]]) -> list[Encoding]:
    """Run all steps at once and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            encodings: list[Encoding] = end.value
            return encodings


def _with_truncation(tokenizer: Tokenizer, max_length: int, side: str) -> Tokenizer:
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.enable_truncation(max_length, strategy="longest_first", direction=side)
    return copy


def _size(text: Text) -> int:
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])


def _groups(texts: Sequence[Text], step: int) -> Iterator[list[Text]]:
    """Group texts in order, with at most `step` characters per group, or one longer text."""
    group, size = list[Text](), 0
    for text in texts:
        if group and size + _size(text) > step:
            yield group
            group, size = [], 0
        group.append(text)
        size += _size(text)
    if group:
        yield group


def _prepend(prompt: str, text: Text) -> Text:
    return prompt + text if isinstance(text, str) else (prompt + text[0], text[1])


def _encoding(raw: RawEncoding | TokenizedText, length: int, first_word: int, prompt: str) -> Encoding:
    """Turn a tokenized input into an Encoding.

    `length` is its number of tokens before truncation; `first_word` is the first word after the prompt.
    """
    sequence_ids: list[int | None] = raw.sequence_ids
    special = [s is None for s in sequence_ids]
    offsets = [(0, 0) if s else o for s, o in zip(special, raw.offsets, strict=True)]
    word_ids = [None if s else w for s, w in zip(special, raw.word_ids, strict=True)]
    apart = (first_word, sequence_ids, offsets, word_ids)
    prompt_length = _set_prompt_apart(len(prompt), *apart) if prompt else 0
    return Encoding(
        token_ids=raw.ids,
        segment_ids=_segments(raw.type_ids, sequence_ids),
        tokens=raw.tokens,
        offsets=offsets,
        word_ids=word_ids,
        special=special,
        truncated=len(raw) < length,
        original_length=length,
        prompt_length=prompt_length,
    )


def _first_word(whole: RawEncoding, characters: int) -> int:
    """Return the number of words in the prompt, which is also the number of the text's first word."""
    tokens = zip(whole.sequence_ids, whole.offsets, whole.word_ids, strict=True)
    return next((w for s, (_, end), w in tokens if s == 0 and end > characters and w is not None), 0)


def _set_prompt_apart(
    characters: int,
    first_word: int,
    sequence_ids: Sequence[int | None],
    offsets: list[tuple[int, int]],
    word_ids: list[int | None],
) -> int:
    """Shift offsets and words to count from the start of the text, in place; returns the prompt's length.

    A token that spans the end of the prompt belongs to the text.
    """
    leading, in_text = 0, False
    for i, sequence in enumerate(sequence_ids):
        if sequence != 0:
            continue
        start, end = offsets[i]
        if end <= characters:
            offsets[i], word_ids[i] = (0, 0), None
            leading = i + 1
            continue
        if not in_text:
            leading, in_text = i, True
        word = word_ids[i]
        offsets[i] = (max(start - characters, 0), end - characters)
        word_ids[i] = None if word is None else word - first_word
    return leading


def _segments(type_ids: list[int], sequence_ids: Sequence[int | None]) -> list[int]:
    """Return the text that each token belongs to, even if the tokenizer gives all tokens type 0.

    A special token belongs to the text before it; the first token belongs to the first text.
    """
    if any(type_ids) or 1 not in sequence_ids:
        return type_ids
    segments, current = [], 0
    for sequence in sequence_ids:
        current = current if sequence is None else sequence
        segments.append(current)
    return segments
