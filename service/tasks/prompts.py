"""The prompt and the adapter that texts run with, and what a text is for.

Some protocols name the purpose of a text where models name a prompt.
"""

from collections.abc import Sequence

from model.contract import ModelInfo, Role
from service.echo import cut
from service.tasks.errors import OptionError

_PROMPTS = {
    "query": ("query",),
    "passage": ("passage", "document", "corpus"),
    "document": ("document", "passage", "corpus"),
}
_OTHERS = ("classification", "clustering", "separation", "text-matching")
PURPOSES = (*_PROMPTS, "search_query", "search_document", "retrieval.query", "retrieval.passage", *_OTHERS)
"""All purposes that the protocols have; some name the same one with `search_` or `retrieval.` before it."""


def choose_prompt(info: ModelInfo, name: str | None = None, prompt: str | None = None) -> str:
    """Return the text to put before the inputs: `prompt`, the prompt with this name, or the model's default.

    Raises OptionError for an unknown name.
    """
    if prompt is not None:
        return prompt
    name = name if name is not None else info.default_prompt_name
    if name is None:
        return ""
    if name not in info.prompts:
        known = ", ".join(info.prompts)
        end = (
            f"which is not one of the model's prompts: choose from {known}."
            if known
            else "and this model has no prompts: leave it out."
        )
        raise OptionError(
            lambda named: f'{named("prompt_name")} is "{name}", {end}',
            option="prompt_name",
            actual=name,
            allowed=list(info.prompts),
        )
    return info.prompts[name]


def check_prompt(info: ModelInfo, texts: Sequence[str | tuple[str, str]], prompt: str) -> None:
    """Raise OptionError for a prompt if pairs are read in a template that has no place for it."""
    if prompt and not info.pairs_take_prompt and any(not isinstance(text, str) for text in texts):
        raise OptionError(
            lambda name: (
                f"{name('prompt')} has no place in the chat template that this model uses for pairs: leave "
                "it out."
            ),
            option="prompt",
            kind="unsupported",
        )


def choose_task(info: ModelInfo, task: str | None) -> str | None:
    """Return the task whose adapter the inputs run with; raises OptionError for one that a model lacks."""
    if task is None:
        return info.default_task
    if not info.tasks:
        raise OptionError(
            lambda name: (
                f'{name("task")} is "{cut(task)}", and this model has no adapters for tasks: leave it out.'
            ),
            option="task",
            kind="unsupported",
        )
    if task not in info.tasks:
        raise OptionError(
            lambda name: (
                f'{name("task")} is "{cut(task)}", which is not one of the model\'s tasks: choose '
                f"from {', '.join(info.tasks)}."
            ),
            option="task",
            actual=task,
            allowed=list(info.tasks),
        )
    return task


def find_prompt(option: str, purpose: str, info: ModelInfo) -> str | None:
    """Return the name of the model's prompt for a purpose, given in `option`; None if it has none for it.

    Raises OptionError for a purpose that neither the protocols nor the model's prompts know, nor, if it is a
    `task`, the model's adapters.
    """
    if purpose in info.prompts:
        return purpose
    tasks = info.tasks if option == "task" else ()
    known = dict.fromkeys((*info.prompts, *tasks, *PURPOSES))
    if purpose not in known:
        raise OptionError(
            lambda name: (
                f'{name(option)} is "{cut(purpose)}", which is not a known purpose: choose from '
                f"{', '.join(known)}."
            ),
            option=option,
            actual=purpose,
            allowed=list(known),
        )
    return _name_for(_plain(purpose), info)


def prompt_for(role: Role, info: ModelInfo) -> str:
    """Return the prompt that a bi-encoder reads before a query or a document."""
    return info.prompts.get(_name_for(role, info) or "", "")


def _name_for(purpose: str, info: ModelInfo) -> str | None:
    return next((name for name in _PROMPTS.get(purpose, ()) if name in info.prompts), None)


def _plain(purpose: str) -> str:
    return purpose.removeprefix("search_").removeprefix("retrieval.")
