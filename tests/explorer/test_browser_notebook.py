"""The widget in a JupyterLab, whose kernel asks the service."""

import pytest

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
