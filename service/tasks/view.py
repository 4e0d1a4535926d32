"""The plan for one input."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model.contract import Output, Want
from service.tasks.precision import Precision, quantize
from service.tasks.results import VECTORS, Expected, Item, present


@dataclass(frozen=True)
class View:
    """What must be computed for one input, and the columns of its response item."""

    want: Want
    columns: Mapping[str, Any]
    expected: Expected
    precision: Precision = field(default="float32", kw_only=True)
    """Of the vectors of the item."""

    def item(self, output: Output) -> Item:
        """Build this input's response item."""
        top = output.top
        arrays = present(
            embedding=output.sentence,
            token_embeddings=output.tokens,
            attention=output.attention,
            top_keys=None if top is None else top.keys,
            top_weights=None if top is None else top.weights,
            residual=None if top is None else top.residual,
            thumbnails=output.thumbnails,
            **output.heads,
        )
        if self.precision != "float32":
            vectors = VECTORS & arrays.keys()
            arrays |= {name: quantize(arrays[name], self.precision) for name in vectors}
        return Item(self.columns, arrays, output.summary)
