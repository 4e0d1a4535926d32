"""Plans the sparse vectors of words that a request asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from model.contract import Output, SparseWant
from model.tokenization.decoding import Decoder
from service.engine.engine import Engine
from service.serialization.items import Item
from service.tasks.heads import check_head
from service.tasks.view import View


@dataclass(frozen=True)
class SparseView(View):
    """The plan for one input with a sparse vector, whose words `decoder` names."""

    decoder: Decoder = field(kw_only=True)

    def item(self, output: Output) -> Item:
        """Build this input's response item."""
        item = super().item(output)
        tokens = [self.decoder.name(number) for number in output.heads["sparse_ids"].tolist()]
        return replace(item, columns={**item.columns, "sparse": {"tokens": tokens}})


@dataclass(frozen=True)
class SparsePlan:
    """The sparse vectors of a request: at most `most` of a model's words each, or all above 0."""

    top_k: int | None
    most: int
    decoder: Decoder

    def extend(self, view: View) -> View:
        """Add the sparse vector to what one input returns."""
        words = {"sparse_ids": (self.most,), "sparse_weights": (self.most,)}
        expected = replace(
            view.expected,
            arrays={**view.expected.arrays, **words},
            column_bytes=self.decoder.most_json_bytes(self.most),
        )
        want = replace(view.want, heads=(*view.want.heads, SparseWant(self.top_k)))
        return SparseView(want, view.columns, expected, precision=view.precision, decoder=self.decoder)


def plan_sparse(
    top_k: int | None, engine: Engine, engines: Mapping[str, Engine], needs: str = '"sparse" in outputs'
) -> SparsePlan:
    """Check that a model has sparse vectors; raises OptionError, naming those of `engines` that do.

    `needs` says what of the request needs them.
    """
    words = check_head(engine, engines, "masked_words", needs=needs).size or 0
    return SparsePlan(top_k, words if top_k is None else min(top_k, words), engine.decoder)
