"""Problems in the form of the Open Inference Protocol: one sentence."""

from http import HTTPStatus

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.problems import KINDS, Problem, error_response


class InferenceError(BaseModel):
    """An error."""

    error: str = Field(description="A sentence that says what to change.")


def invalid(field: str, sentence: str) -> Problem:
    """Make the 400 of a field; `sentence` is the whole of it."""
    return Problem("invalid-request", sentence, members={"field": field})


def error_status(kind: str) -> HTTPStatus:
    """Return the status of a kind of problem: 400 for all that is wrong in a body, 501 for its coding."""
    status = KINDS[kind][0]
    if status == HTTPStatus.UNPROCESSABLE_ENTITY or kind == "too-many-inputs":
        return HTTPStatus.BAD_REQUEST
    return HTTPStatus.NOT_IMPLEMENTED if kind == "unsupported-media-type" else status


def render_error(problem: Problem, _instance: str, _request_id: str) -> Response:
    """Build the response for a problem."""
    body = orjson.dumps({"error": problem.sentence})
    return error_response(body, error_status(problem.kind), problem.headers)
