"""What a text is for: other protocols name purposes where models have prompts."""

from model.contract import ModelInfo, Role
from service.problems import Problem, cut

_PROMPTS = {
    "query": ("query",),
    "passage": ("passage", "document", "corpus"),
    "document": ("document", "passage", "corpus"),
}
_OTHERS = ("classification", "clustering", "separation", "text-matching")
PURPOSES = (*_PROMPTS, "search_query", "search_document", "retrieval.query", "retrieval.passage", *_OTHERS)
"""All purposes that the protocols have; some name the same one with `search_` or `retrieval.` before it."""


def find_prompt(field: str, purpose: str, info: ModelInfo) -> str | None:
    """Return the name of the model's prompt for a purpose, given in `field`; None if it has none for it.

    Raises a Problem for a purpose that neither the protocols nor the model's prompts know, nor, if it is a
    `task`, the model's adapters.
    """
    if purpose in info.prompts:
        return purpose
    tasks = info.tasks if field == "task" else ()
    known = dict.fromkeys((*info.prompts, *tasks, *PURPOSES))
    if purpose not in known:
        raise Problem(
            "invalid-request",
            f'{field} is "{cut(purpose)}", which is no purpose of a text: choose from {", ".join(known)}.',
            members={"field": field, "actual": purpose, "allowed": list(known)},
        )
    names = _PROMPTS.get(_plain(purpose), ())
    return next((name for name in names if name in info.prompts), None)


def role_of(purpose: str) -> Role:
    """Return the role of a text in late interaction, of which whatever is no query is a document."""
    return "query" if _plain(purpose) == "query" else "document"


def _plain(purpose: str) -> str:
    return purpose.removeprefix("search_").removeprefix("retrieval.")
