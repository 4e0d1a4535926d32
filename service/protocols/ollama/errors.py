"""Problems in the form of Ollama: one sentence, in Ollama's words where programs look for these."""

from http import HTTPStatus

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.echo import cut
from service.problems import Problem, SlowInput, error_response
from service.protocols.contract import ALL_BAD_REQUESTS

NO_BODY = "missing request body"
WRONG_INPUT = "invalid input type"
STATUSES = {**ALL_BAD_REQUESTS, "overloaded": HTTPStatus.SERVICE_UNAVAILABLE}
"""Kind of problem -> status; a full queue is a 503."""
_TOO_LONG = "the input length exceeds the context length"


class OllamaError(BaseModel):
    """An error."""

    error: str = Field(description="A sentence that says what is wrong.")


def write_error(problem: Problem, status: HTTPStatus, *_: str) -> Response:
    """Build the response for a problem."""
    return error_response(orjson.dumps({"error": _sentence(problem)}), status, problem.headers)


def _sentence(problem: Problem) -> str:
    if problem.kind == "model-not-found":
        return f"model '{cut(str(problem.members['actual']))}' not found"
    if problem.kind == "input-too-long" and not isinstance(problem, SlowInput):
        return _TOO_LONG
    return problem.sentence
