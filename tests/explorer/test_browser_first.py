"""What somebody sees first: something is pinned, and the page says why; results have most of the window."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.explorer.support.explored import Explorer, state_of, weight_text
from tests.explorer.support.planted import WORDS
from tests.explorer.support.reading import maps
from tests.references.checkpoints import write_bert
from tests.support.serving import Service, serve

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat and the dog ran on the mat."
COMMON = ("self", "previous", "next", "special")
SHAPES = ((2, 2), (6, 12), (12, 12), (24, 16))
"""Layers and heads of models of which the grid fits a screen."""
DRAWN = """() => {
  window.drawn = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    window.drawn.push([this.canvas.closest(".matrix") !== null, text]);
    return fillText.call(this, text, ...place);
  };
}"""


def telling(served: Service) -> tuple[list[int], int, int, float]:
    """A head, a query, a key and the weight, from the API's numbers."""
    item = served.attention(TEXT, summary=True)["data"][0]
    summary = {name: np.array(values) for name, values in item["summary"].items()}
    far = np.maximum(0, 1 - sum(summary[name] for name in COMMON))
    layer, head = np.unravel_index((summary["confidence"] * far).argmax(), far.shape)
    map_ = np.array(item["attention"])[layer, head]
    special = np.array(item["special"], dtype=bool)
    places = np.arange(len(map_))
    out = special[:, None] | special | (np.abs(places[:, None] - places) < 2)
    query, key = np.unravel_index(np.where(out, -1, map_).argmax(), map_.shape)
    return [int(layer), int(head)], int(query), int(key), float(map_[query, key])


def test_the_first_answer_has_a_pin_and_a_reason(tab: Explorer, served: Service) -> None:
    """The head and the token that tell most, by the API's statistics, until something else is chosen."""
    head, query, key, weight = telling(served)
    tab.open()
    tab.page.get_by_role("textbox", name="Text", exact=True).fill(TEXT)
    tab.page.keyboard.press("Enter")
    tab.link_has(text=TEXT, heads=[head], pinned=[query])
    tab.becomes(tab.steps, head)
    tab.becomes(tab.pinned, [query])
    words = tab.page.locator(".token").all_inner_texts()
    note = tab.page.locator(".note.above")
    tab.expect(note).to_contain_text(f"L{head[0]} H{head[1]}")
    tab.expect(note).to_contain_text(f"“{words[query]}”, which looks at “{words[key]}” with")
    assert abs(float(note.inner_text().rstrip(".").rpartition(" ")[2]) - weight) < 1.5e-3
    tab.token(query).focus()  # in the field, Esc is the field's
    tab.page.keyboard.press("Escape")
    tab.expect(note).to_have_count(0)
    tab.becomes(tab.pinned, [])
    tab.link_has(text=TEXT, pinned=None)
    tab.page.go_back()
    tab.link_has(text=TEXT, pinned=[query])
    tab.page.go_back()
    tab.expect(tab.page.locator(".welcome")).to_have_count(1)


def test_what_a_link_chooses_stays(tab: Explorer) -> None:
    """A head without a pin is a choice; and so is a text that is entered after a head was chosen."""
    tab.open(text=TEXT, heads=[[2, 3]])
    tab.becomes(tab.pinned, [])
    tab.page.get_by_role("textbox", name="Text", exact=True).fill("A dog ran.")
    tab.page.keyboard.press("Enter")
    tab.expect(tab.page.locator(".token")).to_have_count(6)
    tab.becomes(tab.steps, [2, 3])
    assert tab.page.locator(".note.above").count() == 0
    assert state_of(tab.page.url).get("pinned") is None


def test_the_frame_leaves_room_for_results(tab: Explorer) -> None:
    """What is above and below them has at most 200 of 900 pixels, for a pair too."""
    for fields in ({}, {"pair": "A dog ran."}):
        tab.open(text=TEXT, **fields)
        above, below = tab.page.evaluate(
            """[
              document.querySelector(".tabs").getBoundingClientRect().bottom,
              document.querySelector(".footer").offsetHeight,
            ]"""
        )
        assert above + below <= 200, fields


def test_a_matrix_names_some_tokens_where_cells_are_small(browser: Any, served: Service) -> None:
    """Every fifth, say, with its position, as far apart as lines of text."""
    context = browser.new_context(viewport={"width": 1440, "height": 500})
    tab = Explorer(context.new_page(), served.url)
    tab.page.add_init_script(f"({DRAWN})()")
    words = [WORDS[i % len(WORDS)] for i in range(60)]
    tab.open(text=" ".join(words), view="matrix")
    tab.expect(tab.page.locator(".matrix")).to_have_attribute("aria-busy", "false")
    drawn = [text for own, text in tab.page.evaluate("window.drawn") if own]
    named = {int(one.split(" ")[1]): one.split(" ")[0] for one in drawn if re.fullmatch(r"\S+ \d+", one)}
    assert len(named) > 5
    positions = sorted(named)
    assert len({b - a for a, b in pairwise(positions)}) == 1
    assert all(named[at] == ["[CLS]", *words, "[SEP]"][at] for at in positions)
    context.close()


@pytest.fixture(scope="module")
def grids(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service of models with few and with many heads."""
    folder = tmp_path_factory.mktemp("models")
    places: list[Path] = []
    for layers, heads in SHAPES:
        places.append(folder / f"grid-{layers}-{heads}")
        sizes: dict[str, Any] = {"num_hidden_layers": layers, "num_attention_heads": heads}
        write_bert(places[-1], seed=5, words=WORDS, hidden_size=8 * heads, **sizes)
    with serve(model=",".join(f"{place.name}={place}" for place in places)) as started:
        yield started.url


@pytest.mark.parametrize("cells", ["maps", "entropy"])
def test_all_heads_fit_a_screen(browser: Any, grids: str, cells: str) -> None:
    """From 2 to 24 layers, above the footer; and no cell is too small to be hit."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    tab = Explorer(context.new_page(), grids)
    for layers, heads in SHAPES:
        tab.open(text=TEXT, view="heads", cells=cells, model=f"grid-{layers}-{heads}")
        found = tab.page.locator("[data-head]")
        tab.expect(found).to_have_count(layers * heads)
        last = found.last.bounding_box()
        footer = tab.page.locator(".footer").bounding_box()
        assert last["y"] + last["height"] <= footer["y"] + 1, (layers, heads)
        assert min(last["width"], last["height"]) >= 20
        assert last["x"] + last["width"] <= 1440
    context.close()


def test_lines_scroll_to_the_pin(browser: Any, served: Service) -> None:
    """Which another view has, or the link."""
    context = browser.new_context(viewport={"width": 1024, "height": 500})
    tab = Explorer(context.new_page(), served.url)
    text = " ".join(WORDS[i % len(WORDS)] for i in range(60))
    tab.open(text=text, view="lines", pinned=[55])
    frame = tab.page.locator(".lines")
    tab.becomes(lambda: frame.evaluate("one => Number(one.scrollTop > 0)"), 1)
    row, top, height = 20, 30, frame.evaluate("one => one.clientHeight")
    scrolled = frame.evaluate("one => one.scrollTop")
    assert scrolled - top <= 55 * row <= scrolled + height
    context.close()


def test_texts_of_a_comparison_are_as_wide_as_the_page(tab: Explorer) -> None:
    """One below the other, so that what differs stands at the same place; their tables are side by side."""
    tab.open(text=TEXT, view="compare", besideText=TEXT.replace("dog", "cat"), besideView="text")
    tab.expect(tab.page.locator(".tokens")).to_have_count(2)
    first, second = (one.bounding_box() for one in tab.page.locator(".tokens").all())
    assert first["x"] == second["x"]
    assert first["y"] + first["height"] <= second["y"]
    assert min(first["width"], second["width"]) >= 1300
    left, right = (one.bounding_box() for one in tab.page.locator(".row-table").all())
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]


def test_numbers_are_written_in_one_way(tab: Explorer, served: Service) -> None:
    """A weight of the matrix's sentence is that of the table beside it."""
    tab.open(text=TEXT, view="matrix", heads=[[1, 2]], pinned=[3])
    row = maps(served, TEXT)[1, 2, 3]
    tab.page.locator(".matrix").focus()
    for key in ("Home", *("ArrowDown",) * 3, *("ArrowRight",) * int(row.argmax())):
        tab.page.keyboard.press(key)
    weight = weight_text(float(np.float16(row.max())))
    tab.expect(tab.page.locator("#view .told")).to_contain_text(f": {weight}. ")
    tab.expect(tab.page.locator(".row-table tbody tr").first).to_contain_text(weight)
