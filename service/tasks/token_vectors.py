"""Plans the vectors of tokens, for late interaction, that a request asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from model.contract import Encoding, Output
from model.heads.late_interaction import want_vectors
from service.engine.engine import Engine
from service.serialization.items import Expected, Item, columns
from service.tasks.heads import check_head
from service.tasks.view import View


class TokenVectorsView(View):
    """The plan for one input with a role."""

    def item(self, output: Output) -> Item:
        """Build this input's response item."""
        vectors = output.heads["token_vectors"]
        return super().item(replace(output, heads={}, tokens=vectors[None]))


@dataclass(frozen=True)
class TokenVectorsPlan:
    """The vectors of a request's texts, of `size` components each."""

    size: int
    task: str | None

    def view(self, index: int, encoding: Encoding) -> View:
        """Plan one input, which was tokenized for its role."""
        bare, rows = self.bare_view(index, encoding), encoding.vector_rows
        return replace(
            bare,
            columns={**columns(index, encoding), "token_rows": rows},
            expected=replace(bare.expected, labels=len(rows)),
        )

    def bare_view(self, index: int, encoding: Encoding, column_bytes: int = 0) -> View:
        """Plan one input whose item has no columns but its index, in at most `column_bytes` of JSON."""
        shapes = {"token_embeddings": (1, len(encoding.vector_rows), self.size)}
        expected = Expected(shapes, column_bytes=column_bytes)
        return TokenVectorsView(replace(want_vectors(encoding), task=self.task), {"index": index}, expected)


def plan_token_vectors(
    engine: Engine, engines: Mapping[str, Engine], task: str | None, needs: str = "role"
) -> TokenVectorsPlan:
    """Check that a model is one of late interaction; raises OptionError, naming those of `engines` that are.

    `task` is as `choose_task` returns it, and `needs` names the field that needs such a model.
    """
    head = check_head(engine, engines, "late_interaction", needs=needs)
    return TokenVectorsPlan(head.size or 0, task)
