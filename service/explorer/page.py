"""The explorer's page with its script and style, read and compressed once, before the service starts."""

import re
from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from service.echo import cut
from service.endpoints import Endpoint
from service.http.static_files import HTML, StaticFile
from service.problems import Problem

FOLDER = Path(__file__).parent / "static"
"""What `npm run build` in `explorer/` writes: index.html, and the files that it names."""

_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

Page = Mapping[str, StaticFile]
"""The page, named "", and the files that it loads."""


def read_page(folder: Path = FOLDER) -> Page | None:
    """Read the built page; None if it was not built."""
    if not (folder / "index.html").is_file():
        return None
    html = (folder / "index.html").read_text(encoding="utf-8")
    # Relative to /explorer, so that it also holds behind a proxy that adds a prefix.
    html = re.sub(r'\b(href|src)="(?=explorer\.)', r'\1="explorer/', html)
    files = {
        path.name: StaticFile.of(path.read_bytes(), _TYPES[path.suffix], _HEADERS)
        for path in folder.iterdir()
        if path.suffix in _TYPES
    }
    return {"": StaticFile.of(html.encode(), HTML, _HEADERS), **files}


async def page(request: Request) -> Response:
    """Serve the page, or 304 if the client has it."""
    return _built(request)[""].response(request)


async def redirect_to_page(request: Request) -> RedirectResponse:
    """Lead to the page from its address with a slash at the end, with the query, and behind any prefix."""
    query = request.scope["query_string"].decode("latin-1")
    return RedirectResponse(f"../explorer{f'?{query}' if query else ''}")


async def file(request: Request) -> Response:
    """Serve a script or a style of the page, or 304 if the client has it."""
    name = request.path_params["name"]
    found = _built(request).get(name)
    if found is None:
        raise Problem("not-found", f"There is no file /explorer/{cut(name)}; the page is /explorer.")
    return found.response(request)


def _built(request: Request) -> Page:
    found: Page | None = request.app.state.explorer
    if found is None:
        raise Problem(
            "not-found",
            "The explorer was not built: run `npm ci && npm run build` in the folder `explorer/` of the "
            "source tree, then restart the service.",
        )
    return found


ENDPOINTS = (
    Endpoint("/explorer", page, statuses=(200, 304, 404, 405), response_class=Response),
    Endpoint("/explorer/", redirect_to_page, statuses=(307, 405), response_class=Response, route="/explorer"),
    Endpoint("/explorer/{name}", file, statuses=(200, 304, 404, 405), response_class=Response),
)
