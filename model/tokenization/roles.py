"""Tokenizes queries and documents for late interaction (Khattab & Zaharia 2020, §3.2).

A marker after the first token tells the two roles apart. Queries may be filled up to a fixed length with the
mask token, which gives them further vectors to search with; some tokens of documents get no vectors.
"""

from collections.abc import Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tokenizers import Tokenizer

from model.choices import TokenPooling
from model.contract import Encoding
from model.errors import CheckpointError, InputTooLong
from model.files import shown
from model.tokenization.long_text import Reserve
from model.tokenization.slow_patterns import SlowPatterns
from model.tokenization.tokenizer import Side, Text, TextTokenizer, Truncation, run_steps

T = TypeVar("T")

_MOST_POOLED = 4096
"""How many tokens of a text may be clustered: the distances of all pairs take 350 megabytes for a moment."""


@dataclass(frozen=True)
class RoleRules:
    """How a text of a role becomes tokens.

    `length` is the most tokens it may have, the marker and special ones included. `marker` is inserted after
    the first token ("": none). A text is filled up to `length`, or only to `filled` tokens, with the token
    `expansion` (None: it is not), to which no token attends unless `attended`. Tokens in `skipped` get no
    vectors, nor does the first one if the role `skips_first`; skipped words outside the vocabulary have no
    effect. With `kept`, no other tokens get vectors. `pooling` makes the vectors fewer. `prompt` is put
    before texts that have no other, whatever the model's default is; None: there is no such rule.
    """

    length: int
    marker: str = ""
    expansion: str | None = None
    attended: bool = False
    skipped: tuple[str, ...] = ()
    skips_first: bool = False
    filled: int | None = None
    prompt: str | None = None
    kept: frozenset[int] | None = None
    pooling: TokenPooling | None = None

    @property
    def hides_expansion(self) -> bool:
        """Whether texts have tokens that no token attends to."""
        return self.expansion is not None and not self.attended


class RoleTokenizer:
    """Tokenizes texts of one role. Several threads may use it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        rules: RoleRules,
        *,
        max_length: int,
        file: Path,
        slow: SlowPatterns | None = None,
        side: Side = "right",
    ) -> None:
        """Look up the tokens of `rules` in the tokenizer of a file.

        `max_length` is what the model reads, and `slow` are the tokenizer's slow expressions. Texts are
        truncated at `side` unless a request names another. Raises CheckpointError for tokens that are not in
        the vocabulary, and for a length without room for text.
        """
        self.max_length = min(rules.length, max_length)
        self._rules = rules
        self._marker, self._expansion = (
            None if token in ("", None) else _number(tokenizer, str(token), file)
            for token in (rules.marker, rules.expansion)
        )
        inserted = int(self._marker is not None)
        special = tokenizer.num_special_tokens_to_add(is_pair=False) + inserted
        if self.max_length <= special:
            raise CheckpointError(
                f"{file}: queries or documents may have {self.max_length} tokens, but {special} special "
                "tokens are added, which leaves no room for text."
            )
        if rules.pooling is not None and self.max_length > _MOST_POOLED:
            raise CheckpointError(
                f"{file}: queries or documents may have {self.max_length} tokens, but "
                f"HierarchicalTokenPooling is served for at most {_MOST_POOLED}: set document_length or "
                "query_length in the transformer's folder."
            )
        self._inserted = inserted
        self._texts = TextTokenizer(tokenizer, self.max_length - inserted, slow=slow, side=side)
        found = (tokenizer.token_to_id(word) for word in rules.skipped)
        self._skipped = frozenset(number for number in found if number is not None)

    @property
    def own_prompt(self) -> str | None:
        """The prompt of a text of the role if no other is chosen, None without a rule."""
        return self._rules.prompt

    @property
    def added(self) -> int:
        """The most tokens that a text may have in addition to its own."""
        return self.max_length if self._expansion is not None else self._inserted

    def encode(
        self, texts: Sequence[Text], truncation: Truncation | None = None, prompt: str = ""
    ) -> list[Encoding]:
        """Tokenize texts as `TextTokenizer.encode` does, for this role."""
        return run_steps(self.encode_in_steps(texts, truncation, prompt))

    def encode_in_steps(
        self,
        texts: Sequence[Text],
        truncation: Truncation | None = None,
        prompt: str = "",
        reserve: Reserve = lambda _: nullcontext(),
    ) -> Generator[None, None, list[Encoding]]:
        """Do what `encode` does, in steps of a few milliseconds; see `TextTokenizer.encode_in_steps`."""
        if truncation is not None and truncation.limit is not None:
            truncation = replace(truncation, limit=truncation.limit - self._inserted)
        try:
            prompt = prompt or self.own_prompt or ""
            encodings = yield from self._texts.encode_in_steps(texts, truncation, prompt, reserve)
        except InputTooLong as error:
            actual, limit = error.actual + self._inserted, error.limit + self._inserted
            raise InputTooLong(field=error.field, actual=actual, limit=limit) from None
        return [self._finished(encoding) for encoding in encodings]

    def _finished(self, encoding: Encoding) -> Encoding:
        """Insert the marker, fill up with the expansion, and choose the tokens with vectors."""
        length = len(encoding) + self._inserted
        width = min(self._rules.filled or self.max_length, self.max_length)
        filled = 0 if self._expansion is None else max(0, width - length)
        ids = self._extended(encoding.token_ids, self._marker, self._expansion, filled)
        marker, expansion = self._rules.marker, self._rules.expansion or ""
        first = int(self._rules.skips_first)
        return replace(
            encoding,
            token_ids=ids,
            segment_ids=self._extended(encoding.segment_ids, 0, 0, filled),
            tokens=self._extended(encoding.tokens, marker, expansion, filled),
            offsets=self._extended(encoding.offsets, (0, 0), (0, 0), filled),
            word_ids=self._extended(encoding.word_ids, None, None, filled),
            special=self._extended(encoding.special, True, True, filled),  # noqa: FBT003
            original_length=encoding.original_length + self._inserted,
            prompt_length=encoding.prompt_length + self._inserted if encoding.prompt_length else 0,
            vector_rows=tuple(i for i in range(first, len(ids)) if self._has_vector(ids[i])),
            token_pooling=self._rules.pooling,
            unattended=0 if self._rules.attended else filled,
        )

    def _has_vector(self, token: int) -> bool:
        kept = self._rules.kept
        return token not in self._skipped and (kept is None or token in kept)

    def _extended(self, column: list[T], marker: T | None, last: T | None, count: int) -> list[T]:
        inserted = [marker] * self._inserted
        return [*column[:1], *inserted, *column[1:], *[last] * count]  # type: ignore[list-item]


def _number(tokenizer: Tokenizer, token: str, file: Path) -> int:
    number: int | None = tokenizer.token_to_id(token)
    if number is None:
        raise CheckpointError(
            f"{file} does not have the token {shown(token)}, which queries or documents of late interaction "
            "need: use the tokenizer that was saved with the model."
        )
    return number
