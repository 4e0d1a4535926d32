"""What Firefox does otherwise than Chromium: clicks that keys make, scrolling, scroll bars, downloads."""

import json
import re
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.explorer.support.explored import weight_text
from tests.explorer.support.firefox import Firefox, firefox
from tests.explorer.support.reading import maps
from tests.explorer.test_browser_hover import BOXES, POINTED
from tests.support.serving import Service

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat and the dog ran on the mat and the cat sat on a dog."
CHOSEN = """[...document.querySelectorAll('[data-head][aria-pressed="true"]')].map(one => one.dataset.head)"""


@pytest.fixture(scope="module")
def fox(served: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    """One tab for all tests: starting the browser takes seconds."""
    with firefox(served.url, tmp_path_factory.mktemp("downloads")) as started:
        yield started


@pytest.fixture(autouse=True)
def quiet(fox: Firefox) -> Iterator[None]:
    """Nothing fails on the page."""
    yield
    assert fox.run("return problems") == []


def test_numbers_are_those_of_the_api(fox: Firefox, served: Service) -> None:
    """Of the pinned row."""
    fox.open(1440, 900, text=TEXT, heads=[[1, 2]], pinned=[3])
    rows = fox.ask(
        """[...document.querySelectorAll(".row-table tbody tr")]
          .map(row => [...row.cells].map(one => one.innerText))"""
    )
    row = maps(served, TEXT)[1, 2, 3]
    assert len(rows) == 12
    for position, _, weight, _ in rows:
        assert float(weight) == pytest.approx(row[int(position)], abs=1.5e-3)
    assert [float(one[2]) for one in rows] == sorted((float(one[2]) for one in rows), reverse=True)


@pytest.mark.parametrize("key", ["Enter", " "])
def test_shift_with_a_key_adds_a_head(fox: Firefox, key: str) -> None:
    """A click that a key makes does not say in Firefox that Shift was down; in the grid and in the table."""
    fox.open(1440, 900, text=TEXT, heads=[[0, 1]], view="heads")
    fox.run("""await page.focus('[data-head="1,2"]')""")
    fox.press(key, shift=True)
    fox.becomes(f"{CHOSEN}.join(' ') === '0,1 1,2'")
    fox.press(key)
    fox.becomes(f"{CHOSEN}.join(' ') === '0,1 1,2'")  # one of several leaves the others
    fox.open(1440, 900, text=TEXT, heads=[[0, 1]], view="table")
    fox.run("""await page.focus('.heads-table tbody tr:nth-child(7) button')""")
    fox.press(key, shift=True)
    fox.becomes("document.querySelectorAll('.heads-table tr.chosen').length === 2")


def test_the_window_follows_the_cell_of_the_keyboard(fox: Firefox, served: Service) -> None:
    """Below its lower edge, back above its upper one; and what is said of the cell stays in the window."""
    fox.open(1024, 500, text=TEXT, heads=[[1, 1]], view="matrix")
    fox.run("await page.focus('.matrix')")
    last = len(maps(served, TEXT)[0, 0]) - 1
    for keys, row in ((("PageDown",) * 3, last), (("ArrowUp",) * last, 0)):
        fox.press(*keys)
        fox.becomes(f"document.querySelector('#view .told').innerText.includes(' ({row}) → ')")
        cell, told = (
            fox.ask(f"(({{ y, bottom }}) => [y, bottom])({one}.getBoundingClientRect())")
            for one in ("document.querySelector('.cursor')", "document.querySelector('#view .told')")
        )
        assert 0 <= cell[0] < told[0], "the cell is seen, above its sentence"
        assert told[1] <= 500 + 1


@pytest.mark.parametrize("view", ["text", "lines", "matrix"])
@pytest.mark.parametrize("width", [390, 1024])
def test_pointing_moves_nothing(fox: Firefox, view: str, width: int) -> None:
    """With scroll bars, which take room in Firefox too."""
    fox.open(width, 768, text=TEXT, heads=[[1, 1]], view=view)
    pointed = f"[...document.querySelectorAll({json.dumps(POINTED[view])})].slice(0, 5)"
    points = fox.ask(f"""{pointed}.flatMap(one => {{
      one.scrollIntoView({{ block: "center" }});
      const {{ x, y, width, height }} = one.getBoundingClientRect();
      return [0.4, 0.6, 0.7].map(at => [x + at * width, y + at * height]);
    }}).filter(([, y]) => y > 0 && y < innerHeight)""")
    boxes = f"({BOXES})()"
    time.sleep(0.1)  # the page comes to rest
    before, shown = fox.ask(boxes), set()
    for x, y in points:
        fox.run(f"await page.mouse.move({x}, {y})")
        assert fox.ask(boxes) == before
        shown.add(fox.ask("document.querySelector('#view').innerText"))
    assert len(shown) > 1


def test_exports_are_saved(fox: Firefox, served: Service) -> None:
    """A drawing that is XML with the tokens in it, and a page with the maps of all chosen heads."""
    fox.open(1440, 900, text=TEXT, heads=[[0, 1], [2, 2]], pinned=[3])
    fox.run("""
      await page.locator("::-p-text(Export)").click();
      await page.locator("dialog.export ::-p-text(SVG)").click();""")
    drawing = saved(fox.downloads, ".svg")
    words = {one.text for one in ET.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")}  # noqa: S314
    assert {"cat", "sat"} <= words
    fox.run("""await page.locator("dialog.export ::-p-text(HTML page)").click();""")
    page = saved(fox.downloads, ".html")
    (path,) = fox.downloads.glob("*.html")
    assert "</script>" in page
    fox.run(
        f"""
          await page.goto({json.dumps(path.as_uri())});
          await page.waitForSelector(".row-table tbody tr");"""
    )
    expected = maps(served, TEXT)
    row = (expected[0, 1, 3] + expected[2, 2, 3]) / 2
    fox.becomes("document.querySelector('.row-table:not(.empty) tbody tr') !== null")
    first = fox.ask("document.querySelector('.row-table tbody tr').cells[2].innerText")
    assert first == weight_text(float(np.max(row))) or float(first) == pytest.approx(row.max(), abs=1e-3)


def saved(folder: Path, ending: str) -> str:
    """A file of this kind, once all of it is there."""
    for _ in range(150):
        found = [one for one in folder.glob(f"*{ending}") if one.stat().st_size > 0]
        if found and not list(folder.glob("*.part")):
            return found[0].read_text("utf-8")
        time.sleep(0.1)
    raise AssertionError(f"No {ending} was saved: {[one.name for one in folder.iterdir()]}")


def test_the_way_forward_stays(fox: Firefox) -> None:
    """Firefox deflates otherwise: going back to a link from elsewhere writes no entry of its own."""
    fox.open(1440, 900, text=TEXT, heads=[[1, 1]], pinned=[2])
    fox.run("""await page.click('[data-position="4"]')""")
    time.sleep(0.6)  # what waits for the address is written by then
    entries = fox.ask("history.length")
    fox.ask("history.back()")
    fox.becomes("""document.querySelector('.token[aria-selected="true"]')?.dataset.position === "2" """)
    time.sleep(0.6)
    fox.ask("history.forward()")
    fox.becomes("""document.querySelector('.token[aria-selected="true"]')?.dataset.position === "4" """)
    assert fox.ask("history.length") == entries


def test_a_data_set_runs(fox: Firefox, served: Service) -> None:
    """Texts from the field; means and deviations are those of the API."""
    texts = ["the cat sat", "a dog ran on the mat", "the mat"]
    fox.open(1440, 900, text=TEXT, heads=[[1, 1]], view="dataset")
    fox.run(f"""
      await page.locator("#view textarea").fill({json.dumps(chr(10).join(texts))});
      await page.locator("#view button.main").click();""")
    fox.becomes("document.querySelector('#view .progress')?.innerText.includes('3 of 3 texts')")
    cells = "[...document.querySelector('.heads-table tbody tr').cells].map(one => one.innerText)"
    fox.becomes(f"document.querySelector('.heads-table') && {cells}.length > 4")
    head, entropy = fox.ask(cells)[:2]
    assert head == "L0 H0"
    of_head = [
        served.attention(text, summary=True, maps=False)["data"][0]["summary"]["entropy"][0][0]
        for text in texts
    ]
    mean, deviation = (float(part.replace("≈", "")) for part in entropy.split(" ±"))
    assert (mean, deviation) == pytest.approx((np.mean(of_head), np.std(of_head)), abs=6e-4)


def test_the_neuron_view_tells_every_number(fox: Firefox, served: Service) -> None:
    """By arrow keys, of the query and the keys of a head."""
    fox.open(1440, 900, text=TEXT, heads=[[1, 2]], pinned=[3], view="neuron")
    options: dict[str, Any] = {"layers": [1], "heads": [2], "queries": [3], "weights": "score"}
    item = served.attention(TEXT, outputs=["query", "key"], **options)["data"][0]
    fox.becomes("document.querySelector('.difference-map canvas') !== null")
    fox.run("await page.focus('.difference-map')")
    for key, component in ((0, 0), (1, 1), (2, 2)):
        query, other = item["query_vectors"][0][0][0][component], item["key_vectors"][0][0][key][component]
        found = fox.ask("document.querySelector('#view .told').innerText").replace("−", "-").replace("+", "")
        assert found.startswith(f"{item['tokens'][3]} → {item['tokens'][key]}: ")
        numbers = [float(one.replace("≈", "")) for one in re.findall(r"≈?-?[\d.]+", found.partition(": ")[2])]
        assert numbers[:3] == pytest.approx([query, other, query * other], abs=6e-4)
        assert numbers[3] == pytest.approx(item["attention"][0][0][0][key], abs=6e-4)
        fox.press("ArrowDown", "ArrowRight")
