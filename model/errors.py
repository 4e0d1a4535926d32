"""Everything that can go wrong in `model/`.

    ModelError
    ├── CheckpointError     a folder that cannot be served: what is wrong with it, in one sentence
    ├── InputError          one input that cannot be run
    │   ├── InputTooLong    more tokens than the model reads, and the caller asked for no truncation
    │   └── OutOfRange      an index (layer, head, position) that this model or input does not have
    ├── Unsupported         the request is sound, but this model cannot do it
    ├── OutOfMemory         the device has not enough memory for a batch; a smaller one may do
    └── InferenceError      the computation of one input failed

The service maps these to HTTP in one table (`service/problems.py`).
"""

from collections.abc import Sequence


class ModelError(Exception):
    """The root of the tree."""


class CheckpointError(ModelError):
    """A folder that cannot be served; the message names it and what to change."""


class InputError(ModelError):
    """One input that cannot be run. `field` is its place in the request, such as `inputs.3`."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class InputTooLong(InputError):
    """An input of `actual` tokens where the model reads `limit`."""

    def __init__(self, *, field: str, actual: int, limit: int) -> None:
        super().__init__(
            f"{field} is {actual} tokens long and the model reads {limit}: shorten it, "
            'or leave out "truncate": false to have it cut.',
            field=field,
        )
        self.actual = actual
        self.limit = limit


class OutOfRange(InputError):
    """An index that does not exist; `allowed` is the inclusive range that does."""

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
    """The device has not enough memory for a batch; a smaller one may do."""


class InferenceError(ModelError):
    """The computation of one input failed."""
