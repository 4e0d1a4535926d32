"""Turns our own errors and those of `model/` into responses; and what wrong methods get."""

from starlette.requests import Request
from starlette.responses import Response

from model.errors import ModelError
from service.echo import cut
from service.http.request_context import context_of
from service.lifecycle import ServiceState
from service.problems import Problem, from_model_error


def answer_error(request: Request, error: Problem | ModelError) -> Response:
    """Render an error in the endpoint's format and count it."""
    problem = error if isinstance(error, Problem) else from_model_error(error)
    state: ServiceState = request.app.state.service
    state.metrics.reject(problem.kind)
    return context_of(request.scope).error(problem)


def wrong_method(request: Request) -> Problem:
    """Make the 405, with the methods that the path has."""
    path = request.scope["path"]
    allowed = ", ".join(request.app.state.endpoints.methods(path))
    detail = f"{cut(path)} supports {allowed}, not {request.method}."
    return Problem("method-not-allowed", detail, headers={"Allow": allowed})
