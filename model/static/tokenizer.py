"""Tokenizes texts as the libraries of token tables do: without special tokens around them."""

import json
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from statistics import median

from tokenizers import Tokenizer

from model.contract import Encoding
from model.tokenization.long_text import Reserve
from model.tokenization.shortening import without_token
from model.tokenization.tokenizer import Text, TextTokenizer, Truncation, run_steps


class StaticTokenizer(TextTokenizer):
    """A tokenizer that drops the token `dropped` after a text is cut, and that may cut texts by characters.

    model2vec cuts a text first to `most_characters`, and then to the limit in tokens. Where a text must stay
    whole, because the request does not let it be cut or reads it in windows, only tokens count. Both fields
    are None for tables that sentence-transformers has saved.
    """

    dropped: int | None = None
    most_characters: int | None = None

    def encode(
        self, texts: Sequence[Text], truncation: Truncation | None = None, prompt: str = ""
    ) -> list[Encoding]:
        """Tokenize texts; see `TextTokenizer.encode`."""
        if self._cuts(texts, truncation, prompt):
            return run_steps(self.encode_in_steps(texts, truncation, prompt))
        return super().encode(texts, truncation, prompt)

    def encode_in_steps(
        self,
        texts: Sequence[Text],
        truncation: Truncation | None = None,
        prompt: str = "",
        reserve: Reserve = lambda _: nullcontext(),
    ) -> Generator[None, None, list[Encoding]]:
        """Tokenize texts in steps; see `TextTokenizer.encode_in_steps`."""
        encodings = yield from super().encode_in_steps(texts, truncation, prompt, reserve)
        for index in self._cuts(texts, truncation, prompt):
            whole, text = encodings[index], str(texts[index])
            part = text[: max(0, (self.most_characters or 0) - len(prompt))]
            (cut,) = yield from super().encode_in_steps([part], truncation, prompt, reserve)
            encodings[index] = replace(cut, truncated=True, original_length=whole.original_length)
        return encodings

    def _cuts(self, texts: Sequence[Text], truncation: Truncation | None, prompt: str) -> list[int]:
        """Return which texts are cut by their characters."""
        most, asked = self.most_characters, truncation or Truncation()
        # A text that is cut on the left keeps its end, which is not among its first characters.
        if most is None or not asked.allowed or asked.most is not None or asked.side == "left":
            return []
        sized = ((i, len(prompt) + len(text)) for i, text in enumerate(texts) if isinstance(text, str))
        return [i for i, size in sized if size > most]

    def _finished(self, encoding: Encoding, index: int, truncation: Truncation) -> Encoding:
        encoding = super()._finished(encoding, index, truncation)
        if self.dropped is None or self.dropped not in encoding.token_ids:
            return encoding
        return without_token(encoding, self.dropped)


def unknown_token(tokenizer: Tokenizer) -> int | None:
    """Return the id of a tokenizer's unknown token, None if it has none, as model2vec finds it."""
    if hasattr(tokenizer.model, "unk_token"):
        name = tokenizer.model.unk_token
        return None if name is None else tokenizer.token_to_id(name)
    number: int | None = json.loads(tokenizer.to_str())["model"].get("unk_id")
    return number


def median_length(tokenizer: Tokenizer) -> int:
    """Return the median length of a tokenizer's tokens, in characters, rounded down."""
    return int(median(map(len, tokenizer.get_vocab())))
