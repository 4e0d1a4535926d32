"""Refuses models without the head that a task needs."""

from collections.abc import Mapping, Sequence

from model.contract import HeadInfo, HeadKind
from service.echo import cut
from service.engine.engine import Engine
from service.tasks.errors import OptionError

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
            f'The model "{engine.name}" has no {needed}, which {needs} needs: {_way_out(engines, kinds)}.'
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
        return choose_from(having)
    if kinds == ("late_interaction",):
        return "no served model has one; serve a folder of PyLate or of Stanford's ColBERT"
    endings = " or ".join(_CHECKPOINTS[kind] for kind in kinds)
    return f"no served model has one; serve a checkpoint whose architecture in config.json ends in {endings}"
