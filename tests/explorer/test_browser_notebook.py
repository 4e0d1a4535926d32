"""The widget in a JupyterLab, whose kernel asks the service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.explorer.support.explored import Explorer
from tests.explorer.support.jupyter import jupyterlab
from tests.explorer.support.planted import HEADS, LAYERS
from tests.explorer.support.reading import assert_shown, maps
from tests.support.serving import Service, serve

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat."
KEY = "a-secret-key"
CELLS = (
    f"""import os
from headlight_client import Explorer, Headlight
client = Headlight(os.environ["SERVICE_URL"], api_key=os.environ["SERVICE_KEY"])
explorer = Explorer(client, {TEXT!r}, heads=[(1, 2)])
explorer""",
    "print(explorer.state)",
)


@pytest.fixture
def guarded(planted: Path) -> Iterator[Service]:
    """A service that answers only those who have the key."""
    with serve(model=planted, api_keys=KEY) as started:
        yield started


@pytest.fixture
def notebook(
    browser: Any, guarded: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Explorer]:
    """A tab with the notebook, about which the browser has nothing to report at the end of the test."""
    monkeypatch.setenv("SERVICE_URL", guarded.url)
    monkeypatch.setenv("SERVICE_KEY", KEY)
    context = browser.new_context(viewport={"width": 1440, "height": 1600}, color_scheme="light")
    with jupyterlab(tmp_path, CELLS) as url:
        lab = Explorer(context.new_page(), url)
        lab.page.goto(url)
        yield lab
        found = lab.found()
        context.close()
    assert found == []


def run(lab: Explorer, cell: int) -> None:
    """Run a cell, which JupyterLab forgets as long as its kernel is not connected."""
    code = lab.page.locator(".jp-Notebook .jp-CodeCell").nth(cell)
    for _ in range(20):
        code.locator(".cm-content").click()
        lab.page.keyboard.press("Control+Enter")
        lab.page.wait_for_timeout(250)
        if code.locator(".jp-InputPrompt").inner_text() != "[ ]:":
            return
    raise AssertionError("JupyterLab does not run the cell.")


def shown(lab: Explorer) -> None:
    """Show the explorer, and wait for it."""
    lab.page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    run(lab, 0)
    lab.token(2).wait_for()


def test_keys_within_the_explorer_are_not_the_notebooks(notebook: Explorer) -> None:
    """`a` would insert a cell, and `x` or twice `d` take this one away; Ctrl+S still saves."""
    shown(notebook)
    notebook.token(2).click()
    for key in "axdd":
        notebook.page.keyboard.press(key)
    notebook.page.keyboard.press("]")
    notebook.becomes(notebook.steps, [2, 2])
    cells = notebook.page.locator(".jp-Notebook .jp-Cell")
    assert cells.count() == len(CELLS)
    unsaved = notebook.page.locator(".lm-TabBar-tab.jp-mod-dirty")
    unsaved.wait_for()
    notebook.page.keyboard.press("Control+s")
    notebook.expect(unsaved).to_have_count(0)
    notebook.page.locator(".jp-Notebook .cm-content").first.click()
    notebook.page.keyboard.press("Escape")
    notebook.page.keyboard.press("a")  # outside of it they still work
    notebook.expect(cells).to_have_count(len(CELLS) + 1)


def test_the_styles_of_a_notebook_do_not_reach_the_explorer(notebook: Explorer) -> None:
    """Names stand beside numbers, corners are round, links underlined; but the theme is JupyterLab's."""
    notebook.page.emulate_media(color_scheme="dark")
    shown(notebook)
    notebook.expect(notebook.page.locator(".headlight")).to_have_attribute("data-theme", "light")
    notebook.page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    notebook.expect(notebook.page.locator(".headlight")).to_have_attribute("data-theme", "dark")
    style = "(one, [pseudo, name]) => getComputedStyle(one, pseudo)[name]"
    soft = notebook.page.locator(".headlight .note").first.evaluate(style, [None, "color"])
    find = notebook.page.get_by_placeholder("Find a token")
    assert find.evaluate(style, ["::placeholder", "color"]) == soft
    export = notebook.page.get_by_role("button", name="Export", exact=True)
    assert export.evaluate(style, [None, "borderRadius"]) == "6px"
    link = notebook.page.locator(".headlight .footer a")
    assert link.evaluate(style, [None, "textDecorationLine"]) == "underline"
    notebook.page.get_by_role("tab", name="All heads", exact=True).click()
    pairs = notebook.page.locator(".head-panel dl > div")
    pairs.first.wait_for()
    overlapping = """all => all.filter(one => {
      const [name, value] = [...one.children].map(part => {
        const text = document.createRange();
        text.selectNodeContents(part);
        return text.getBoundingClientRect();
      });
      return name.right > value.left || Math.abs(name.top - value.top) > 4;
    }).length"""
    assert pairs.evaluate_all(overlapping) == 0


def test_a_notebook_shows_the_explorer(notebook: Explorer, guarded: Service, tmp_path: Path) -> None:
    """Weights are the API's, choices reach Python; only the kernel has the key, and no maps are saved."""
    shown(notebook)
    notebook.token(2).click()
    guarded.http.headers["Authorization"] = f"Bearer {KEY}"
    expected = maps(guarded, TEXT)
    assert_shown(notebook.weights(), expected[1, 2, 2])
    notebook.page.keyboard.press("]")
    notebook.becomes(notebook.steps, [2, 2])
    assert_shown(notebook.weights(), expected[2, 2, 2])
    notebook.page.get_by_role("tab", name="All heads", exact=True).click()
    notebook.expect(notebook.page.locator("[data-head] canvas")).to_have_count(LAYERS * HEADS)
    run(notebook, 1)
    output = notebook.page.locator(".jp-OutputArea-output pre").last
    notebook.expect(output).to_contain_text("'heads': [[2, 2]]")
    notebook.expect(output).to_contain_text("'view': 'heads'")
    notebook.expect(output).to_contain_text("'pinned': [2]")
    assert KEY not in notebook.page.content()
    notebook.page.keyboard.press("Control+s")
    saved = tmp_path / "notebooks" / "explorer.ipynb"
    notebook.becomes(lambda: saved.read_text(encoding="utf-8").count("widget-view"), 1)
    assert saved.stat().st_size < 10_000
