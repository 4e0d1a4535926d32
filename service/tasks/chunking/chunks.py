"""Late chunking: how texts are split, and the tokens of each part.

A token belongs to the chunk that holds its first character, white space aside: some tokenizers count the
space before a word as part of it. Special tokens and those of a prompt belong to none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, islice
from typing import Literal

import numpy as np

from model.contract import ChunksWant, Encoding
from model.tokenization.sentences import sentences
from model.tokenization.tokenizer import Text
from service.tasks.errors import Names, OptionError

Span = tuple[int, int]
"""A half-open range."""
MAX_CHUNKS = 4096
"""The most chunks that one text may have."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Chunks of `tokens` tokens each; each but the first repeats the last `overlap` of the one before."""

    tokens: int
    overlap: int

    def count(self, tokens: int) -> int:
        """Return the number of windows over a number of tokens."""
        return len(self._starts(tokens))

    def spans(self, tokens: int) -> Iterator[Span]:
        """Yield the windows over a number of tokens; the last may be shorter."""
        for first in self._starts(tokens):
            yield first, min(first + self.tokens, tokens)

    def _starts(self, tokens: int) -> range:
        return range(0, max(tokens - self.overlap, min(tokens, 1)), self.tokens - self.overlap)


Chunking = Literal["sentences"] | Windows | tuple[Span, ...]


Reason = Literal["blank", "truncated", "within a token"]


class NoTokens(OptionError):
    """A listed chunk has no tokens; `reason` says why."""

    def __init__(self, number: int, span: Span, reason: Reason, encoding: Encoding) -> None:
        self.number, self.reason = number, reason
        self.run, self.sent = len(encoding), encoding.original_length
        match reason:
            case "blank":
                why = "which is only white space: leave it out"
            case "truncated":
                why = (
                    f"which truncation removed: {self.run} of the text's {self.sent} tokens ran. Send the "
                    "text in several requests, or leave the chunk out"
                )
            case "within a token":
                why = (
                    "but no token begins there: a token belongs to the chunk of its first character. Widen it"
                )
        super().__init__(partial(_say, number, span, why), option=f"chunks.{number}", actual=list(span))


@dataclass(frozen=True, slots=True)
class Parts:
    """The chunks of one text: `offsets` in code points, and the `tokens` of each."""

    offsets: Sequence[Span]
    tokens: Sequence[Span]


@dataclass(frozen=True)
class ChunkPlan:
    """How the texts of a request are split, and the vectors of `size` components that their chunks get."""

    chunking: Chunking
    size: int
    normalize: bool
    dimensions: int | None

    def want(self, parts: Parts) -> ChunksWant:
        """Return what must be computed for one text."""
        return ChunksWant(tuple(parts.tokens), self.normalize, self.dimensions)

    def most(self, encoding: Encoding) -> int:
        """Bound how many chunks one text has, before it is split: for sentences, by its number of tokens."""
        if isinstance(self.chunking, tuple):
            return len(self.chunking)
        tokens = encoding.special[encoding.prompt_length :].count(False)
        return tokens if self.chunking == "sentences" else self.chunking.count(tokens)

    def counts(self, encodings: Sequence[Encoding], texts: Sequence[Text]) -> list[int]:
        """Bound the number of chunks of each text; raises OptionError for the first text that has too many.

        Sentences are counted only in texts with more tokens than that, which take far longer to run.
        """
        counts = []
        for index, (encoding, text) in enumerate(zip(encodings, texts, strict=True)):
            count = self.most(encoding)
            if count > MAX_CHUNKS and self.chunking == "sentences" and isinstance(text, str):
                found = _TextTokens(encoding, text).sentences()
                count = sum(1 for _ in islice(found, MAX_CHUNKS + 1))
            if count > MAX_CHUNKS:
                raise _too_many(index, self.chunking)
            counts.append(count)
        return counts

    def split(self, encoding: Encoding, text: str) -> Parts:
        """Split one text; raises OptionError for a chunk without tokens."""
        tokens = _TextTokens(encoding, text)
        if isinstance(self.chunking, tuple):
            return Parts(self.chunking, [tokens.of_span(i, span) for i, span in enumerate(self.chunking)])
        found = tokens.windows(self.chunking) if isinstance(self.chunking, Windows) else tokens.sentences()
        offsets, spans = list[Span](), list[Span]()
        for offset, span in found:
            offsets.append(offset)
            spans.append(span)
        return Parts(offsets, spans)


@dataclass(frozen=True)
class _TextTokens:
    """The tokens of one text that are neither special nor of a prompt, and where each begins."""

    encoding: Encoding
    text: str

    @cached_property
    def positions(self) -> list[int]:
        """Their positions among all tokens."""
        special, prompt = self.encoding.special, self.encoding.prompt_length
        return [i for i in range(prompt, len(special)) if not special[i]]

    @cached_property
    def starts(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The first character of each that is not white space, in ascending order."""
        starts = [self._start(i) for i in self.positions]
        # Normalizers that reorder combining marks may let a token begin before the one to its left.
        return np.maximum.accumulate(np.array(starts, np.int64))

    def _start(self, token: int) -> int:
        start, end = self.encoding.offsets[token]
        if start == end or not self.text[start].isspace():
            return start
        piece = self.text[start:end]
        return start + len(piece) - len(piece.lstrip()) if not piece.isspace() else start

    def within(self, start: int, end: int) -> Span | None:
        """Return the positions of the tokens that begin in [start, end); None if there are none."""
        first, after = (int(i) for i in np.searchsorted(self.starts, (start, end)))
        return (self.positions[first], self.positions[after - 1] + 1) if first < after else None

    def of_span(self, number: int, span: Span) -> Span:
        """Return the positions of the tokens of a listed chunk; raises OptionError if there are none."""
        start, end = span
        if end > len(self.text):
            why = (
                f"but the text has {len(self.text)} characters: count Unicode code points, not bytes, and "
                "choose a span within the text"
            )
            say = partial(_say, number, span, why)
            raise OptionError(say, option=f"chunks.{number}", actual=end, limit=len(self.text))
        found = self.within(start, end)
        if found is None:
            raise NoTokens(number, span, self._why_none(start, end), self.encoding)
        return found

    def _why_none(self, start: int, end: int) -> Reason:
        if self.text[start:end].isspace():
            return "blank"
        outside = not self.positions or start > self.starts[-1] or end <= self.starts[0]
        return "truncated" if self.encoding.truncated and outside else "within a token"

    def windows(self, windows: Windows) -> Iterator[tuple[Span, Span]]:
        """Yield the offsets and the token positions of each window of tokens."""
        ends = list(accumulate((self.encoding.offsets[i][1] for i in self.positions), max))
        for first, after in windows.spans(len(self.positions)):
            offsets = (int(self.starts[first]), ends[after - 1])
            yield offsets, (self.positions[first], self.positions[after - 1] + 1)

    def sentences(self) -> Iterator[tuple[Span, Span]]:
        """Yield the offsets and the token positions of each sentence of which at least one token ran."""
        if not self.positions:
            return
        first, last = int(self.starts[0]), int(self.starts[-1])
        for start, end in sentences(self.text):
            if start > last:
                return
            if end > first and (found := self.within(start, end)):
                yield (start, end), found


def _say(number: int, span: Span, why: str, name: Names) -> str:
    return f"{name(f'chunks.{number}')} is [{span[0]}, {span[1]}], {why}."


def _too_many(index: int, chunking: Chunking) -> OptionError:
    smaller = "larger `tokens`" if isinstance(chunking, Windows) else '{"tokens": n}'
    return OptionError(
        lambda name: (
            f"{name('chunks')} splits {name(f'inputs.{index}')} into more than {MAX_CHUNKS} chunks, "
            f"the limit: choose {smaller}."
        ),
        option="chunks",
        limit=MAX_CHUNKS,
    )
