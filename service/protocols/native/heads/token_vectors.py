"""Plans the vectors of tokens, for late interaction, that a request asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from model.contract import Encoding, Output
from model.heads.late_interaction import want_vectors
from service.engine.engine import Engine
from service.protocols.needed_head import check_head
from service.protocols.view import View
from service.serialization.items import Expected, Item, columns


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
        rows = encoding.vector_rows
        shapes = {"token_embeddings": (1, len(rows), self.size)}
        return TokenVectorsView(
            replace(want_vectors(encoding), task=self.task),
            {**columns(index, encoding), "token_rows": rows},
            Expected(shapes, labels=len(rows)),
        )


def plan_token_vectors(engine: Engine, engines: Mapping[str, Engine], task: str | None) -> TokenVectorsPlan:
    """Check that a model is one of late interaction; raises Unsupported, naming those of `engines` that are.

    `task` is as `choose_task` returns it.
    """
    head = check_head(engine, engines, "late_interaction", needs="role")
    return TokenVectorsPlan(head.size or 0, task)
