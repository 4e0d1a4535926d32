"""A tab of Debian's Firefox, which `support/firefox.mjs` steers."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tests.deploy.tools import CACHE, tool
from tests.explorer.support.explored import fragment

_STEER = Path(__file__).with_name("firefox.mjs")
_SETTLED = """
await page.waitForSelector("#view > *, .welcome, .problem, dialog[open]");
await page.waitForFunction(() => !document.querySelector(".headlight").innerText.includes("Loading…"));
"""


@dataclass
class Firefox:
    """One tab; `run` runs JavaScript in Node with `page`, and `ask` evaluates an expression in the page."""

    process: subprocess.Popen[str]
    url: str
    downloads: Path

    def run(self, code: str) -> Any:
        """Run statements; returns what they return."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(code) + "\n")
        stdin.flush()
        answer = cast("dict[str, Any]", json.loads(stdout.readline() or '{"error": "Firefox has ended"}'))
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def ask(self, expression: str) -> Any:
        """What an expression is in the page."""
        return self.run(f"return page.evaluate({json.dumps(expression)})")

    def becomes(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        self.run(f"await page.waitForFunction({json.dumps(expression)}, {{ timeout: 15000 }})")

    def open(self, width: int, height: int, **fields: object) -> None:
        """Open a link with these fields in a window of this size, and wait for its view."""
        link = f"{self.url}/explorer#{fragment(**fields)}"
        self.run(f"""
          problems.length = 0;
          await page.setViewport({{ width: {width}, height: {height} }});
          await page.goto("about:blank");
          await page.goto({json.dumps(link)});
          {_SETTLED}""")

    def press(self, *keys: str, shift: bool = False) -> None:
        """Press keys one after the other, with Shift held down all the time or not."""
        pressed = "".join(f"await page.keyboard.press({json.dumps(key)});" for key in keys)
        if shift:
            pressed = f'await page.keyboard.down("Shift");{pressed}await page.keyboard.up("Shift");'
        self.run(pressed)


@contextmanager
def firefox(url: str, downloads: Path) -> Iterator[Firefox]:
    """Start one, as `tests/deploy/install.sh browser` installs it."""
    arguments = [tool("node"), str(_STEER), str(CACHE / "firefox"), tool("firefox-esr"), str(downloads)]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        yield Firefox(process, url, downloads)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
