"""The neuron view shows the queries, keys, scores and weights of the API, component by component."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.explorer.support.explored import THEMES, Explorer, number
from tests.support.serving import Service

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat."
HEAD, QUERY = (1, 2), 3
WIDTHS = (390, 1024, 1440)
LABELS, HIGH = 72, 18
"""Pixels: the room of labels, and the height of a row."""
TOLD = re.compile(r"(\S+) → (\S+): (?:(\S+) × (\S+) = (\S+); )?score (\S+), weight (\S+)")


def item_of(service: Service, **options: Any) -> dict[str, Any]:
    chosen = {"layers": [HEAD[0]], "heads": [HEAD[1]], "queries": [QUERY], "decimals": 9, **options}
    item: dict[str, Any] = service.attention(TEXT, outputs=["query", "key"], **chosen)["data"][0]
    return item


def told(tab: Explorer) -> tuple[str, ...]:
    """What is said of a cell: query, key, and five numbers, of which the first three may be missing."""
    found = TOLD.fullmatch(tab.page.locator("#view .told").inner_text())
    assert found
    return found.groups()


def differs(tab: Explorer, before: tuple[str, ...]) -> bool:
    """Whether something else is said now."""
    return told(tab) != before


def near(text: str, value: float) -> bool:
    """Whether a number is shown as the page rounds it."""
    return number(text) == pytest.approx(value, abs=6e-2 if abs(value) >= 10 else 6e-4)


@pytest.mark.parametrize("special", ["keep", "drop", "renormalize"])
@pytest.mark.parametrize("weights", ["probability", "rollout"])
def test_arrow_keys_tell_every_number(weights: str, special: str, tab: Explorer, served: Service) -> None:
    """Down the keys and along the components; of all tokens, whatever the maps are of."""
    tab.open(text=TEXT, view="neuron", heads=[HEAD], pinned=[QUERY], weights=weights, special=special)
    item, maps = item_of(served, weights="score"), item_of(served)["attention"][0][0][0]
    q, k = np.array(item["query_vectors"])[0, 0, 0], np.array(item["key_vectors"])[0, 0]
    scores, tokens = item["attention"][0][0][0], item["tokens"]
    frame = tab.page.locator(".difference-map")
    frame.focus()
    for key in range(len(tokens)):
        query, name, one, other, product, score, weight = told(tab)
        assert (query, name) == (tokens[QUERY], tokens[key])
        assert near(one, q[key])
        assert near(other, k[key, key])
        assert near(product, q[key] * k[key, key])
        assert near(score, scores[key])
        assert near(weight, maps[key])
        for press in ("ArrowDown", "ArrowRight"):
            tab.page.keyboard.press(press)
    for _ in range(2 * len(q) + 9):
        tab.page.keyboard.press("ArrowRight")
    assert told(tab)[2] is None, "the last columns are of the score and the weight"


def test_colours_are_those_of_the_numbers(tab: Explorer, served: Service) -> None:
    """Orange above 0, blue below, white at 0; of a block of columns the largest is the darkest."""
    tab.open(text=TEXT, view="neuron", heads=[HEAD], pinned=[QUERY], scale="linear", theme="light")
    item = item_of(served)
    q, k = np.array(item["query_vectors"])[0, 0, 0], np.array(item["key_vectors"])[0, 0]
    both = np.vstack([q, k])
    frame = tab.page.locator(".difference-map")
    tab.page.mouse.move(1, 1)
    frame.focus()
    for _ in range(len(both)):
        tab.page.keyboard.press("ArrowDown")  # away from most cells
    gap = -(-len(q) // 16)
    columns = 2 * len(q) + 6 * gap
    width = frame.bounding_box()["width"]
    assert frame.bounding_box()["height"] == LABELS + HIGH * len(both)
    most, cells, places = np.abs(both).max(), [], []
    for row in range(len(both) - 1):
        for column in range(1, len(q), 3):
            cells.append(both[row, column] / most)
            places.append([LABELS + (column + 0.5) * (width - LABELS) / columns, LABELS + (row + 0.5) * HIGH])
    read = """(canvas, places) => {
      const density = canvas.width / canvas.clientWidth;
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const at = (x, y) => 4 * (Math.floor(y * density) * canvas.width + Math.floor(x * density));
      return places.map(([x, y]) => [...data.slice(at(x, y), at(x, y) + 3)]);
    }"""
    pixels = tab.page.locator(".difference-map canvas").evaluate(read, places)
    for value, found in zip(cells, pixels, strict=True):
        end = np.array([24, 84, 160] if value < 0 else [178, 84, 8])
        assert np.abs(np.array(found) - (255 + abs(value) * (end - 255))).max() <= 3


def test_pointing_tells_what_is_there(tab: Explorer, served: Service) -> None:
    """A row is one key high."""
    tab.open(text=TEXT, view="neuron", heads=[HEAD], pinned=[QUERY])
    tokens = item_of(served)["tokens"]
    tab.page.locator(".difference-map canvas").wait_for()
    box = tab.page.locator(".difference-map").bounding_box()
    for key in (0, 4, len(tokens) - 1):
        tab.page.mouse.move(box["x"] + LABELS + 20, box["y"] + LABELS + (key + 1.5) * HIGH)
        tab.becomes(lambda: told(tab)[1], tokens[key])


def test_a_cell_is_of_its_map(tab: Explorer, served: Service) -> None:
    """Of another head or query, the cell that was pointed at is none of its cells: the first is told."""
    tab.open(text=TEXT, view="neuron", heads=[HEAD], pinned=[QUERY])
    tokens = item_of(served)["tokens"]
    for key in ("]", "["):  # both maps are kept
        before = told(tab)
        tab.page.keyboard.press(key)
        tab.becomes(partial(differs, tab, before), expected=True)
    tab.page.locator(".difference-map").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        tab.page.keyboard.press(key)
    assert told(tab)[1] == tokens[2]
    tab.page.keyboard.press("]")
    tab.becomes(lambda: told(tab)[1], tokens[0])
    k = np.array(item_of(served, layers=[HEAD[0] + 1])["key_vectors"])[0, 0]
    assert near(told(tab)[3], k[0, 0])


def test_words_have_no_vectors(tab: Explorer) -> None:
    """The view says so, and what to choose."""
    tab.open(text=TEXT, view="neuron", heads=[HEAD], pinned=[QUERY], level="word")
    tab.expect(tab.page.locator("#view .problem")).to_contain_text("set level to")
    assert any("422" in one for one in tab.problems)
    tab.problems.clear()


@pytest.fixture(params=[(theme, width) for theme in THEMES for width in WIDTHS], ids=str)
def sized(request: pytest.FixtureRequest, browser: Any, served: Service) -> Iterator[Explorer]:
    """A tab in each theme and at each width."""
    theme, width = request.param
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=theme)
    yield Explorer(context.new_page(), served.url)
    context.close()


@pytest.mark.in_turns
def test_axe_finds_nothing_and_nothing_spills(sized: Explorer) -> None:
    """At the width of a phone, of a small window and of a usual one."""
    from axe_playwright_python.base import AXE_SCRIPT

    sized.open(text=TEXT, view="neuron", heads=[HEAD], pinned=[QUERY])
    sized.page.locator(".difference-map canvas").wait_for()
    sized.page.evaluate(str(AXE_SCRIPT))
    found = sized.page.evaluate("axe.run().then(({ violations }) => violations.map(one => one.id))")
    assert found == []
    assert sized.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
