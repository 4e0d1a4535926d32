"""Plans the sparse vectors of keywords that attention weighs (BM42)."""

from dataclasses import dataclass, field, replace

from model.contract import AttentionWant, Axis, Encoding, ModelInfo, Output
from model.tokenization.decoding import json_bytes
from model.tokenization.keywords import Keyword, KeywordFinder, weigh_keywords
from service.protocols.view import View
from service.serialization.items import Item

_PUNCTUATION_BYTES = 3
"""Of a string in a list in JSON: its quotes and a comma."""


@dataclass(frozen=True)
class KeywordView(View):
    """The plan for one input with a sparse vector of its keywords."""

    keywords: list[Keyword] = field(kw_only=True)
    top_k: int | None = field(kw_only=True)

    def item(self, output: Output) -> Item:
        """Build this input's response item."""
        item = super().item(replace(output, attention=None))
        row = None if output.attention is None else output.attention.reshape(-1)
        arrays, stems = weigh_keywords(self.keywords, row, self.top_k)
        return replace(
            item,
            arrays={**item.arrays, **arrays},
            columns={**item.columns, "sparse": {"tokens": stems}},
        )


@dataclass(frozen=True)
class KeywordPlan:
    """The keywords of a request, `top_k` of each input or all; each has the weight 1 in a query."""

    top_k: int | None
    is_query: bool
    finder: KeywordFinder
    info: ModelInfo
    steps_per_token = 5

    def extend(self, view: View, encoding: Encoding) -> View:
        """Add the sparse vector to what one input returns."""
        keywords = self.finder.find(encoding)
        stems = {keyword.stem for keyword in keywords}
        size = len(stems) if self.top_k is None else min(self.top_k, len(stems))
        expected = replace(
            view.expected,
            arrays={**view.expected.arrays, "sparse_ids": (size,), "sparse_weights": (size,)},
            held_bytes=view.expected.held_bytes + 4 * len(encoding),
            column_bytes=view.expected.column_bytes + sum(json_bytes(s) + _PUNCTUATION_BYTES for s in stems),
        )
        want = view.want
        if not self.is_query:
            want = replace(want, attention=self._attention())
        return KeywordView(
            want, view.columns, expected, precision=view.precision, keywords=keywords, top_k=self.top_k
        )

    def _attention(self) -> AttentionWant:
        """The mean over the last layer's heads of what the first token attends to."""
        last, heads = self.info.layers - 1, tuple(range(self.info.heads))
        return AttentionWant((last,), heads, aggregate="mean", queries=Axis((0,)))
