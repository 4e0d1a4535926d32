"""The API's documentation: its OpenAPI schema, and a page for it that works offline."""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import fastapi_offline
import orjson
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response

from service.echo import cut
from service.endpoints import Endpoint
from service.http.static_files import HTML, Once, StaticFile
from service.problems import Problem
from service.protocols.contract import JSON

_FOLDER = Path(fastapi_offline.__file__).parent / "static"
_PARTS = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}
_SAFE = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}


class Documentation:
    """The schema and the page; each is made when it is first asked for, which takes up to a second."""

    def __init__(self, build: Callable[[], dict[str, Any]]) -> None:
        self.schema = Once(lambda: StaticFile.of(orjson.dumps(build()), JSON, _SAFE))
        self.page = Once(_read_page)


def _read_page() -> Mapping[str, StaticFile]:
    """Read the page, named "", and its script and style, which come from a package."""
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="headlight",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="data:,",
        swagger_ui_parameters={"validatorUrl": None},
    )
    headers = {**_SAFE, "Content-Security-Policy": _policy(bytes(page.body))}
    files = {
        name: StaticFile.of((_FOLDER / name).read_bytes(), kind, headers) for name, kind in _PARTS.items()
    }
    return {"": StaticFile.of(bytes(page.body), HTML, headers), **files}


def _policy(page: bytes) -> str:
    """Return the page's Content-Security-Policy: of inline scripts, only the page's own may run."""
    hashes = [
        b64encode(sha256(one).digest()).decode() for one in re.findall(rb"<script>(.*?)</script>", page, re.S)
    ]
    scripts = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src 'self' {scripts}; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


async def openapi(request: Request) -> Response:
    """Return the OpenAPI schema."""
    return (await _documentation(request).schema.get()).response(request)


async def docs(request: Request) -> Response:
    """Return the interactive documentation page."""
    return (await _documentation(request).page.get())[""].response(request)


async def docs_part(request: Request) -> Response:
    """Return the page's script or style."""
    name = request.path_params["name"]
    if name not in _PARTS:
        raise Problem("not-found", f"There is no file /docs/{cut(name)}; the page is /docs.")
    return (await _documentation(request).page.get())[name].response(request)


def _documentation(request: Request) -> Documentation:
    found: Documentation = request.app.state.documentation
    return found


ENDPOINTS = (
    Endpoint("/openapi.json", openapi, statuses=(200, 304, 405)),
    Endpoint("/docs", docs, statuses=(200, 304, 405)),
    Endpoint("/docs/{name}", docs_part, statuses=(200, 304, 404, 405)),
)
