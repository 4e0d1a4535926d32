"""The explorer's page with its script and style, read and compressed once, before the service starts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from service.endpoints import Endpoint
from service.http.negotiation import PARSED_CHARACTERS
from service.problems import Problem, cut
from service.serialization.compression import CODINGS, choose_coding, compress

FOLDER = Path(__file__).parent / "static"
"""What `npm run build` in `explorer/` writes: index.html, and the files that it names."""

_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_HTML = "text/html; charset=utf-8"
_FOREVER = "public, max-age=31536000, immutable"
_SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True, slots=True)
class File:
    """A file as it is sent: its media type, and its bytes by content coding, None for none."""

    media_type: str
    bodies: Mapping[str | None, bytes]

    @classmethod
    def of(cls, content: bytes, media_type: str) -> "File":
        """Compress content with each coding."""
        return cls(media_type, {None: content} | {coding: compress(content, coding) for coding in CODINGS})

    def response(self, request: Request, headers: Mapping[str, str]) -> Response:
        """Build the response in the coding that the client prefers."""
        accepted = ", ".join(request.headers.getlist("accept-encoding"))
        coding = choose_coding(accepted) if len(accepted) <= PARSED_CHARACTERS else None
        coded = {} if coding is None else {"Content-Encoding": coding}
        return Response(
            self.bodies[coding],
            media_type=self.media_type,
            headers={**_SECURITY, "Vary": "Accept-Encoding", **coded, **headers},
        )


@dataclass(frozen=True, slots=True)
class Page:
    """The page, and the files that it loads, by their names with a hash of their content."""

    html: File
    tag: str
    """The page's entity tag: weak, because it is the same for every content coding."""
    files: Mapping[str, File]


def read_page(folder: Path = FOLDER) -> Page | None:
    """Read the built page; None if it was not built. Scripts and styles that it names get hashed names."""
    if not (folder / "index.html").is_file():
        return None
    names: dict[str, str] = {}
    files: dict[str, File] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            names[path.name] = f"{path.stem}.{sha256(content).hexdigest()[:16]}{path.suffix}"
            files[names[path.name]] = File.of(content, _TYPES[path.suffix])

    def hashed(match: re.Match[str]) -> str:
        attribute, name = match.groups()
        # Relative to /explorer, so that it also holds behind a proxy that adds a prefix.
        return f'{attribute}="explorer/{names[name]}"' if name in names else match[0]

    html = re.sub(r'\b(href|src)="([^"]*)"', hashed, (folder / "index.html").read_text(encoding="utf-8"))
    content = html.encode()
    return Page(File.of(content, _HTML), f'W/"{sha256(content).hexdigest()[:16]}"', files)


async def page(request: Request) -> Response:
    """Serve the page, or 304 if the client has it."""
    found = _built(request)
    headers = {"Cache-Control": "no-cache", "ETag": found.tag}
    if _has(request.headers.getlist("if-none-match"), found.tag):
        return Response(status_code=304, headers={**_SECURITY, "Vary": "Accept-Encoding", **headers})
    return found.html.response(request, headers)


async def redirect_to_page(request: Request) -> RedirectResponse:
    """Lead to the page from its address with a slash at the end, with the query, and behind any prefix."""
    query = request.url.query
    return RedirectResponse(f"../explorer{f'?{query}' if query else ''}")


async def file(request: Request, name: str) -> Response:
    """Serve a script or a style of the page, which never changes under its name."""
    found = _built(request).files.get(name)
    if found is None:
        raise Problem("not-found", f"There is no file /explorer/{cut(name)}; the page is /explorer.")
    return found.response(request, {"Cache-Control": _FOREVER})


def _built(request: Request) -> Page:
    found: Page | None = request.app.state.explorer
    if found is None:
        raise Problem(
            "not-found",
            "The explorer was not built: run `npm ci && npm run build` in the folder explorer of the sources "
            "and restart the service.",
        )
    return found


def _has(if_none_match: list[str], tag: str) -> bool:
    """Compare entity tags weakly (RFC 9110 §13.1.2)."""
    tags = {one.strip().removeprefix("W/") for one in ",".join(if_none_match).split(",")}
    return "*" in tags or tag.removeprefix("W/") in tags


ENDPOINTS = (
    Endpoint("/explorer", page, statuses=(200, 304, 404, 405), response_class=Response),
    Endpoint("/explorer/", redirect_to_page, statuses=(307, 405), response_class=Response, route="/explorer"),
    Endpoint("/explorer/{name}", file, statuses=(200, 404, 405), response_class=Response),
)
