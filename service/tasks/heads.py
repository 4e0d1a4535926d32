"""What heads make besides the vectors of an encoder: sparse vectors of words, and vectors of tokens.

Refuses models without the head that a task needs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from model.contract import Encoding, HeadInfo, HeadKind, SparseWant
from model.heads.late_interaction import want_vectors
from model.tokenization.decoding import Decoder
from service.echo import cut
from service.engine.engine import Engine
from service.tasks.errors import OptionError
from service.tasks.results import COLUMNS, Column, Expected, Item, columns
from service.tasks.view import View

_LISTED = 10
_CHECKPOINTS: dict[HeadKind, str] = {
    "classification": "SequenceClassification",
    "token_classification": "TokenClassification",
    "masked_words": "MaskedLM",
}
"""How the architecture of a checkpoint with each kind of head ends."""


def check_head(
    engine: Engine, engines: Mapping[str, Engine], *kinds: HeadKind, needs: str = "this route"
) -> HeadInfo:
    """Return the head of a model if it is of one of these kinds, which what `needs` names needs.

    Raises OptionError for any other model, naming those of the served `engines` that have such a head, or
    what kind of checkpoint does.
    """
    head = engine.info.head
    if head is not None and head.kind in kinds:
        return head
    needed = " or ".join(f"{kind} head" for kind in kinds)
    raise OptionError(
        lambda _: (
            f'The model "{engine.name}" has no {needed}, which {needs} needs{_way_out(engines, kinds)}.'
        ),
        option="model",
        kind="unsupported",
    )


def choose_from(names: Sequence[str]) -> str:
    """Name the served models to choose from in an error, the first ten of them."""
    more = "" if len(names) <= _LISTED else f" and {len(names) - _LISTED} more"
    return f"choose from {', '.join(map(cut, names[:_LISTED]))}{more}"


def _way_out(engines: Mapping[str, Engine], kinds: tuple[HeadKind, ...]) -> str:
    having = [name for name, each in engines.items() if each.info.head and each.info.head.kind in kinds]
    if having:
        return f": {choose_from(having)}"
    if kinds == ("late_interaction",):
        return ", and no other served model has one: serve a folder of PyLate or of Stanford's ColBERT"
    endings = " or ".join(_CHECKPOINTS[kind] for kind in kinds)
    return (
        ", and no other served model has one: serve a checkpoint whose architecture in config.json ends in "
        f"{endings}"
    )


@dataclass(frozen=True, slots=True)
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
        return replace(view, want=want, expected=expected, finish=self._name_words)

    def _name_words(self, item: Item) -> Item:
        tokens = [self.decoder.name(number) for number in item.arrays["sparse_ids"].tolist()]
        return replace(item, columns={**item.columns, "sparse": {"tokens": tokens}})


def plan_sparse(
    top_k: int | None, engine: Engine, engines: Mapping[str, Engine], needs: str = '"sparse" in outputs'
) -> SparsePlan:
    """Check that a model has sparse vectors; raises OptionError, naming those of `engines` that do.

    `needs` says what of the request needs them.
    """
    words = check_head(engine, engines, "masked_words", needs=needs).size or 0
    return SparsePlan(top_k, words if top_k is None else min(top_k, words), engine.decoder)


@dataclass(frozen=True, slots=True)
class TokenVectorsPlan:
    """The vectors of a request's texts, of `size` components each."""

    size: int
    task: str | None
    columns: Sequence[Column] = COLUMNS

    def view(self, index: int, encoding: Encoding) -> View:
        """Plan one input, which was tokenized for its role."""
        rows = encoding.vector_rows
        shapes = {"token_embeddings": (1, len(rows), self.size)}
        item_columns = {**columns(index, encoding, self.columns), "token_rows": rows}
        want = replace(want_vectors(encoding), task=self.task)
        expected = Expected(shapes, encoding, len(rows), columns=self.columns)
        return View(want, item_columns, expected, finish=_name_vectors)


def _name_vectors(item: Item) -> Item:
    return replace(item, arrays={"token_embeddings": item.arrays["token_vectors"][None]})


def plan_token_vectors(
    engine: Engine, engines: Mapping[str, Engine], task: str | None, chosen: Sequence[Column] = COLUMNS
) -> TokenVectorsPlan:
    """Check that a model is one of late interaction; raises OptionError, naming those of `engines` that are.

    `task` is as `choose_task` returns it, and `chosen` are the columns of tokens.
    """
    head = check_head(engine, engines, "late_interaction", needs="role")
    return TokenVectorsPlan(head.size or 0, task, chosen)
