"""Pointing at something moves nothing: what it shows has its room before it comes."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.explorer.support.explored import Explorer
from tests.support.serving import Service

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat and the dog ran on the mat and the cat sat on a dog."
PAIR = "The dog ran."
SIZES = ((390, 844), (1024, 768), (1440, 900), (720, 450))
"""A phone, a small window, a usual one, and that one at twice the size."""
POINTED = {
    "text": ".token",
    "heads": "[data-head]",
    "fingerprints": ".scatter",
    "lines": ".lines",
    "matrix": ".matrix",
    "flow": ".flow",
    "neuron": ".difference-map",
    "pairs": "[data-head]",
    "table": ".heads-table tbody tr",
    "why": ".why-view .token",
    "compare": ".sides .token",
}
"""What is pointed at in each view."""
BOXES = """() => [...document.querySelectorAll(".headlight, .headlight *")]
  .filter(one => one.matches(".token") || getComputedStyle(one).display !== "inline")
  .filter(one => !one.closest("svg, .told > *, caption > *, .unseen"))
  .map(one => {
    const { x, y, width, height } = one.getBoundingClientRect();
    return [one.localName, x, y, width, height].join(" ");
  })"""
POINTS = 12


@pytest.fixture(params=SIZES, ids=str)
def sized(request: pytest.FixtureRequest, browser: Any, served: Service) -> Iterator[Explorer]:
    """A tab of each size, with scroll bars."""
    width, height = request.param
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="light", reduced_motion="reduce"
    )
    explorer = Explorer(context.new_page(), served.url)
    yield explorer
    found = explorer.found()
    context.close()
    assert found == []


def places(tab: Explorer, selector: str) -> list[tuple[float, float]]:
    """Points in the window on what can be pointed at: on each of some elements, or on many points of one."""
    found = tab.page.locator(selector)
    found.first.scroll_into_view_if_needed()
    boxes = [one.bounding_box() for one in found.all()[:: max(1, found.count() // POINTS)]]
    height = tab.page.viewport_size["height"]
    if len(boxes) == 1:
        box = boxes[0]
        steps = [(i + 0.5) / POINTS for i in range(POINTS)]
        points = [(box["x"] + at * box["width"], box["y"] + at * box["height"]) for at in steps]
    else:
        points = [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes]
    return [(x, y) for x, y in points if 0 < y < height]


@pytest.mark.parametrize("view", POINTED)
def test_pointing_moves_nothing(sized: Explorer, view: str) -> None:
    """In no view, at no size, though scroll bars take room: every box stays where it is."""
    pair = {"pair": PAIR} if view in ("pairs", "why") else {}
    beside = {"besideText": f"{TEXT} A dog."} if view == "compare" else {}
    sized.open(text=TEXT, heads=[[1, 1]], view=view, **pair, **beside)
    sized.expect(sized.page.locator("#view progress")).to_have_count(0)
    points = places(sized, POINTED[view])
    assert len(points) > 1
    sized.page.wait_for_timeout(100)
    before = sized.page.evaluate(BOXES)
    shown = set()
    for x, y in points:
        sized.page.mouse.move(x, y)
        sized.page.wait_for_timeout(30)
        assert sized.page.evaluate(BOXES) == before, (x, y)
        shown.add(sized.page.locator("#view").inner_text())
    sized.page.mouse.move(1, 1)
    sized.page.wait_for_timeout(30)
    assert sized.page.evaluate(BOXES) == before
    if view in ("text", "lines", "matrix", "compare"):
        assert len(shown) > 1, "the view follows the pointer"


def test_scroll_bars_are_there(sized: Explorer) -> None:
    """Or else the test above would miss what they move."""
    sized.open(text=TEXT, heads=[[1, 1]], view="table")
    assert sized.page.evaluate("innerWidth - document.body.clientWidth") > 5


def test_a_window_of_1024_pixels_has_two_columns(sized: Explorer) -> None:
    """Beside its scroll bar too: the table of weights stands beside the text."""
    sized.open(text=TEXT, heads=[[1, 1]])
    text, table = (sized.page.locator(one).bounding_box() for one in (".tokens", ".row-table"))
    beside = table["x"] > text["x"] + text["width"]
    assert beside == (sized.page.viewport_size["width"] >= 1024)
