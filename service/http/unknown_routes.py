"""Answers a request to an unknown path: which route is probably meant, and the base URL for its clients."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice

import orjson
from starlette.requests import Request

from service.echo import ECHO, cut
from service.endpoints import Endpoint, Endpoints
from service.http.validation_errors import closest
from service.problems import Problem

# The endings of routes with which other servers generate text.
_GENERATION = ("/completions", "/responses", "/messages", "/generate", "/chat")
HUB_JS = "@huggingface/inference/"
"""How the user agent of the hub's client for JavaScript begins."""
_LISTED = 6  # routes


def no_route(request: Request) -> Problem:
    """Make the 404 of a path that no endpoint has.

    Its member `error` is for OpenAI's clients, which show nothing else of a body; the hub's client for
    JavaScript shows it, too, but as a string.
    """
    advice = _advice(request)
    sentence = f"There is no route {cut(request.scope['path'])}{advice}; /docs lists the routes."
    error: object = {"message": sentence, "type": "invalid_request_error", "param": None, "code": "not_found"}
    if request.headers.get("user-agent", "").startswith(HUB_JS):
        error = orjson.Fragment(orjson.dumps(sentence))  # as it is: members that are strings are cut
    return Problem("not-found", sentence, members={"error": error})


def _advice(request: Request) -> str:
    path, endpoints = request.scope["path"].rstrip("/"), request.app.state.service.endpoints
    if path.endswith(_GENERATION):
        return ": the models here encode text and do not generate any"
    meant = _meant(path, endpoints) if len(path) <= ECHO else ()
    if not meant:
        return ""
    routes = " or ".join(endpoint.path for endpoint in meant)
    address = f"{request.scope['scheme']}://{cut(request.headers.get('host', ''))}"
    clients = dict.fromkeys((endpoint.clients, endpoint.base) for endpoint in meant if endpoint.clients)
    bases = " and ".join(f"{address}{base} for {names} clients" for names, base in clients)
    return f"; you may want {routes}" + (f", with the base URL {bases}" if bases else "")


def _meant(path: str, endpoints: Endpoints) -> Sequence[Endpoint]:
    """Find the routes whose last segment is the same as that of the path, or resembles it."""
    named = _by_last_segment(endpoints)
    last = path.rpartition("/")[2]
    name = last if last in named else closest(last, tuple(named))
    return () if name is None else named[name]


@cache
def _by_last_segment(endpoints: Endpoints) -> Mapping[str, Sequence[Endpoint]]:
    named: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        last = endpoint.path.rpartition("/")[2]
        if last and "{" not in endpoint.path and endpoint.summary is not None:
            named.setdefault(last, {}).setdefault(endpoint.path, endpoint)
    return {last: tuple(islice(found.values(), _LISTED)) for last, found in named.items()}
