"""One input of a request as it was planned, whichever protocol asked for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from model.contract import Output, Want
from service.serialization.items import Expected, Item, present


@dataclass(frozen=True)
class View:
    """What must be computed of one input, and what its answer says beside the numbers."""

    want: Want
    columns: Mapping[str, Any]
    expected: Expected

    def item(self, output: Output) -> Item:
        """Make the answer to this input."""
        top = output.top
        arrays = present(
            embedding=output.sentence,
            token_embeddings=output.tokens,
            attention=output.attention,
            top_keys=None if top is None else top.keys,
            top_weights=None if top is None else top.weights,
            residual=None if top is None else top.residual,
        )
        return Item(self.columns, arrays, output.summary)
