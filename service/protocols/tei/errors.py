"""Problems in the form of text-embeddings-inference: its types, its statuses and its sentences."""

from http import HTTPStatus
from typing import Literal

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.problems import Problem, SlowInput, error_response

ErrorType = Literal["Backend", "Empty", "Overloaded", "Tokenizer", "Unhealthy", "Validation"]


class TeiError(BaseModel):
    """An error."""

    error: str = Field(description="A sentence that says what to change.")
    error_type: ErrorType


class EmptyInput(Problem):
    """A request without text, for which the original has a status of its own."""

    def __init__(self, what: str, field: str) -> None:
        super().__init__("invalid-request", f"{what} cannot be empty", members={"field": field})


class EmptyList(EmptyInput):
    """A list without items; the original's sentence for it lacks the beginning that others have."""

    def __init__(self, field: str) -> None:
        super().__init__(f"`{field}`", field)


STATUSES = {
    "too-many-inputs": HTTPStatus.UNPROCESSABLE_ENTITY,
    "unsupported": HTTPStatus.FAILED_DEPENDENCY,
    "inference-failed": HTTPStatus.FAILED_DEPENDENCY,
}
"""Kind of problem -> the original's status; all other kinds keep their own."""
_TYPES: dict[str, ErrorType] = {
    "unsupported": "Backend",
    "inference-failed": "Backend",
    "internal-error": "Backend",
    "overloaded": "Overloaded",
    "deadline-exceeded": "Overloaded",
    "not-ready": "Unhealthy",
}
"""Kind of problem -> the original's type of error; for all other kinds it is "Validation"."""


def write_error(problem: Problem, status: HTTPStatus, *_: str) -> Response:
    """Build the response for a problem."""
    kind = _TYPES.get(problem.kind, "Validation")
    if isinstance(problem, EmptyInput):
        status, kind = HTTPStatus.BAD_REQUEST, "Empty"
    body = orjson.dumps({"error": _sentence(problem), "error_type": kind})
    return error_response(body, status, problem.headers)


def _sentence(problem: Problem) -> str:
    """Say what is wrong as the original does, and what to change as we do."""
    members = problem.members
    match problem.kind:
        case "too-many-inputs":
            return f"batch size {members['actual']} > maximum allowed batch size {members['limit']}"
        case "input-too-long" if not isinstance(problem, SlowInput):
            return (
                f"Input validation error: `inputs` must have less than {members['limit']} tokens. Given: "
                f"{members['actual']}"
            )
        case "overloaded":
            return f"Model is overloaded: {problem.sentence}"
        case "unsupported" | "inference-failed":
            return f"Backend error: {problem.sentence}"
        case "invalid-request" if not isinstance(problem, EmptyList):
            return f"Input validation error: {problem.sentence}"
        case _:
            return problem.sentence
