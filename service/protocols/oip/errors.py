"""Problems in the form of the Open Inference Protocol: one sentence."""

from http import HTTPStatus

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.problems import Problem, error_response
from service.protocols.contract import ALL_BAD_REQUESTS

STATUSES = {**ALL_BAD_REQUESTS, "unsupported-media-type": HTTPStatus.NOT_IMPLEMENTED}
"""Kind of problem -> status; an unknown coding of a body is a 501."""


class InferenceError(BaseModel):
    """An error."""

    error: str = Field(description="A sentence that says what to change.")


def invalid(field: str, sentence: str) -> Problem:
    """Make the 400 for a field; `sentence` is its whole text."""
    return Problem("invalid-request", sentence, members={"field": field})


def write_error(problem: Problem, status: HTTPStatus, *_: str) -> Response:
    """Build the response for a problem."""
    return error_response(orjson.dumps({"error": problem.sentence}), status, problem.headers)
