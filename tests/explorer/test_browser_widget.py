"""In a notebook the explorer stands in a shadow root, beside others of its kind, and asks the kernel."""

import pytest

from tests.explorer.support.explored import Explorer
from tests.explorer.support.planted import HEADS
from tests.explorer.support.reading import assert_shown, maps
from tests.support.serving import Service

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat."
MOUNT = """async states => {
  const { default: widget } = await import(document.querySelector("script[type=module]").src);
  const style = new CSSStyleSheet();
  style.replaceSync(await (await fetch(document.querySelector("link[rel=stylesheet]").href)).text());
  document.getElementById("headlight-explorer").remove();
  const service = new URL(".", document.baseURI).href.replace(/\\/$/, "");
  window.models = states.map((state) => {
    const traits = { url: service, keyed: false, state };
    const listeners = new Set();
    const model = {
      traits,
      get: (name) => traits[name],
      set: (name, value) => { traits[name] = value; },
      save_changes: () => undefined,
      on: (_, listener) => listeners.add(listener),
      off: (_, listener) => listeners.delete(listener),
      send: async ({ id, path, accept, body }) => {
        const headers = { Accept: accept, "Content-Type": "application/json" };
        const answer = await fetch(service + path, { method: body ? "POST" : "GET", body, headers });
        const content = new DataView(await answer.arrayBuffer());
        const told = { id, status: answer.status, headers: Object.fromEntries(answer.headers) };
        for (const listener of listeners) listener(told, [content]);
      },
    };
    const host = document.body.appendChild(document.createElement("div"));
    host.className = "host";
    const root = host.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [style];
    model.close = widget.render({ model, el: root.appendChild(document.createElement("div")) });
    return model;
  });
}"""


@pytest.fixture
def widgets(tab: Explorer) -> Explorer:
    """A page with two widgets, the second with a pinned token."""
    tab.open()
    tab.page.evaluate(MOUNT, [{"text": TEXT}, {"text": TEXT, "pinned": [3], "heads": [[1, 2]]}])
    tab.page.locator(".host .row-table tbody tr").first.wait_for()
    return tab


def test_a_widget_shows_the_numbers_of_the_api_in_colours(widgets: Explorer, served: Service) -> None:
    """They come through the kernel, and the tokens have the colours of their weights."""
    host = widgets.page.locator(".host").nth(1)
    rows = host.locator(".row-table tbody tr").evaluate_all(
        "all => all.map(row => [...row.cells].map(cell => cell.innerText))"
    )
    shown = {int(row[0]): 0.0 if row[2] == "≈0" else float(row[2]) for row in rows}
    assert_shown(shown, maps(served)[1, 2, 3])
    colours = "all => new Set(all.map(one => getComputedStyle(one).backgroundColor)).size"
    assert host.locator(".token").evaluate_all(colours) > 2


def test_each_widget_has_its_own_help_and_tabs(widgets: Explorer) -> None:
    """The second's button opens the second's help, and its arrow keys stay within its tabs."""
    first, second = (widgets.page.locator(".host").nth(i) for i in range(2))
    second.get_by_role("button", name="Help and keys").click()
    widgets.expect(second.locator("dialog.help")).to_be_visible()
    widgets.expect(first.locator("dialog.help")).not_to_be_visible()
    second.get_by_role("button", name="Close").click()
    second.get_by_role("tab", name="Text").focus()
    widgets.page.keyboard.press("ArrowRight")
    widgets.expect(second.get_by_role("tab", name="All heads")).to_be_focused()
    widgets.page.keyboard.press("?")
    widgets.expect(second.locator("dialog.help")).to_be_visible()
    widgets.expect(first.get_by_role("tab", name="Text")).to_have_attribute("aria-selected", "true")


def test_a_narrow_widget_has_its_heads_below_their_names(widgets: Explorer) -> None:
    """However wide the window is: the panel goes below, and columns are as wide as their cells."""
    host = widgets.page.locator(".host").nth(1)
    host.evaluate("one => { one.style.width = '560px' }")
    host.get_by_role("tab", name="All heads").click()
    host.locator("[data-head]").first.wait_for()
    off = host.locator(".grid").evaluate(
        """grid => {
          const middles = (selector) => [...grid.querySelectorAll(selector)].map((one) => {
            const { left, right } = one.getBoundingClientRect();
            return (left + right) / 2;
          });
          const cells = middles("tbody tr:first-child [data-head]");
          return middles("thead th").map((at, i) => Math.abs(at - cells[i]));
        }"""
    )
    assert len(off) == HEADS
    assert max(off) < 1
    grid, panel = (host.locator(one).bounding_box() for one in (".grid", ".head-panel"))
    assert panel["y"] > grid["y"] + grid["height"]
    assert host.locator(".scroll").evaluate("one => one.scrollWidth === one.clientWidth")


def test_a_widget_follows_the_theme_of_its_notebook(widgets: Explorer) -> None:
    """JupyterLab says which on its page; as long as it does, what the system prefers does not count."""
    themes = "all => all.map(one => one.dataset.theme)"
    shown = widgets.page.locator(".host .headlight")
    put = "theme => { document.body.dataset.jpThemeLight = theme }"
    widgets.page.evaluate(put, "false")
    widgets.becomes(lambda: shown.evaluate_all(themes), ["dark", "dark"])
    widgets.page.evaluate(put, "true")
    widgets.becomes(lambda: shown.evaluate_all(themes), ["light", "light"])
    widgets.page.emulate_media(color_scheme="dark")
    widgets.page.wait_for_timeout(100)
    assert shown.evaluate_all(themes) == ["light", "light"]
    widgets.page.evaluate("delete document.body.dataset.jpThemeLight")
    widgets.becomes(lambda: shown.evaluate_all(themes), ["dark", "dark"])
    assert shown.get_by_role("link", name="API documentation").count() == 0


def test_the_state_is_a_trait(widgets: Explorer) -> None:
    """A choice in the page reaches the kernel, and a closed widget leaves nothing on the page."""
    widgets.page.locator(".host").nth(0).locator('[data-position="2"]').click()
    widgets.becomes(lambda: widgets.page.evaluate("window.models[0].traits.state.pinned"), [2])
    assert widgets.page.evaluate("window.models[1].traits.state.pinned") == [3]
    widgets.page.evaluate("window.models[0].close()")
    assert widgets.page.locator(".host").nth(0).locator(".headlight").count() == 0
