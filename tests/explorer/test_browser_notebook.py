"""The widget in a JupyterLab, whose kernel asks the service; and the notebook opened without that kernel."""

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.explorer.support.explored import PATIENCE_MS, shown_weights
from tests.explorer.support.jupyter import Jupyter
from tests.explorer.support.notebooks import CLIENT, KEY, TEXT, Opened, printed, save, shown
from tests.explorer.support.planted import HEADS, LAYERS
from tests.explorer.support.reading import assert_shown, maps
from tests.support.serving import Service

pytestmark = pytest.mark.deploy

CELLS = (
    f"{CLIENT}explorer = Explorer(client, {TEXT!r}, heads=[(1, 2)], embed=False)\nexplorer",
    "print(explorer.state)",
    "explorer.update(view='text', heads=[(0, 1)], pinned=[3])\nprint('moved')",
)
SAVED = (
    f"{CLIENT}explorer = Explorer(client, {TEXT!r}, heads=[(1, 2)], pinned=[4], height=700)\nexplorer",
    "print(explorer.widget.saved['state'])",
)
FRAME = 'iframe[title="headlight explorer"]'
WIDGETS = "application/vnd.jupyter.widget-state+json"


def test_keys_within_the_explorer_are_not_the_notebooks(jupyter: Jupyter, opened: Opened) -> None:
    """`a` would insert a cell, and `x` or twice `d` take this one away; Ctrl+S still saves."""
    notebook, _ = shown(jupyter, opened, CELLS)
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


def test_the_styles_of_a_notebook_do_not_reach_the_explorer(jupyter: Jupyter, opened: Opened) -> None:
    """Names stand beside numbers, corners are round, links underlined; but the theme is JupyterLab's."""
    notebook, _ = shown(jupyter, opened, CELLS)
    notebook.page.emulate_media(color_scheme="dark")
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


def test_a_notebook_shows_the_explorer(jupyter: Jupyter, opened: Opened, guarded: Service) -> None:
    """Weights are the API's, choices reach Python and the page; only the kernel has the key."""
    notebook, path = shown(jupyter, opened, CELLS)
    notebook.token(2).click()
    expected = maps(guarded, TEXT)
    assert_shown(notebook.weights(), expected[1, 2, 2])
    notebook.page.keyboard.press("]")
    notebook.becomes(notebook.steps, [2, 2])
    assert_shown(notebook.weights(), expected[2, 2, 2])
    notebook.page.get_by_role("tab", name="All heads", exact=True).click()
    notebook.expect(notebook.page.locator("[data-head] canvas")).to_have_count(LAYERS * HEADS)
    output = printed(notebook, 1)
    notebook.expect(output).to_contain_text("'heads': [[2, 2]]")
    notebook.expect(output).to_contain_text("'view': 'heads'")
    notebook.expect(output).to_contain_text("'pinned': [2]")
    notebook.expect(printed(notebook, 2)).to_have_text("moved\n")
    notebook.becomes(notebook.pinned, [3])
    notebook.becomes(notebook.steps, [0, 1])
    assert_shown(notebook.weights(), expected[0, 1, 3])
    assert KEY not in notebook.page.content()
    # Without `embed` no maps are saved.
    assert len(save(notebook, path, "moved")) < 10_000


def taken_apart(path: Path) -> tuple[str, str]:
    """The output of the first cell without what GitHub takes out of it; and the page in its frame."""
    shown = json.loads(path.read_text(encoding="utf-8"))["cells"][0]["outputs"][0]["data"]["text/html"]
    output = "".join(shown)
    frame = re.search('<iframe srcdoc="([^"]*)".*?</iframe>', output)
    assert frame is not None
    return re.sub(r' style="[^"]*"', "", output.replace(frame[0], "")), html.unescape(frame[1])


def assert_told(told: str, expected: NDArray[np.float64]) -> None:
    """The ten largest weights of a row, as HTML without scripts has them."""
    rows = re.findall(r"<tr><td>(\d+)</td><td>[^<]+</td><td>([\d.]+)</td></tr>", told)
    order = np.argsort(-expected)[:10]
    assert [int(position) for position, _ in rows] == order.tolist()
    assert np.allclose([float(weight) for _, weight in rows], expected[order], atol=0.001)


def test_it_is_shown_as_it_was(jupyter: Jupyter, opened: Opened, guarded: Service, browser: Any) -> None:
    """JupyterLab shows what was chosen last, where it saves widgets; an HTML page what was when it ran."""
    jupyter.save_widgets()
    lab, path = shown(jupyter, opened, SAVED)
    assert lab.page.locator(".headlight").evaluate("one => one.parentElement.clientHeight") == 700
    lab.token(2).click()
    lab.page.keyboard.press("]")
    lab.becomes(lab.steps, [2, 2])
    lab.page.wait_for_timeout(1200)  # until what is saved is read
    lab.expect(printed(lab, 1)).to_contain_text("'pinned': [2]")
    content = save(lab, path, WIDGETS)
    lab.page.goto("about:blank")
    assert KEY not in content
    jupyter.end_kernels()
    again = opened(path)
    again.token(2).wait_for()
    assert again.page.locator(".inputs").count() == 0
    assert (again.steps(), again.pinned()) == ([2, 2], [2])
    expected = maps(guarded, TEXT)
    assert_shown(again.weights(), expected[2, 2, 2])
    again.page.get_by_label("Previous layer").click()
    again.becomes(again.steps, [1, 2])
    assert_shown(again.weights(), expected[1, 2, 2])

    # As JupyterLab saves it usually, and as it is read where neither scripts nor frames are.
    notebook = json.loads(content)
    del notebook["metadata"]["widgets"]
    path.write_text(json.dumps(notebook), encoding="utf-8")
    told, frame = taken_apart(path)
    assert_told(told, expected[1, 2, 4])
    assert KEY not in frame
    jupyter.convert(path, "--to", "html")
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.route(re.compile("^https?:"), lambda route: route.abort())  # what nbconvert itself loads
    page.goto(path.with_suffix(".html").as_uri())
    assert_shown(shown_weights(page.frame_locator(FRAME)), expected[1, 2, 4])
    assert page.locator(FRAME).evaluate("one => one.clientHeight") == 700
    context.close()
