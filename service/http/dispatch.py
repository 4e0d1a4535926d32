"""Finds the handler of a request, and turns our own errors and those of `model/` into responses."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from model.errors import ModelError
from service.echo import cut
from service.http.request_context import RequestContext, context_of
from service.http.unknown_routes import no_route
from service.problems import Problem, from_model_error


async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request whose endpoint the middleware has looked up."""
    request, context = Request(scope, receive), context_of(scope)
    try:
        response = await _handle(request, context)
    except (Problem, ModelError) as error:
        response = _refuse(error, context)
    await response(scope, receive, send)


def _refuse(error: Problem | ModelError, context: RequestContext) -> Response:
    """Count and render an error; done here, as a variable in a frame of its traceback would make a cycle."""
    problem = error if isinstance(error, Problem) else from_model_error(error)
    context.state.metrics.reject(problem.kind)
    return context.error(problem)


async def _handle(request: Request, context: RequestContext) -> Response:
    """Call the handler of a request; raises the 404, the 405, the 401 and the 503."""
    scope, endpoint = request.scope, context.endpoint
    if endpoint is None:
        raise no_route(request)
    if scope["method"] not in endpoint.methods:
        raise wrong_method(request)
    if endpoint.guarded:
        _authorize(context)
    if endpoint.inference:
        context.state.check_ready()
    return await endpoint.handler(request)


def _authorize(context: RequestContext) -> None:
    """Raise the 401 for a missing or wrong key; record which key was used."""
    if not context.identify():
        assert context.unauthorized is not None  # noqa: S101 - that is what it means
        raise context.unauthorized
    if context.key is not None:
        context.record.key = context.key
        context.state.metrics.key_used(context.key)


def wrong_method(request: Request) -> Problem:
    """Make the 405, with the methods that the path has."""
    path, state = request.scope["path"], request.app.state.service
    allowed = ", ".join(state.endpoints.methods(path))
    detail = f"{cut(path)} supports {allowed}, not {request.method}."
    return Problem("method-not-allowed", detail, headers={"Allow": allowed})
