"""Plans the sparse vectors of words that a request asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from model.contract import Encoding, Output, Role, SparseWant
from model.errors import Unsupported
from model.tokenization.decoding import Decoder
from service.engine.engine import Engine
from service.protocols.native.encode_plan import check_exposes
from service.protocols.native.heads.keywords import KeywordPlan
from service.protocols.needed_head import check_head
from service.protocols.view import View
from service.serialization.items import Item


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
    steps_per_token = 0

    def extend(self, view: View, _encoding: Encoding) -> View:
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
    top_k: int | None,
    role: Role | None,
    engine: Engine,
    engines: Mapping[str, Engine],
    needs: str = '"sparse" in outputs',
) -> "SparsePlan | KeywordPlan":
    """Check that a model has sparse vectors; raises Unsupported, naming those of `engines` that do.

    `needs` says what of the request needs them.
    """
    head = check_head(engine, engines, "masked_words", "keywords", needs=needs)
    if engine.keywords is not None and head.kind == "keywords":
        check_exposes(engine.info, "attention", "model")
        return KeywordPlan(top_k, role == "query", engine.keywords, engine.info)
    if role is not None:
        raise Unsupported(
            f'role is "{role}", and this model makes the same sparse vector of a query as of a document: '
            "leave it out.",
            field="role",
        )
    words = head.size or 0
    return SparsePlan(top_k, words if top_k is None else min(top_k, words), engine.decoder)
