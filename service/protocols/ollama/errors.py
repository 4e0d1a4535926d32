"""Problems in the form of Ollama: one sentence, in its own words where programs look for them."""

from http import HTTPStatus

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.echo import cut
from service.problems import KINDS, Problem, SlowInput, error_response

NO_BODY = "missing request body"
WRONG_INPUT = "invalid input type"
_TOO_LONG = "the input length exceeds the context length"


class OllamaError(BaseModel):
    """An error."""

    error: str = Field(description="A sentence that says what is wrong.")


def error_status(kind: str) -> HTTPStatus:
    """Return the status of a kind of problem: 400 for all that is wrong in a body, 503 for a full queue."""
    status = KINDS[kind][0]
    if status == HTTPStatus.UNPROCESSABLE_ENTITY or kind == "too-many-inputs":
        return HTTPStatus.BAD_REQUEST
    return HTTPStatus.SERVICE_UNAVAILABLE if kind == "overloaded" else status


def render_error(problem: Problem, _instance: str, _request_id: str) -> Response:
    """Build the response for a problem."""
    body = orjson.dumps({"error": _sentence(problem)})
    return error_response(body, error_status(problem.kind), problem.headers)


def _sentence(problem: Problem) -> str:
    if problem.kind == "model-not-found":
        return f"model '{cut(str(problem.members['actual']))}' not found"
    if problem.kind == "input-too-long" and not isinstance(problem, SlowInput):
        return _TOO_LONG
    return problem.sentence
