"""Problems in the form of OpenAI, with the members that the clients of Jina, Voyage and Cohere read."""

from http import HTTPStatus

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.problems import Problem, error_response


class OpenAIErrorObject(BaseModel):
    """What is wrong."""

    message: str = Field(description="A sentence that says what to change.")
    type: str
    param: str | None = Field(description="The field.")
    code: str | None


class OpenAIError(BaseModel):
    """An error. `detail`, `message` and `id` are for clients that do not read `error`."""

    error: OpenAIErrorObject
    detail: str
    message: str
    id: str = Field(description="The id of the request.")


# The SDK retries a 5xx, and these kinds would be computed again in vain.
_NOT_AGAIN = frozenset(("deadline-exceeded", "inference-failed"))
_CODES = {
    "unauthorized": "invalid_api_key",
    "model-not-found": "model_not_found",
    "overloaded": "rate_limit_exceeded",
}


def write_error(problem: Problem, status: HTTPStatus, _instance: str, request_id: str) -> Response:
    """Build the response for a problem."""
    sentence = problem.sentence
    field = problem.members.get("field")
    error = {
        "message": sentence,
        "type": _type(status),
        "param": field if isinstance(field, str) else None,
        "code": _CODES.get(problem.kind),
    }
    headers = dict(problem.headers)
    if problem.kind in _NOT_AGAIN:
        headers["x-should-retry"] = "false"
    body = orjson.dumps({"error": error, "detail": sentence, "message": sentence, "id": request_id})
    return error_response(body, status, headers)


def _type(status: HTTPStatus) -> str:
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "requests"
    if status == HTTPStatus.UNAUTHORIZED:
        return "authentication_error"
    return "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
