"""Turns our own errors, those of `model/` and those of the framework into responses."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from model.errors import ModelError
from service.http.request_context import context_of
from service.lifecycle import ServiceState
from service.problems import Problem, cut, from_model_error


async def answer_error(request: Request, error: Exception) -> Response:
    """Render an error in the endpoint's format and count it; reraises unexpected errors."""
    problem = _as_problem(request, error)
    state: ServiceState = request.app.state.service
    state.metrics.reject(problem.kind)
    return context_of(request.scope).error(problem)


def _as_problem(request: Request, error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case ModelError():
            return from_model_error(error)
        case HTTPException(status_code=405):
            # The framework names those of one endpoint, and a path may have two.
            methods = request.app.state.endpoints.methods(request.scope["path"])
            allowed = ", ".join(methods) or (error.headers or {}).get("Allow", "")
            detail = f"{cut(request.url.path)} supports {allowed}, not {request.method}."
            return Problem("method-not-allowed", detail, headers={"Allow": allowed})
        case HTTPException(status_code=404):
            return Problem("not-found", f"There is no route {cut(request.url.path)}; /docs lists the routes.")
        case _:
            raise error
