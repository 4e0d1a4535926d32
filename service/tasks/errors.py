"""What is wrong with the options of a task."""

from collections.abc import Callable
from typing import Any, Literal

TABLE = "This model is a table of token vectors, without layers"
"""How errors begin about something that only layers have; `ModelInfo.layers` is then 0."""
ENCODER = "serve an encoder model, such as all-MiniLM-L6-v2"
"""How those errors end."""

Names = Callable[[str], str]
"""Returns what a request calls an option, or an item of one, such as `texts.3`."""


class OptionError(Exception):
    """An option that a model cannot follow, or that others contradict.

    `say` returns the sentence, given the names that the request has for options. `members` describe the fault
    for programs: the value, what is allowed, the limit.
    """

    def __init__(
        self,
        say: Callable[[Names], str],
        *,
        option: str,
        kind: Literal[
            "invalid-request", "unsupported", "too-many-inputs", "explanation-too-large"
        ] = "invalid-request",
        **members: Any,
    ) -> None:
        super().__init__(say(str))
        self.say = say
        self.option = option
        self.kind = kind
        self.members = members
