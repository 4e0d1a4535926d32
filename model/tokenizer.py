"""Text -> Encoding: token ids, and where each token comes from in the text."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenizers import Encoding as RawEncoding
from tokenizers import Tokenizer, normalizers

from model.errors import CheckpointError, InputTooLong
from model.tokenizer_file import read_tokenizer
from model.types import Encoding

Text = str | tuple[str, str]
"""One input: a text, or a text and its pair."""
Side = Literal["right", "left"]


@dataclass(frozen=True)
class Truncation:
    """What happens to inputs longer than the model reads: cut at a side, or refused."""

    allowed: bool = True
    side: Side = "right"


class TextTokenizer:
    """A `tokenizer.json` with the model's own limit. Safe to use from several threads.

    The file's own truncation and padding are set aside: they are settings of whoever saved it (128
    tokens, padded, in the embedded model's), not of the model.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.max_length = max_length
        self._whole = tokenizer
        self._cut: dict[Side, Tokenizer] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_file(cls, path: Path, *, max_length: int, lower_case: bool = False) -> "TextTokenizer":
        """Read a `tokenizer.json`; raises CheckpointError. `lower_case` lowers the text first."""
        tokenizer = read_tokenizer(path)
        special = tokenizer.num_special_tokens_to_add(is_pair=True)
        if max_length <= special:
            raise CheckpointError(
                f"{path}: the model reads {max_length} tokens and {special} are special: no room for text."
            )
        if lower_case:
            present = [tokenizer.normalizer] if tokenizer.normalizer is not None else []
            tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *present])
        return cls(tokenizer, max_length)

    @property
    def vocab_size(self) -> int:
        """One more than the largest token id."""
        return max(self._whole.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def encode(
        self, texts: Sequence[Text], truncation: Truncation | None = None, prompt: str = ""
    ) -> list[Encoding]:
        """Tokenize texts or pairs, `prompt` put before each (first) text.

        Raises InputTooLong for the first input beyond `max_length` when `truncation` does not allow it.
        """
        truncation = truncation or Truncation()
        prompted = [_prepend(prompt, text) for text in texts]
        # encode_batch also for one text: unlike encode, it lets other threads run meanwhile.
        whole = self._whole.encode_batch(prompted)
        whole.reverse()
        encodings = []
        for i, text in enumerate(prompted):
            raw = whole.pop()
            length, first_word = len(raw), _first_word(raw, len(prompt)) if prompt else 0
            if length > self.max_length:
                if not truncation.allowed:
                    raise InputTooLong(field=f"inputs.{i}", actual=length, limit=self.max_length)
                del raw  # of a long text it takes hundreds of times its bytes, and the same is needed again
                raw = self._cutting(truncation.side).encode_batch([text])[0]
            encodings.append(_columns(raw, length, first_word, prompt))
        return encodings

    def _cutting(self, side: Side) -> Tokenizer:
        """Give the tokenizer that cuts at a side: a copy of some megabytes, made when it is first needed."""
        with self._lock:
            if side not in self._cut:
                self._cut[side] = _with_truncation(self._whole, self.max_length, side)
            return self._cut[side]


def _with_truncation(tokenizer: Tokenizer, max_length: int, side: str) -> Tokenizer:
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.enable_truncation(max_length, strategy="longest_first", direction=side)
    return copy


def _prepend(prompt: str, text: Text) -> Text:
    if not prompt:
        return text
    return prompt + text if isinstance(text, str) else (prompt + text[0], text[1])


def _columns(raw: RawEncoding, length: int, first_word: int, prompt: str) -> Encoding:
    """Take a tokenized input apart into our columns.

    `length` are its tokens before it was cut, and `first_word` is the first word of it behind the prompt.
    """
    sequence_ids: list[int | None] = raw.sequence_ids
    special = [s is None for s in sequence_ids]
    offsets = [(0, 0) if s else o for s, o in zip(special, raw.offsets, strict=True)]
    word_ids = [None if s else w for s, w in zip(special, raw.word_ids, strict=True)]
    prompt_length = 0
    if prompt:
        prompt_length = _set_prompt_apart(len(prompt), first_word, sequence_ids, offsets, word_ids)
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
    """Count the words of the prompt: the text's words are numbered on from there."""
    columns = zip(whole.sequence_ids, whole.offsets, whole.word_ids, strict=True)
    return next((w for s, (_, end), w in columns if s == 0 and end > characters and w is not None), 0)


def _set_prompt_apart(
    characters: int,
    first_word: int,
    sequence_ids: Sequence[int | None],
    offsets: list[tuple[int, int]],
    word_ids: list[int | None],
) -> int:
    """Make offsets and words count from the start of the text, in place; return the prompt's length.

    A token that reaches from the prompt into the text belongs to the text.
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
    """Say which text each token belongs to, also for tokenizers that do not tell the model.

    A special token belongs to the text before it, the first one to the first text.
    """
    if any(type_ids) or 1 not in sequence_ids:
        return type_ids
    segments, current = [], 0
    for sequence in sequence_ids:
        current = current if sequence is None else sequence
        segments.append(current)
    return segments
