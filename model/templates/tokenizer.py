"""Tokenizes the pairs of a reranker whose query and document stand in a chat template.

A rendered pair is one text without special tokens around it, and is truncated as one. The tokens that the
template ends with then replace the last ones, since the model predicts from them, as in
sentence-transformers 6, `Transformer._restore_chat_template_suffix`.
"""

import json
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import takewhile
from sys import maxsize

from tokenizers import Tokenizer

from model.contract import Encoding
from model.errors import CheckpointError
from model.templates.places import PairTemplate, Rendered
from model.tokenization.long_text import Reserve
from model.tokenization.tokenizer import Text, TextTokenizer, Truncation, run_steps

_FILLERS = ("0", "1 2 3 4")
Suffix = list[tuple[int, str]]
"""The ids and the names of the last tokens of a template."""


class TemplateTokenizer(TextTokenizer):
    """Tokenizes pairs in a template, with the prompt as instruction, and single texts like any tokenizer."""

    _template: PairTemplate
    _plain: TextTokenizer

    def use(self, template: PairTemplate) -> None:
        """Tokenize pairs in a template; raises CheckpointError if the limit leaves no room for texts."""
        self._template = template
        bare = without_special_tokens(self._whole)
        self._plain = TextTokenizer(bare, self.max_length, slow=self.slow, side=self.side)
        self.added = len(self._whole.encode(template.render("", "", "").text, add_special_tokens=False))
        if self.added >= self.max_length:
            raise CheckpointError(
                f"has {self.added} tokens, but the model reads at most {self.max_length}, which leaves no "
                "room for a query and a document: use a shorter template, or raise the limit"
            )

    @property
    def pairs_take_prompt(self) -> bool:
        """Whether the template has a place for a prompt."""
        return self._template.takes_prompt

    def encode(
        self, texts: Sequence[Text], truncation: Truncation | None = None, prompt: str = ""
    ) -> list[Encoding]:
        """Tokenize texts, or pairs in the template with `prompt` as the instruction."""
        if _pairs(texts):
            return run_steps(self.encode_in_steps(texts, truncation, prompt))
        return super().encode(texts, truncation, prompt)

    def encode_in_steps(
        self,
        texts: Sequence[Text],
        truncation: Truncation | None = None,
        prompt: str = "",
        reserve: Reserve = lambda _: nullcontext(),
    ) -> Generator[None, None, list[Encoding]]:
        """Do what `encode` does, in steps of a few milliseconds."""
        pairs = _pairs(texts)
        if not pairs:
            return (yield from super().encode_in_steps(texts, truncation, prompt, reserve))
        rendered = [self._template.render(prompt, *pair) for pair in pairs]
        whole = [one.text for one in rendered]
        encodings = yield from self._plain.encode_in_steps(whole, truncation, "", reserve)
        limit = min(self.max_length, (truncation and truncation.limit) or self.max_length)
        cut = any(len(encoding) >= limit for encoding in encodings)
        suffix = (yield from self._find_suffix(prompt, reserve)) if cut else []
        found = []
        for one, encoding in zip(rendered, encodings, strict=True):
            found.append(_apart(one, encoding, suffix if len(encoding) >= limit else []))
            yield
        return found

    def _find_suffix(self, instruction: str, reserve: Reserve) -> Generator[None, None, Suffix]:
        """Return the tokens that the template ends with, whatever the texts are.

        As in the library, these are the last tokens that two different pairs have in common.
        """
        if not self._template.suffixed:
            return []
        whole = [self._template.render(instruction, one, one).text for one in _FILLERS]
        first, second = yield from self._plain.encode_in_steps(whole, Truncation(most=maxsize), "", reserve)
        ends = zip(reversed(first.token_ids), reversed(second.token_ids), strict=False)
        count = sum(1 for _ in takewhile(lambda both: both[0] == both[1], ends))
        tokens = list(zip(first.token_ids, first.tokens, strict=True))
        return tokens[len(tokens) - count :]


def _pairs(texts: Sequence[Text]) -> list[tuple[str, str]]:
    """Return the texts if they are pairs, else nothing: they are all of one kind."""
    return [text for text in texts if not isinstance(text, str)]


def _apart(rendered: Rendered, encoding: Encoding, suffix: Suffix) -> Encoding:
    """Count offsets and words from the start of each text, and write the suffix over the last tokens."""
    kept = max(0, len(encoding) - len(suffix))
    ids, tokens = encoding.token_ids[:kept], encoding.tokens[:kept]
    for number, token in suffix[kept - len(encoding) :]:
        ids.append(number)
        tokens.append(token)
    segments, offsets, words, special = [], [], [], []
    segment, first = 0, dict[int, int]()
    for number, ((start, end), word) in enumerate(zip(encoding.offsets, encoding.word_ids, strict=True)):
        span = None if number >= kept else _span(rendered, start, end)
        offset, counted = (0, 0), None
        if span is not None:
            begin, stop, segment, skipped = span
            offset = (max(start, begin) - begin + skipped, min(end, stop) - begin + skipped)
            counted = None if word is None else word - first.setdefault(segment, word)
        segments.append(segment)
        offsets.append(offset)
        words.append(counted)
        special.append(span is None)
    return replace(
        encoding,
        token_ids=ids,
        tokens=tokens,
        segment_ids=segments,
        offsets=offsets,
        word_ids=words,
        special=special,
    )


def _span(rendered: Rendered, start: int, end: int) -> tuple[int, int, int, int] | None:
    return next((span for span in rendered.spans if start < span[1] and end > span[0]), None)


def without_special_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that adds no tokens to a text: a copy, unless it is one already."""
    if not tokenizer.num_special_tokens_to_add(is_pair=False):
        return tokenizer
    return Tokenizer.from_str(json.dumps({**json.loads(tokenizer.to_str()), "post_processor": None}))
