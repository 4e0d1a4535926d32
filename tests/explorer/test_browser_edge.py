"""An edge is a pinned query and a pinned key: each head has one weight of it, which grid and table follow."""

import re
from typing import Any

import numpy as np
import pytest

from tests.explorer.support.explored import THEMES, Explorer, weight_text
from tests.explorer.support.planted import HEADS, LAYERS
from tests.explorer.support.reading import maps
from tests.explorer.test_browser_access import SPILL, axe, looking, violations
from tests.support.serving import Service

pytestmark = pytest.mark.deploy
__all__ = ["axe"]

TEXT = "The cat sat on the mat."
PAIR = ("The cat sat.", "A dog ran on.")
QUERY, KEY = 3, 2
TITLE = "“sat” → “cat”"
IDS = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
EDGE: dict[str, Any] = {"text": TEXT, "edge": "on", "pinned": [QUERY, KEY]}
ROWS = "all => all.map(row => [...row.cells].map(cell => cell.innerText))"


def ranked(served: Service, **options: object) -> list[tuple[int, int]]:
    """The heads, those with most of the edge first."""
    found = maps(served, **options)[:, :, QUERY, KEY]
    return sorted(IDS, key=lambda id_: (-found[id_], id_))


def test_what_the_page_pinned_by_itself_is_no_query(tab: Explorer) -> None:
    """An edge begins with a token of one's own choice, one that was pinned before too."""
    tab.open()
    tab.page.get_by_role("textbox", name="Text", exact=True).fill(TEXT)
    tab.page.keyboard.press("Enter")
    tab.becomes(lambda: len(tab.pinned()), 1)
    edge = tab.page.get_by_role("radio", name="an edge")
    edge.check(force=True)
    tab.becomes(tab.pinned, [])
    for position in (QUERY, KEY):
        tab.token(position).click()
    tab.link_has(pinned=[QUERY, KEY], cells="edge")
    tab.page.get_by_role("radio", name="where it looks").check(force=True)
    tab.token(KEY).click()
    edge.check(force=True)
    tab.becomes(tab.pinned, [KEY])


@pytest.mark.parametrize("way", ["mouse", "keyboard", "matrix"])
def test_two_pins_are_an_edge(tab: Explorer, served: Service, way: str) -> None:
    """A token and one that it looks at, or a cell of the matrix; its weight and its rank are told beside."""
    tab.open(text=TEXT, heads=[[1, 2]], view="matrix" if way == "matrix" else "text")
    tab.page.get_by_role("radio", name="an edge").check(force=True)
    if way == "matrix":
        frame = tab.page.locator(".matrix")
        frame.focus()
        for key in ["ArrowDown"] * QUERY + ["ArrowRight"] * KEY:
            frame.press(key)
        frame.press("Enter")
    else:
        for position in (QUERY, KEY):
            if way == "mouse":
                tab.token(position).click()
            else:
                tab.token(position).press("Enter")
    tab.link_has(edge="on", pinned=[QUERY, KEY], cells="edge", sort="-edge")
    weight = maps(served)[1, 2, QUERY, KEY]
    rank = ranked(served).index((1, 2)) + 1
    tab.expect(tab.page.locator(".edge-weight")).to_have_text(
        f"{TITLE}: {weight_text(weight)} in L1 H2, rank {rank} of {len(IDS)}."
    )
    caption = tab.page.locator(".row-table caption").first
    tab.expect(caption).to_have_text(re.compile("From.*“sat”"))
    rows = tab.page.locator(".ranked tbody tr").evaluate_all(ROWS)
    found = maps(served)
    assert rows == [
        [str(i + 1), f"L{layer} H{head}", weight_text(found[layer, head, QUERY, KEY])]
        for i, (layer, head) in enumerate(ranked(served)[:10])
    ]


def test_a_third_pin_begins_another_edge(tab: Explorer) -> None:
    """And Esc takes out both."""
    tab.open(**EDGE)
    tab.token(6).click()
    tab.link_has(pinned=[6])
    tab.expect(tab.page.locator(".edge-weight")).to_have_text("Pin the token that it looks at.")
    tab.token(6).click()
    tab.link_has(pinned=[6, 6])  # what a token gives itself is an edge, too
    tab.expect(tab.page.locator(".edge-weight")).to_have_text(re.compile("^“mat” → “mat”: "))
    tab.page.keyboard.press("Escape")
    tab.link_has(pinned=None)


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {}),
        ({"weights": "score"}, {"weights": "score"}),
        ({"weights": "value_norm"}, {"weights": "value_norm"}),
        ({"weights": "rollout"}, {}),
    ],
)
def test_grid_and_table_have_the_weight_of_every_head(
    tab: Explorer, served: Service, fields: dict[str, str], options: dict[str, object]
) -> None:
    """The API's numbers; the table is sorted by them, and each cell says its rank."""
    tab.open(**EDGE, **fields, view="heads", cells="edge", sort="-edge")
    found = maps(served, **options)[:, :, QUERY, KEY]
    order = ranked(served, **options)
    tab.expect(tab.page.locator(".ranked tbody tr").first).not_to_contain_text("–")
    for layer, head in IDS:
        cell = tab.page.locator(f'[data-head="{layer},{head}"]')
        text = weight_text(found[layer, head])
        assert cell.inner_text() == text
        rank = order.index((layer, head)) + 1
        assert cell.get_attribute("aria-label") == (
            f"L{layer} H{head}: {TITLE} {text}, rank {rank} of {len(IDS)}"
        )
    tab.tab("Table")
    header = tab.page.get_by_role("columnheader", name=TITLE)
    assert header.get_attribute("aria-sort") == "descending"
    rows = tab.page.locator(".heads-table tbody tr").evaluate_all(ROWS)
    assert [row[:2] for row in rows] == [
        [f"L{layer} H{head}", weight_text(found[layer, head])] for layer, head in order
    ]


def test_without_an_edge_the_grid_has_maps(tab: Explorer) -> None:
    """Also if the link wants the weights of one."""
    tab.open(text=TEXT, view="heads", cells="edge", pinned=[QUERY])
    tab.expect(tab.page.locator("[data-head] canvas")).to_have_count(len(IDS))
    assert tab.page.get_by_label("Cells show").input_value() == "maps"


@pytest.mark.parametrize("block", ["aa", "ab", "ba", "bb"])
def test_lines_lead_from_text_to_text(tab: Explorer, served: Service, block: str) -> None:
    """Those of a block alone: of each token of the one text, the fewest of the other with 70 % of that."""
    tab.open(text=PAIR[0], pair=PAIR[1], view="lines", heads=[[1, 1]])
    tab.page.get_by_role("combobox", name="Lines lead").select_option(block)
    tab.link_has(linesOf=block)
    item = served.attention([PAIR])["data"][0]
    segments, special = np.array(item["segment_ids"]), np.array(item["special"], dtype=bool)
    texts = [(segments == text) & ~special for text in (0, 1)]
    part = np.array(item["attention"])[1, 1][texts["ab".index(block[0])]][:, texts["ab".index(block[1])]]
    expected = 0
    for row in part:
        sums = np.cumsum(np.sort(row)[::-1])
        expected += int(np.searchsorted(sums, 0.7 * sums[-1] * (1 - 1e-4))) + 1
    tab.expect(tab.page.locator(".lines-legend li .faint")).to_have_text(f"{expected} lines")


@pytest.mark.in_turns
@pytest.mark.parametrize("width", [390, 1024, 1440])
@pytest.mark.parametrize("theme", THEMES)
def test_it_is_accessible_and_fits(tab: Explorer, axe: str, theme: str, width: int) -> None:
    """Axe finds nothing in any view that follows an edge, and nothing spills."""
    looking(tab, theme, width)
    for view in ("text", "heads", "matrix", "lines", "table"):
        tab.open(**{**EDGE, "text": PAIR[0], "pair": PAIR[1]}, view=view, cells="edge", linesOf="ab")
        assert violations(tab, axe) == [], view
        wide = tab.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert (tab.page.evaluate(SPILL) if wide else []) == [], view
