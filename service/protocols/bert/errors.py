"""Problems in the form of bert-as-service, which names Python's exceptions."""

from http import HTTPStatus

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.problems import Problem, error_response
from service.protocols.openai.errors import error_status


class BertError(BaseModel):
    """An error."""

    description: str = Field(description="A sentence that says what to change.")
    type: str = Field(description="The name of an exception.")
    status: int = Field(description="The HTTP status.")


class MissingField(Problem):
    """A request without a field, which is an exception of its own there."""

    def __init__(self, field: str) -> None:
        super().__init__("invalid-request", f"{field} is required.", members={"field": field})


def render_error(problem: Problem, _instance: str, _request_id: str) -> Response:
    """Build the response for a problem: 400 for every request that is not valid, as there."""
    status = error_status(problem.kind)
    body = orjson.dumps(
        {"description": problem.sentence, "type": _exception(problem, status), "status": int(status)}
    )
    return error_response(body, status, problem.headers)


def _exception(problem: Problem, status: HTTPStatus) -> str:
    if isinstance(problem, MissingField):
        return "KeyError"
    if problem.kind == "deadline-exceeded":
        return "TimeoutError"
    return "RuntimeError" if status >= HTTPStatus.TOO_MANY_REQUESTS else "ValueError"
