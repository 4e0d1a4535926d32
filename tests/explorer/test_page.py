"""The explorer's page, script and style as a browser and its caches get them."""

import gzip
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from hatchling.builders.wheel import WheelBuilder

from service import app as service_app
from service.explorer.page import FOLDER, read_page
from service.settings import Settings
from tests.support.serving import ROOT, assert_problem

HTML = (
    '<head><link rel="stylesheet" href="explorer.css"><link href="data:,">'
    '<script src="explorer.js"></script></head>'
)
SCRIPT = "console.log('漢字');\n" * 500
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A page as it is built: three files."""
    (tmp_path / "index.html").write_text(HTML, encoding="utf-8")
    (tmp_path / "explorer.js").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "explorer.css").write_text("body { color: black }", encoding="utf-8")
    return tmp_path


@contextmanager
def serving(settings: Settings) -> Iterator[httpx.Client]:
    """A client of the app on a socket; its models are not loaded, because the page needs none."""
    config = uvicorn.Config(service_app.create_app(settings), port=0, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    try:
        with httpx.Client(base_url=f"http://{host}:{port}") as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def client(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """A client of a service that has that page, and requires keys."""
    monkeypatch.setattr(service_app, "read_page", lambda: read_page(folder))
    with serving(Settings(api_keys="secret-key")) as started:
        yield started


def test_the_page_and_its_files_need_no_key(client: httpx.Client) -> None:
    """Each file is found beside the page, and none is used again before the service was asked."""
    page = client.get("/explorer")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["cache-control"] == "no-cache"
    assert 'href="data:,"' in page.text
    style, script = re.findall(r'(?:href|src)="(explorer/[^"]+)"', page.text)
    for name, expected, kind, content in (
        (style, "explorer/explorer.css", "text/css", "body { color: black }"),
        (script, "explorer/explorer.js", "text/javascript", SCRIPT),
    ):
        assert name == expected
        found = client.get(f"/{name}")
        assert (found.status_code, found.text) == (200, content)
        assert found.headers["content-type"] == f"{kind}; charset=utf-8"
        assert found.headers["cache-control"] == "no-cache"
        assert client.get(f"/{name}", headers={"If-None-Match": found.headers["etag"]}).status_code == 304


def test_another_content_has_another_tag(folder: Path) -> None:
    """A cache never serves an old file in a new page."""
    before = read_page(folder)
    (folder / "explorer.js").write_text(SCRIPT + "1;", encoding="utf-8")
    after = read_page(folder)
    assert before is not None
    assert after is not None
    assert [name for name in before if before[name].tag != after[name].tag] == ["explorer.js"]


@pytest.mark.parametrize("tags", ["{tag}", '"other", {tag}', "*", "{strong}"])
def test_a_browser_that_has_the_page_is_told_so(client: httpx.Client, tags: str) -> None:
    """304 without a body, with the headers that the page has."""
    tag = client.get("/explorer").headers["etag"]
    sent = tags.format(tag=tag, strong=tag.removeprefix("W/"))
    answer = client.get("/explorer", headers={"If-None-Match": sent})
    assert (answer.status_code, answer.content) == (304, b"")
    assert (answer.headers["etag"], answer.headers["cache-control"]) == (tag, "no-cache")
    assert client.get("/explorer", headers={"If-None-Match": '"other"'}).status_code == 200


def test_pages_may_load_nothing_from_elsewhere(client: httpx.Client) -> None:
    """The page and its files have the policy, and say neither where they are nor another type."""
    names = re.findall(r"explorer/[^\"]+", client.get("/explorer").text)
    for path in ("explorer", *names):
        headers = client.get(f"/{path}").headers
        assert headers["content-security-policy"] == POLICY
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


@pytest.mark.parametrize("coding", ["gzip", "zstd", "identity"])
def test_files_are_compressed_as_the_browser_prefers(client: httpx.Client, coding: str) -> None:
    """The same bytes in every coding, and a cache keeps the codings apart."""
    (script,) = re.findall(r"explorer/[^\"]+\.js", client.get("/explorer").text)
    with client.stream("GET", f"/{script}", headers={"Accept-Encoding": coding}) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.headers.get("content-encoding", "identity") == coding
    assert int(answer.headers["content-length"]) == len(raw)
    assert (len(raw) < 1000) == (coding != "identity")
    if coding == "gzip":
        assert gzip.decompress(raw) == SCRIPT.encode()


@pytest.mark.parametrize("query", ["", "?text=a%20b&layer=1"])
def test_a_slash_at_the_end_leads_to_the_page(client: httpx.Client, query: str) -> None:
    """Relative to it, for a proxy that adds a prefix, and with what the address asks for."""
    answer = client.get(f"/explorer/{query}")
    assert (answer.status_code, answer.headers["location"]) == (307, f"../explorer{query}")
    page = client.get(f"/explorer/{query}", follow_redirects=True)
    assert (page.status_code, page.url.path) == (200, "/explorer")


def test_browsers_are_led_to_the_explorer(client: httpx.Client) -> None:
    """Others are led to /docs; both relative, for a proxy that adds a prefix."""
    for headers, place in ((BROWSER, "explorer"), ({}, "docs"), ({"Accept": "application/json"}, "docs")):
        answer = client.get("/", headers=headers)
        assert (answer.status_code, answer.headers["location"]) == (307, place)
        assert answer.headers["vary"] == "Accept"


@pytest.mark.parametrize("path", ["/explorer//", "/explorer/index.html", "/explorer/..%2f..%2fpage.py"])
def test_other_names_are_unknown(client: httpx.Client, path: str) -> None:
    """Only what the page names is there, and nothing outside of the folder."""
    assert_problem(client.get(path), 404, "not-found")


def test_a_tree_without_the_built_page_serves_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 404 says how to build it, and `/` leads to what is there."""
    monkeypatch.setattr(service_app, "read_page", lambda: read_page(tmp_path))
    with serving(Settings()) as client:
        assert "npm run build" in assert_problem(client.get("/explorer"), 404, "not-found")["detail"]
        assert_problem(client.get("/explorer/explorer.js"), 404, "not-found")
        assert client.get("/", headers=BROWSER).headers["location"] == "docs"


def test_off_its_routes_are_unknown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it did not exist: no other text than for any path that is unknown."""
    monkeypatch.setattr(service_app, "read_page", lambda: read_page(folder))
    with serving(Settings(explorer="off")) as client:
        unknown = client.get("/nothing").json()["detail"].replace("/nothing", "/explorer")
        assert assert_problem(client.get("/explorer"), 404, "not-found")["detail"] == unknown
        assert client.get("/", headers=BROWSER).headers["location"] == "docs"
        assert 'route="/explorer"' not in client.get("/metrics").text


def test_the_wheel_has_the_page(folder: Path, tmp_path: Path) -> None:
    """Every file of the folder is in there, whatever the page loads."""
    static = tmp_path / "service" / "explorer" / "static"
    shutil.copytree(folder, static, ignore=shutil.ignore_patterns("service"))
    for name in ("pyproject.toml", ".gitignore"):
        shutil.copy(ROOT / name, tmp_path)
    included = WheelBuilder(str(tmp_path)).recurse_included_files()
    assert FOLDER.relative_to(ROOT) == static.relative_to(tmp_path)
    assert {one.distribution_path for one in included} == {
        f"service/explorer/static/{name}" for name in ("index.html", "explorer.css", "explorer.js")
    }
