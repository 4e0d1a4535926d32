"""The page is usable without sight, without colour, and on a phone: axe finds nothing, and nothing spills."""

from typing import Any

import pytest

from tests.explorer.support.explored import THEMES, WIDTHS, Explorer
from tests.support.serving import Service

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat."
FIELDS = {"text": TEXT, "pinned": [3], "heads": [[0, 1], [1, 2]]}
SPILL = """() => [...document.querySelectorAll("body *")]
  .filter(one => !one.closest(".scroll, dialog, .unseen"))
  .filter(one => one.getBoundingClientRect().right > innerWidth + 1)
  .map(one => one.outerHTML.slice(0, 120))"""

HIGHLIGHT = """() => {
  const one = document.body.appendChild(document.createElement("i"));
  Object.assign(one.style, { backgroundColor: "Highlight", forcedColorAdjust: "none" });
  const { backgroundColor } = getComputedStyle(one);
  one.remove();
  return backgroundColor;
}"""


@pytest.fixture(scope="module")
def axe(browser: Any) -> str:
    """The script of axe; it runs where the page's policy does not reach."""
    from axe_playwright_python.base import AXE_SCRIPT

    return str(AXE_SCRIPT)


def looking(tab: Explorer, theme: str, width: int, height: int = 800) -> Explorer:
    """The tab in a theme, as the system has it, and in a window of this size."""
    tab.page.set_viewport_size({"width": width, "height": height})
    tab.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    return tab


@pytest.fixture(params=[(theme, width) for theme in THEMES for width in WIDTHS], ids=str)
def sized(request: pytest.FixtureRequest, tab: Explorer) -> Explorer:
    """A tab in each theme, as the system has it, and at each width."""
    theme, width = request.param
    return looking(tab, theme, width)


def violations(tab: Explorer, axe: str) -> list[str]:
    """What axe finds, each with the first of its elements."""
    if not tab.page.evaluate("'axe' in window"):
        tab.page.evaluate(axe)
    found = tab.page.evaluate("axe.run({ resultTypes: ['violations'] }).then(({ violations }) => violations)")
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]


@pytest.mark.in_turns
def test_axe_finds_nothing(sized: Explorer, axe: str) -> None:
    """In any view, before a text, in the help, and where something went wrong."""
    found: dict[str, list[str]] = {}
    sized.open()
    found["welcome"] = violations(sized, axe)
    sized.open(**FIELDS)
    for name in sized.tabs():
        sized.tab(name)
        found[name] = violations(sized, axe)
    sized.page.get_by_role("button", name="Help and keys").click()
    found["help"] = violations(sized, axe)
    sized.open(text=TEXT, prompt="none of its prompts")
    sized.page.get_by_role("alert").wait_for()
    found["problem"] = violations(sized, axe)
    # The browser tells of that refusal, too.
    sized.problems[:] = [one for one in sized.problems if "422 (Unprocessable" not in one]
    assert {name: some for name, some in found.items() if some} == {}


OLDER: dict[str, dict[str, Any]] = {
    "text": {"pinned": [1, 3]},
    "heads": {},
    "fingerprints": {},
    "lines": {"linesOf": "ab"},
    "matrix": {},
    "flow": {},
    "pairs": {},
    "table": {"sort": "-entropy"},
}
"""Views that have no such test in a file of their own, and what is chosen in each."""


@pytest.mark.in_turns
@pytest.mark.parametrize("width", [390, 1024])
@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_in_any_state(tab: Explorer, axe: str, theme: str, width: int) -> None:
    """Of a pair, with the keyboard in the view, of rollouts and of scores, and in the dialog of exports."""
    looking(tab, theme, width)
    found: dict[str, list[str]] = {}
    for weights in ("probability", "rollout", "score"):
        for view, chosen in OLDER.items():
            tab.open(**{**FIELDS, **chosen}, pair="The dog ran.", view=view, weights=weights)
            where = tab.page.locator("#view [tabindex='0']").first
            if where.count():
                where.focus()
                tab.page.keyboard.press("ArrowDown")
            found[f"{view} {weights}"] = violations(tab, axe)
    tab.page.get_by_role("button", name="Export").click()
    found["export"] = violations(tab, axe)
    assert {name: some for name, some in found.items() if some} == {}


@pytest.mark.in_turns
def test_nothing_spills_over_the_edge(sized: Explorer) -> None:
    """No view is wider than the screen; what is wide scrolls within itself."""
    sized.open(**FIELDS)
    found = {}
    for name in sized.tabs():
        sized.tab(name)
        wide = sized.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        found[name] = sized.page.evaluate(SPILL) if wide else []
    assert {name: some for name, some in found.items() if some} == {}


def test_colours_of_the_system_do(browser: Any, served: Service) -> None:
    """With forced colours a pinned token still differs from the others."""
    context = browser.new_context(forced_colors="active")
    tab = Explorer(context.new_page(), served.url)
    tab.open(**FIELDS)
    look = "one => { const s = getComputedStyle(one); return [s.outline, s.border, s.fontWeight].join(); }"
    tab.becomes(tab.pinned, [3])
    assert tab.token(3).evaluate(look) != tab.token(4).evaluate(look)
    context.close()


def test_forced_colours_show_what_is_chosen(browser: Any, served: Service) -> None:
    """Of tabs, directions and heads; every button has an edge, and the focus a ring."""
    context = browser.new_context(forced_colors="active")
    tab = Explorer(context.new_page(), served.url)
    tab.open(**FIELDS)
    ground = "one => getComputedStyle(one).backgroundColor"
    text, heads = (tab.page.get_by_role("tab", name=name) for name in ("Text", "All heads"))
    one, other = (tab.page.locator(".switch label > span").nth(i) for i in range(2))
    highlight = tab.page.evaluate(HIGHLIGHT)
    assert [part.evaluate(ground) for part in (text, one)] == [highlight] * 2
    assert highlight not in [part.evaluate(ground) for part in (heads, other)]
    edge = "one => getComputedStyle(one).border"
    assert "0px" not in tab.page.get_by_role("button", name="Export").evaluate(edge)
    tab.page.keyboard.press("Tab")
    outline = tab.page.evaluate("getComputedStyle(document.activeElement).outline")
    assert "none" not in outline
    tab.tab("All heads")
    look = "one => { const s = getComputedStyle(one); return s.border + s.outline; }"
    chosen, not_chosen = (tab.page.locator(f'[data-head="{head}"]') for head in ("1,2", "2,2"))
    assert chosen.evaluate(look) != not_chosen.evaluate(look)
    context.close()


def test_the_chosen_tab_is_in_view_on_a_phone(browser: Any, served: Service) -> None:
    """All of it, whether a link or an arrow key chose it, and the page does not scroll to it."""
    context = browser.new_context(viewport={"width": 360, "height": 800})
    tab = Explorer(context.new_page(), served.url)
    inside = """() => {
      const list = document.querySelector(".tabs").getBoundingClientRect();
      const tab = document.querySelector("[role=tab][aria-selected=true]").getBoundingClientRect();
      return tab.left >= list.left - 1 && tab.right <= list.right + 1 && scrollY === 0;
    }"""
    for view in ("heads", "lines", "matrix", "flow", "pairs", "table", "compare"):
        tab.open(**FIELDS, view=view)
        assert tab.page.evaluate(inside), view
    for name in ("Flow", "Lines", "Fingerprints", "Text"):
        tab.tab(name)
        tab.page.evaluate("scrollTo(0, 0)")
        assert tab.page.evaluate(inside), name
    context.close()


def test_an_edge_fades_where_there_is_more(browser: Any, served: Service) -> None:
    """Of the tabs and of what is wide, as long as it is cut off; where all is seen, nothing fades."""
    context = browser.new_context(viewport={"width": 360, "height": 800})
    tab = Explorer(context.new_page(), served.url)
    tab.open(**FIELDS, view="table")
    wide = tab.page.locator(".tabs, .scroll")
    masks = """all => all.map(one => {
      const { maskImage, maskPosition } = getComputedStyle(one);
      return maskImage === "none" ? "" : Math.round(parseFloat(maskPosition) / 10) * 10;
    })"""
    for scrolled, place in (("0", 100), ("one.scrollWidth", 0)):
        wide.evaluate_all(f"all => all.forEach(one => {{ one.scrollLeft = {scrolled} }})")
        tab.becomes(lambda: wide.evaluate_all(masks), [place, place])
    tab.page.set_viewport_size({"width": 1440, "height": 800})
    tab.becomes(lambda: wide.evaluate_all(masks), ["", ""])
    context.close()


def test_names_of_rows_stay_in_view(browser: Any, served: Service) -> None:
    """However far a table is moved to the side; and the page's last line lies over what is below it."""
    context = browser.new_context(viewport={"width": 360, "height": 800})
    tab = Explorer(context.new_page(), served.url)
    tab.open(**FIELDS, view="table")
    name = tab.page.locator(".heads-table tbody th").first
    before = name.bounding_box()["x"]
    tab.page.locator(".scroll").evaluate("one => { one.scrollLeft = one.scrollWidth }")
    padding = 3  # of the frame, which moves with what is in it
    assert abs(name.bounding_box()["x"] - before) <= padding
    on_top = """one => {
      const { left, top } = one.getBoundingClientRect();
      return document.elementFromPoint(left + 8, top + 20)?.closest(".footer, .heads-table")?.className;
    }"""
    tab.page.set_viewport_size({"width": 1440, "height": 800})
    assert tab.page.locator(".footer").evaluate(on_top) == "footer"
    context.close()


def test_images_have_summaries(tab: Explorer) -> None:
    """A canvas is an image with a label, or is hidden beside what says the same."""
    tab.open(**FIELDS)
    for name in tab.tabs():
        tab.tab(name)
        silent = tab.page.locator("canvas:not([aria-hidden=true])").evaluate_all(
            "all => all.filter(one => one.getAttribute('role') !== 'img' || !one.ariaLabel).length"
        )
        assert silent == 0, name


def test_a_list_has_one_stop_for_the_tab_key(tab: Explorer) -> None:
    """Tokens, cells and tabs are reached with one press, and left with the next."""
    tab.open(**FIELDS)
    assert tab.page.locator('.token[tabindex="0"]').count() == 1
    assert tab.page.locator('[role="tab"][tabindex="0"]').count() == 1
    tab.tab("All heads")
    assert tab.page.locator('[data-head][tabindex="0"]').count() == 1
