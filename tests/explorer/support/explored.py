"""The explorer's page in Chromium, as a person uses it, and what the browser noticed meanwhile."""

import base64
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.deploy.tools import CACHE, tool

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
WIDTHS = (360, 768, 1440)
THEMES = ("light", "dark")
PATIENCE_MS = 15_000
_COMPLAINTS = """
window.complaints = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.complaints.push(`${event.violatedDirective}: ${event.blockedURI}`);
});
"""


@contextmanager
def chromium() -> Iterator[Any]:
    """A Chromium of Debian's, steered by Playwright, where `tests/deploy/install.sh browser` puts both."""
    executable = tool("chromium")
    # Behind our own packages: that environment has an older version of some of them.
    for folder in CACHE.glob("python/lib/python3*/site-packages"):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable,
            args=FLAGS,
            # What scroll bars take from the page is part of what is tested.
            ignore_default_args=["--hide-scrollbars"],
        )
        yield browser
        browser.close()


def fragment(**fields: object) -> str:
    """The fragment of a link in which these fields have these values, as JSON has them."""
    compressor = zlib.compressobj(wbits=-15)
    packed = compressor.compress(json.dumps(fields).encode()) + compressor.flush()
    return "1." + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def state_of(link: str) -> dict[str, Any]:
    """The fields that a link has."""
    content = urlsplit(link).fragment.removeprefix("1.")
    if not content:
        return {}
    packed = base64.urlsafe_b64decode(content + "=" * (-len(content) % 4))
    state: dict[str, Any] = json.loads(zlib.decompress(packed, wbits=-15))
    return state


def weight_text(weight: float) -> str:
    """A number as the page writes it."""
    size = abs(weight)
    if size == 0:
        return "0"
    if size < 0.000005:
        return "≈0"
    return f"{'−' if weight < 0 else ''}{size:.{5 if size < 0.01 else 3 if size < 10 else 1}f}"


def number(text: str) -> float:
    """A number that the page has written."""
    return float(text.replace("−", "-").replace("≈", "").replace("+", ""))


def shown_weights(place: Any) -> dict[int, float]:
    """The weights of the table beside the text, of a page or a frame, by their positions: all of them."""
    place.locator(".row-table tbody tr").first.wait_for()
    more = place.get_by_role("button", name=re.compile(r"^Show all"))
    if more.count():
        more.click()
    rows = place.locator(".row-table tbody tr").evaluate_all(
        "all => all.map(row => [...row.cells].map(cell => cell.innerText))"
    )
    return {int(row[0]): number(row[2]) for row in rows}


@dataclass
class Explorer:
    """One tab. `problems` are what the browser reported: errors, blocked loads, requests to elsewhere."""

    page: Any
    url: str
    problems: list[str] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        from playwright.sync_api import expect

        self.expect = expect
        expect.set_options(timeout=PATIENCE_MS)
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.add_init_script(_COMPLAINTS)
        self.page.on("request", self._request)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("console", self._console)

    def _request(self, request: Any) -> None:
        self.sent.append(request)
        scheme, host = urlsplit(request.url)[:2]
        if scheme not in ("data", "blob") and host != urlsplit(self.url).netloc:
            self.problems.append(f"request to {request.url}")

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def found(self) -> list[str]:
        """Every problem so far."""
        return self.problems + [f"policy: {one}" for one in self.page.evaluate("window.complaints")]

    def open(self, **fields: object) -> None:
        """Open a link with these fields, and wait for its view, or without a text for the examples.

        Without heads, it chooses the first of layer 1: the page would choose another, and a pin.
        """
        if "text" in fields:
            fields = {"heads": [[1, 0]], **fields}
        place = f"#{fragment(**fields)}" if fields else ""
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/explorer{place}")
        self.settle()

    def settle(self) -> None:
        """Wait until a view or the examples are there, and nothing is on its way."""
        self.page.locator("#view > *, .welcome, .problem, dialog[open]").first.wait_for()
        self.expect(self.page.get_by_text("Loading…")).to_have_count(0)

    def becomes(self, read: Callable[[], object], expected: object) -> None:
        """Wait until this is so: the page draws with the next frame, and changes the link a little later."""
        for _ in range(100):
            if read() == expected:
                return
            self.page.wait_for_timeout(20)
        assert read() == expected

    def link_has(self, **expected: object) -> None:
        """Wait until the link has these values."""
        self.becomes(lambda: {name: state_of(self.page.url).get(name) for name in expected}, expected)

    def tab(self, name: str) -> None:
        """Open a view by its tab."""
        self.page.get_by_role("tab", name=name, exact=True).click()
        self.settle()

    def tabs(self) -> list[str]:
        """The titles of all views."""
        titles: list[str] = self.page.get_by_role("tab").all_inner_texts()
        return titles

    def token(self, position: int) -> Any:
        """A token of the text view."""
        return self.page.locator(f'.tokens [data-position="{position}"]')

    def pinned(self) -> list[int]:
        """Positions that are pinned."""
        found = self.page.locator('.tokens [aria-selected="true"]').evaluate_all(
            "all => all.map(one => Number(one.dataset.position))"
        )
        return [int(one) for one in found]

    def weights(self) -> dict[int, float]:
        """The weights of the table beside the text by their positions: all of them."""
        return shown_weights(self.page)

    def chosen(self) -> list[list[int]]:
        """The heads that the grid shows as chosen."""
        pressed = self.page.locator('[data-head][aria-pressed="true"]')
        return [
            [int(part) for part in one.split(",")]
            for one in pressed.evaluate_all("all => all.map(one => one.dataset.head)")
        ]

    def steps(self) -> list[int]:
        """The current layer and head, as the controls above all views show them."""
        return [int(one) for one in self.page.locator(".step output").all_inner_texts()]
