"""The plan for one input."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from model.contract import Output, Want
from service.tasks.precision import Precision, quantize
from service.tasks.results import SUMMARY, VECTORS, Expected, Item


@dataclass(slots=True)
class View:
    """What must be computed for one input, and the columns of its response item."""

    want: Want
    columns: Mapping[str, Any]
    expected: Expected
    precision: Precision = field(default="float32", kw_only=True)
    """Of the vectors of the item."""
    finish: Callable[[Item], Item] | None = field(default=None, kw_only=True)
    """What is made of the item, whose arrays include those of the wanted heads."""

    def item(self, output: Output) -> Item:
        """Build this input's response item."""
        found: dict[str, NDArray[Any] | None] = {
            "embedding": output.sentence,
            "token_embeddings": output.tokens,
            "attention": output.attention,
        }
        if output.top is not None:
            top = output.top
            found |= {"top_keys": top.keys, "top_weights": top.weights, "residual": top.residual}
        found |= {"thumbnails": output.thumbnails, **output.heads}
        if output.summary is not None:
            found |= {SUMMARY + name: array for name, array in output.summary.items()}
        arrays = {name: array for name, array in found.items() if array is not None}
        if self.precision != "float32":
            arrays |= {name: quantize(arrays[name], self.precision) for name in VECTORS & arrays.keys()}
        item = Item(self.columns, arrays)
        return item if self.finish is None else self.finish(item)
