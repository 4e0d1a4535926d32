"""Pointing at something moves nothing: what it shows has its room before it comes."""

import pytest

from tests.explorer.support.explored import Explorer

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
MOVED = f"""async () => {{
  // What follows the pointer is drawn with the next frame.
  for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
  const boxes = ({BOXES})();
  const before = window.boxes ??= boxes;
  const moved = boxes.flatMap((box, i) => (box === before[i] ? [] : [`${{before[i]}} is now ${{box}}`]));
  return {{ all: boxes.length, moved, gone: before.length - boxes.length, text: view.innerText }};
}}"""
"""What moved since this was first asked, and what the view says."""
POINTS = 12


@pytest.fixture(params=SIZES, ids=str)
def sized(request: pytest.FixtureRequest, tab: Explorer) -> Explorer:
    """A tab of each size, with scroll bars."""
    width, height = request.param
    tab.page.set_viewport_size({"width": width, "height": height})
    tab.page.emulate_media(reduced_motion="reduce")
    return tab


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


@pytest.mark.in_turns
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
    assert sized.page.evaluate(MOVED)["all"] > 50
    shown = set()
    for x, y in [*points, (1, 1)]:
        sized.page.mouse.move(x, y)
        now = sized.page.evaluate(MOVED)
        assert (now["moved"], now["gone"]) == ([], 0), (x, y)
        if (x, y) != (1, 1):
            shown.add(now["text"])
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
