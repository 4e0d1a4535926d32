"""The units that an explanation speaks of: tokens, words or sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from typing import Any, Literal

from model.contract import Encoding
from model.tokenization.sentences import sentences
from model.tokenization.tokenizer import Text

Unit = Literal["token", "word", "sentence"]
BIAS = "bias"
"""The name of the unit for what layers after the pooling add, whatever the text is."""


@dataclass(frozen=True)
class Units:
    """The units of one sequence, in order, which together have each of its tokens once.

    Each special token and each of a prompt is a unit of its own. `starts` has the first token of each unit,
    and the number of tokens at the end. With `segment`, all units belong to that text of a pair.
    """

    encoding: Encoding
    text: Text
    starts: tuple[int, ...]
    segment: int | None = None

    @classmethod
    def of(cls, encoding: Encoding, text: Text, unit: Unit, segment: int | None = None) -> "Units":
        """Find the units of a tokenized text or pair."""
        starts, token = [0], 0
        for _, members in groupby(_keys(encoding, text, unit)):
            token += len(list(members))
            starts.append(token)
        return cls(encoding, text, tuple(starts), segment)

    def __len__(self) -> int:
        """Return the number of units."""
        return len(self.starts) - 1

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """[first, after) of the tokens of each unit."""
        return list(zip(self.starts, self.starts[1:], strict=False))

    def is_text(self, unit: int) -> bool:
        """Whether a unit is of the text, and not a special token or one of a prompt."""
        return self.encoding.word_ids[self.starts[unit]] is not None

    @cached_property
    def of_text(self) -> list[int]:
        """The units of the text."""
        return [unit for unit in range(len(self)) if self.is_text(unit)]

    @cached_property
    def segments(self) -> list[int]:
        """The number of the text of a pair that each unit belongs to."""
        if self.segment is not None:
            return [self.segment] * len(self)
        return [self.encoding.segment_ids[first] for first in self.starts[:-1]]

    @cached_property
    def offsets(self) -> list[tuple[int, int]]:
        """[start, end] of each unit in its text; [0, 0] for special and prompt tokens."""
        offsets = self.encoding.offsets
        return [
            (offsets[first][0], max(end for _, end in offsets[first:after])) for first, after in self.spans
        ]

    @cached_property
    def texts(self) -> list[str]:
        """The text of each unit; for special and prompt tokens, the token itself."""
        return [
            self._part(first)[start:end] if self.is_text(unit) else self.encoding.tokens[first]
            for unit, (first, (start, end)) in enumerate(zip(self.starts, self.offsets, strict=False))
        ]

    def _part(self, token: int) -> str:
        return self.text if isinstance(self.text, str) else self.text[self.encoding.segment_ids[token]]


def _keys(encoding: Encoding, text: Text, unit: Unit) -> Iterator[tuple[object, ...]]:
    """Give the tokens of each unit a key of their own."""
    ends: dict[int, Sequence[int]] = {}
    place = dict[int, int]()
    for token, (segment, word) in enumerate(zip(encoding.segment_ids, encoding.word_ids, strict=True)):
        if word is None or unit == "token":
            yield segment, None, token
        elif unit == "word":
            yield segment, word, None
        else:
            part = text if isinstance(text, str) else text[segment]
            if segment not in ends:
                ends[segment], place[segment] = [end for _, end in sentences(part)], 0
            start = _first_character(part, *encoding.offsets[token])
            while place[segment] + 1 < len(ends[segment]) and ends[segment][place[segment]] <= start:
                place[segment] += 1
            yield segment, place[segment], None


def _first_character(text: str, start: int, end: int) -> int:
    """Return where a token begins, white space aside: some tokenizers count the space before a word."""
    return start + len(text[start:end]) - len(text[start:end].lstrip())


def describe(several: Sequence[Units], *, bias: bool = False, all_units: bool = True) -> dict[str, Any]:
    """List the units of the texts, in columns of equal length; with a `bias`, a further one for each text.

    Without `all_units`, special tokens and those of a prompt are left out. `token_spans` count the tokens of
    all texts together.
    """
    columns: dict[str, list[Any]] = {"text": [], "offsets": [], "segment": [], "token_spans": []}
    before = 0
    for number, units in enumerate(several):
        tokens = len(units.encoding)
        chosen = range(len(units)) if all_units else units.of_text
        columns["text"] += [units.texts[i] for i in chosen]
        columns["offsets"] += [units.offsets[i] for i in chosen]
        columns["segment"] += [units.segments[i] for i in chosen]
        columns["token_spans"] += [(before + units.starts[i], before + units.starts[i + 1]) for i in chosen]
        if bias:
            end = before + tokens
            columns["text"].append(BIAS)
            columns["offsets"].append((0, 0))
            columns["segment"].append(number if units.segment is None else units.segment)
            columns["token_spans"].append((end, end))
        before += tokens
    return columns


def joined(several: Sequence[Units]) -> Encoding:
    """Join the tokens of several texts, one after the other; the encoding of a single text stays as it is."""
    if len(several) == 1:
        return several[0].encoding
    every = [units.encoding for units in several]

    def column(name: str) -> list[Any]:
        return list(chain.from_iterable(getattr(encoding, name) for encoding in every))

    return Encoding(
        token_ids=column("token_ids"),
        segment_ids=[number for number, encoding in enumerate(every) for _ in range(len(encoding))],
        tokens=column("tokens"),
        offsets=column("offsets"),
        word_ids=column("word_ids"),
        special=column("special"),
        truncated=any(encoding.truncated for encoding in every),
        original_length=sum(encoding.original_length for encoding in every),
    )
