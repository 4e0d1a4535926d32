"""What the view Why looks like, and what is taken away of it."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.explorer.support.explained import (
    CASES,
    CELLS,
    GRID,
    LABELS,
    UNITS,
    served,
    shown_scores,
    swept,
    told_units,
)
from tests.explorer.support.explored import THEMES, Explorer
from tests.explorer.test_browser_access import SPILL, axe, looking, violations
from tests.explorer.test_browser_exports import EDGE, SVG

pytestmark = pytest.mark.deploy
__all__ = ["axe", "served"]

TEXTS = "all => all.map(one => one.innerText.trim())"
GROUNDS = "all => all.map(one => getComputedStyle(one).backgroundColor)"


def test_special_tokens_stand_apart_from_words(tab: Explorer) -> None:
    """Before the first word and after the last; between words stands what stands there in the text."""
    tab.open(**CASES["encoder"], model="encoder", view="why")
    told_units(tab)
    shown = tab.page.get_by_role("listbox").evaluate_all(TEXTS)
    assert shown == ["[CLS] The cat sat on the mat. [SEP]", "[CLS] A dog ran. [SEP]"]


@pytest.fixture
def dialog(tab: Explorer) -> Explorer:
    """The page with the dialog open, over a pair with a head ablated and the effects of all."""
    tab.open(**CASES["encoder"], model="encoder", view="why", effects="on", ablated=[[0, 2]])
    swept(tab)
    told_units(tab)
    shown_scores(tab)
    tab.page.get_by_role("button", name="Export").click()
    return tab


def saved(tab: Explorer, button: str) -> Path:
    """The file that a button saves."""
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name=button, exact=True).click()
    return Path(download.value.path())


def test_it_is_exported_as_pictures(dialog: Explorer) -> None:
    """A PNG of three pixels for each of the drawing's, which has the texts and grounds of the view."""
    from PIL import Image

    page = dialog.page
    page.get_by_role("combobox", name="What").select_option("true")
    root = ElementTree.parse(saved(dialog, "SVG")).getroot()  # noqa: S314
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    box = page.locator("#view").bounding_box()
    assert 0 <= box["width"] + 2 * EDGE - width <= 100  # without the empty room at its edges
    page.get_by_role("combobox", name="Pixels of the PNG").select_option("3")
    with Image.open(saved(dialog, "PNG")) as image:
        assert image.size == (3 * width, 3 * height)
        colours = image.convert("RGB").resize((600, 600)).getcolors(maxcolors=600**2)
    assert colours is not None
    assert len(colours) > 100
    texts = {"".join(one.itertext()).strip() for one in root.iter(f"{SVG}text")}
    seen = ".why-scores :is(th, .number), .why-view .differences td, .why-view .grid :is(th, .cell)"
    for shown in (seen, ".colour-bar span", UNITS):
        assert set(page.locator(shown).evaluate_all(TEXTS)) <= texts, shown
    fills = {one.attrib.get("fill") for one in root.iter(f"{SVG}rect")}
    assert set(page.locator(f"{UNITS}, {GRID} span").evaluate_all(GROUNDS)) <= fills


def test_it_is_exported_as_a_page(dialog: Explorer, browser: Any) -> None:
    """Which opens without a network, and shows the same numbers."""
    content = saved(dialog, "HTML page").read_text(encoding="utf-8")
    data = re.search('id="headlight-data">(.*?)</script>', content, flags=re.DOTALL)
    assert data is not None
    assert {key.partition(" ")[0] for key in json.loads(data[1])["answers"]} == {"/similarity", "/explain"}
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.set_content(content)
    page.locator(UNITS).first.wait_for()
    for shown, read in ((UNITS, LABELS), (GRID, LABELS), (".why-view tbody tr", CELLS)):
        assert page.locator(shown).evaluate_all(read) == dialog.page.locator(shown).evaluate_all(read), shown
    page.get_by_role("tab", name="Text", exact=True).click()
    page.locator(".tokens").wait_for()
    assert page.locator(".problem").count() == 0
    context.close()


@pytest.mark.in_turns
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("model", CASES)
def test_it_is_accessible(
    tab: Explorer,
    axe: str,
    model: str,
    theme: str,
    width: int,
) -> None:
    """In both themes and on a phone, with heads ablated: axe finds nothing, and nothing spills."""
    looking(tab, theme, width, 844)
    tab.open(**CASES[model], model=model, view="why", effects="on", ablated=[[0, 2]], labelled=3)
    swept(tab)
    assert violations(tab, axe) == []
    wide = tab.page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert (tab.page.evaluate(SPILL) if wide else []) == []
