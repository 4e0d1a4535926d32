"""Decides which tokens continue the word before them, as `transformers` does when it labels words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

_UNKNOWN = ("[UNK]", "<unk>")


@dataclass(frozen=True, slots=True)
class Subwords:
    """How a tokenizer tells which tokens continue a word.

    `marked` says that its vocabulary marks the tokens within words, as WordPiece does with "##"; otherwise a
    token continues a word if no space precedes it. `unknown` is the id of its unknown token.
    """

    marked: bool
    unknown: int | None

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Subwords":
        """Read this of a tokenizer; a model without an unknown token may have one among its added tokens."""
        named = getattr(tokenizer.model, "unk_token", None)
        candidates = (tokenizer.token_to_id(name) for name in ((named,) if named else _UNKNOWN))
        unknown = next((found for found in candidates if found is not None), None)
        return cls(bool(getattr(tokenizer.model, "continuing_subword_prefix", None)), unknown)

    def continues(self, tokens: Iterable[tuple[int, str, tuple[int, int]]], text: str) -> Sequence[bool]:
        """Return which tokens continue a word; each is an id, a name and offsets [start, end) in the text.

        The rule is that of `TokenClassificationPipeline.gather_pre_entities` (transformers 5): a marked token
        is longer than its text, and an unknown token begins a word.
        """
        if self.marked:
            return [i != self.unknown and len(name) != end - start for i, name, (start, end) in tokens]
        return [
            i != self.unknown and start > 0 and " " not in text[start - 1 : start + 1]
            for i, _, (start, _) in tokens
        ]
