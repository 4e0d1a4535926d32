"""Everything that can go wrong in `model/`.

    ModelError
    ├── CheckpointError     a folder that cannot be served; the message says what is wrong with it
    ├── InputError          one input that cannot be run
    │   ├── InputTooLong    more tokens than the model reads, and the caller turned truncation off
    │   ├── InputTooSlow    a text that the tokenizer would take too long for
    │   ├── NoTokens        a text that leaves no token to run
    │   └── OutOfRange      an index (layer, head, position) that this model or input does not have
    ├── Unsupported         the request is valid, but this model cannot do it
    ├── OutOfMemory         the device lacks the memory for a batch; a smaller batch may fit
    ├── Stopped             a pass ended early, because it was asked to
    └── InferenceError      the computation of one input failed
        └── NotFinite       it gave NaN or infinity

The service maps these to HTTP in one table (`service/problems.py`).
"""

from collections.abc import Sequence


class ModelError(Exception):
    """The root of the tree."""


class CheckpointError(ModelError):
    """A folder that cannot be served; the message names the folder and what to change."""


class InputError(ModelError):
    """One input that cannot be run. `field` locates it in the request, for example `inputs.3`."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class InputTooLong(InputError):
    """An input of `actual` tokens for a model that reads at most `limit`.

    `advice` says how to have it cut, for callers whose option is not `truncate`; "" if they have none.
    `way_out` says what to do instead of shortening or cutting it. Callers may set both, as they set `field`.
    """

    def __init__(
        self, *, field: str, actual: int, limit: int, advice: str = 'leave out "truncate": false'
    ) -> None:
        super().__init__("", field=field)
        self.actual = actual
        self.limit = limit
        self.advice = advice
        self.way_out = ""

    def __str__(self) -> str:
        shorten = f"shorten it, or {self.advice} to have it cut" if self.advice else "shorten it"
        way_out = self.way_out or shorten
        return (
            f"{self.field} is {self.actual} tokens long, but the model reads at most {self.limit}: {way_out}."
        )


class InputTooSlow(InputError):
    """An input with long runs of characters, such as spaces, that the tokenizer would search for too long.

    It has `actual` of them; `limit` in a row are allowed. `expression` would take about `seconds` for all.
    """

    def __init__(
        self, *, field: str, what: str, actual: int, limit: int, expression: str, seconds: float
    ) -> None:
        super().__init__(
            f"An input has {actual} {what} in long runs, in which the tokenizer would need {seconds:.2g} s "
            f"to search for {expression}; at most {limit} in a row are allowed: shorten these runs, or the "
            "text.",
            field=field,
        )
        self.actual = actual
        self.limit = limit


class NoTokens(InputError):
    """A text that the tokenizer turns into no tokens, as some tokenizers do with an empty text."""

    def __init__(self, *, field: str) -> None:
        super().__init__(
            f"{field} has no tokens: this model's tokenizer turns it into nothing; leave it out, or send a "
            "text with words.",
            field=field,
        )


class OutOfRange(InputError):
    """An index that does not exist; `allowed` is the inclusive range of those that do."""

    def __init__(self, message: str, *, field: str, actual: int, allowed: Sequence[int]) -> None:
        super().__init__(message, field=field)
        self.actual = actual
        self.allowed = list(allowed)


class Unsupported(ModelError):
    """This model cannot do what was asked; `field` names the option."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class OutOfMemory(ModelError):
    """The device lacks the memory for a batch; a smaller batch may fit."""


class Stopped(ModelError):
    """A pass ended early, because `Progress.stop` was called; it has no results."""

    def __init__(self) -> None:
        super().__init__("the pass was stopped, because its results are no longer needed")


class InferenceError(ModelError):
    """The computation of one input failed."""


class NotFinite(InferenceError):
    """The model produced NaN or infinity for one input, by itself or because of changes made to the run."""
