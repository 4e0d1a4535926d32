"""The explorer's page with its script and style, read and compressed once, before the service starts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from service.echo import cut
from service.endpoints import Endpoint
from service.http.static_files import HTML, StaticFile, digest
from service.problems import Problem

FOLDER = Path(__file__).parent / "static"
"""What `npm run build` in `explorer/` writes: index.html, and the files that it names."""

_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_FOREVER = "public, max-age=31536000, immutable"
_SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True, slots=True)
class Page:
    """The page, and the files that it loads, by their names with a hash of their content."""

    html: StaticFile
    files: Mapping[str, StaticFile]


def read_page(folder: Path = FOLDER) -> Page | None:
    """Read the built page; None if it was not built. Scripts and styles that it names get hashed names."""
    if not (folder / "index.html").is_file():
        return None
    names: dict[str, str] = {}
    files: dict[str, StaticFile] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            names[path.name] = f"{path.stem}.{digest(content)}{path.suffix}"
            headers = {**_SECURITY, "Cache-Control": _FOREVER}
            files[names[path.name]] = StaticFile.of(content, _TYPES[path.suffix], headers)

    def hashed(match: re.Match[str]) -> str:
        attribute, name = match.groups()
        # Relative to /explorer, so that it also holds behind a proxy that adds a prefix.
        return f'{attribute}="explorer/{names[name]}"' if name in names else match[0]

    html = re.sub(r'\b(href|src)="([^"]*)"', hashed, (folder / "index.html").read_text(encoding="utf-8"))
    headers = {**_SECURITY, "Cache-Control": "no-cache"}
    return Page(StaticFile.of(html.encode(), HTML, headers), files)


async def page(request: Request) -> Response:
    """Serve the page, or 304 if the client has it."""
    return _built(request).html.response(request)


async def redirect_to_page(request: Request) -> RedirectResponse:
    """Lead to the page from its address with a slash at the end, with the query, and behind any prefix."""
    query = request.scope["query_string"].decode("latin-1")
    return RedirectResponse(f"../explorer{f'?{query}' if query else ''}")


async def file(request: Request) -> Response:
    """Serve a script or a style of the page, which never changes under its name."""
    name = request.path_params["name"]
    found = _built(request).files.get(name)
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
    Endpoint("/explorer/{name}", file, statuses=(200, 404, 405), response_class=Response),
)
