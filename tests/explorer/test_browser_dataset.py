"""The view Data set: statistics of all heads over a list of texts, as the API has them of each."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.explorer.support.explored import THEMES, Explorer, state_of, weight_text
from tests.explorer.support.planted import HEADS, LAYERS, NEXT, PREVIOUS
from tests.explorer.test_browser_access import SPILL, axe, violations
from tests.explorer.test_browser_hover import BOXES, places
from tests.explorer.test_browser_numbers import COLUMNS, IDS
from tests.support.serving import Service, serve

pytestmark = pytest.mark.deploy
__all__ = ["axe"]

TEXT = "The cat sat on the mat."
WORDS = ("cat", "sat", "on", "mat", "dog", "ran")
TEXTS = [" ".join(WORDS[(i * j) % 6] for j in range(1, 2 + i % 11)) + f" {i}" for i in range(40)]
CELLS = "all => all.map(row => [...row.cells].map(cell => cell.innerText))"
Array = NDArray[np.float64]


def statistics(served: Service, **options: object) -> dict[str, Array]:
    """Those of the API, (texts, layers, heads) each; every text is asked for alone."""
    items = [
        served.attention(text, summary=True, maps=False, decimals=9, **options)["data"][0]["summary"]
        for text in TEXTS
    ]
    return {name: np.array([item[name] for item in items]) for name in COLUMNS}


def paste(tab: Explorer, texts: str) -> None:
    """Write a list into the field, and run it."""
    tab.page.get_by_label("Texts, one in each line").fill(texts)
    tab.page.get_by_role("button", name=re.compile("^Run ")).click()


def finished(tab: Explorer, done: int, of: int) -> None:
    """Wait until so many texts are done, and the run has ended."""
    tab.expect(tab.page.locator("#view .progress")).to_contain_text(f"{done} of {of} texts")
    tab.expect(tab.page.get_by_role("button", name=re.compile("^Run "))).to_be_visible()


def rows(tab: Explorer, selector: str) -> list[list[str]]:
    """The cells of a table."""
    found: list[list[str]] = tab.page.locator(selector).locator("tbody tr").evaluate_all(CELLS)
    return found


def test_means_and_deviations_are_those_of_the_api(tab: Explorer, served: Service) -> None:
    """Of every head, in the grid of the chosen statistic and in the table, in batches of 32 texts."""
    tab.open(text=TEXT, view="dataset")
    before = len(tab.sent)
    paste(tab, "\n".join(TEXTS))
    finished(tab, 40, 40)
    sent = [len(one.post_data_json["inputs"]) for one in tab.sent[before:]]
    assert sent == [32, 8]
    expected = statistics(served)
    found = rows(tab, ".heads-table")
    assert [row[0] for row in found] == [f"L{layer} H{head}" for layer, head in IDS]
    for row, (layer, head) in zip(found, IDS, strict=True):
        for cell, name in zip(row[1:], COLUMNS, strict=True):
            of_head = expected[name][:, layer, head]
            mean, deviation = (float(part.replace("≈", "")) for part in cell.split(" ±"))
            assert mean == pytest.approx(of_head.mean(), abs=6e-4)
            assert deviation == pytest.approx(of_head.std(), abs=6e-4)
    tab.page.get_by_role("button", name="Previous", exact=True).click()
    for layer, head in IDS:
        cell = tab.page.locator(f'[data-head="{layer},{head}"]')
        tab.expect(cell).to_have_text(weight_text(expected["previous"][:, layer, head].mean()))


@pytest.mark.parametrize("head", [(0, PREVIOUS), (0, NEXT), (2, 1)])
def test_the_texts_where_a_head_does_most(tab: Explorer, served: Service, head: tuple[int, int]) -> None:
    """And least, with their lines; a click shows one in the other views, with that head."""
    tab.open(text=TEXT, view="dataset", sort="-confidence", heads=[head], special="drop")
    paste(tab, "\n\n".join(TEXTS))
    finished(tab, 40, 40)
    values = statistics(served, special_tokens="drop")["confidence"][:, head[0], head[1]]
    for number, sign in ((0, -1), (1, 1)):
        table = f".ranked >> nth={number}"
        named = rows(tab, table)
        ordered = values[[int(line) // 2 for line, _, _ in named]]
        assert [value for _, _, value in named] == [weight_text(value) for value in ordered]
        assert ordered == pytest.approx(sign * np.sort(sign * values)[:10], abs=1e-6)
        assert [text for _, text, _ in named] == [TEXTS[int(line) // 2] for line, _, _ in named]
    tab.page.locator(".ranked").first.get_by_role("button").first.click()
    tab.link_has(text=rows_text(values), heads=[[*head]])
    assert tab.page.get_by_role("tab", name="Text", exact=True).get_attribute("aria-selected") == "true"
    state = state_of(tab.page.url)
    assert TEXTS[5] not in str({name: value for name, value in state.items() if name != "text"})
    tab.tab("Data set")
    assert len(rows(tab, ".heads-table")) == LAYERS * HEADS
    assert tab.page.get_by_label("Texts, one in each line").input_value() == "\n\n".join(TEXTS)


def rows_text(values: Array) -> str:
    """The text with the largest value; of equal ones the last, which stands first."""
    return TEXTS[len(values) - 1 - int(np.argmax(values[::-1]))]


def test_a_refused_text_is_named_by_its_line(browser: Any, planted: Path) -> None:
    """The others are answered: here, of a service that takes small requests alone."""
    with serve(model=planted, max_body_bytes=8000) as small:
        tab = Explorer(browser.new_page(), small.url)
        tab.open(text=TEXT, view="dataset")
        paste(tab, "\n".join([*TEXTS[:20], "", "cat " * 3000, *TEXTS[20:]]))
        finished(tab, 41, 41)
        problem = tab.page.locator("#view .problem")
        assert problem.count() == 1
        assert problem.inner_text().startswith("Line 22: The body has ")
        assert "deviation" in tab.page.locator("#view").inner_text()
        assert len(rows(tab, ".heads-table")) == LAYERS * HEADS
        assert [one for one in tab.found() if "413" not in one] == []
        tab.page.close()


def test_a_file_of_thousands_of_lines_is_cut(tab: Explorer, tmp_path: Path) -> None:
    """At most 5,000 of its lines run."""
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(f"{i} {TEXTS[i % 40]}" for i in range(6000)), encoding="utf-8")
    tab.open(text=TEXT, view="dataset")
    tab.page.get_by_label("A file of texts").set_input_files(file)
    tab.expect(tab.page.get_by_role("button", name="Run 5,000 texts")).to_be_visible()
    tab.expect(tab.page.locator("#view .cut")).to_have_text("Of 6,000 texts only the first 5,000 run.")
    paste(tab, TEXT)
    assert tab.page.locator("#view .cut").count() == 0


def test_of_a_large_file_the_beginning_is_read(tab: Explorer, tmp_path: Path) -> None:
    """Of 4 MiB; the page says so until there is another list."""
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(["cat " * 64] * 17_000), encoding="utf-8")
    tab.open(text=TEXT, view="dataset")
    tab.page.locator("input[type=file]").set_input_files(file)
    told = tab.page.locator("#view .cut")
    tab.expect(told).to_contain_text("only the first 4 MiB were read")
    other = tmp_path / "other.txt"
    other.write_text(TEXT, encoding="utf-8")
    tab.page.locator("input[type=file]").set_input_files(other)
    tab.expect(told).to_have_count(0)


def test_an_option_is_refused_once(tab: Explorer) -> None:
    """For all texts: they are not asked for one by one, and the sentence of the service stands there once."""
    tab.open(text=TEXT, view="dataset")

    def ask_more(route: Any) -> None:
        body = {**route.request.post_data_json, "prompt_name": "none of its prompts"}
        route.continue_(post_data=json.dumps(body))

    tab.page.route("**/attention*", ask_more)
    before = len(tab.sent)
    paste(tab, "\n".join(TEXTS))
    problem = tab.page.locator("#view .problem")
    tab.expect(problem).to_have_count(1)
    tab.expect(problem).to_contain_text("none of its prompts")
    assert len(tab.sent) == before + 1
    tab.problems[:] = [one for one in tab.problems if "422 (Unprocessable" not in one]


def test_a_run_can_be_stopped_and_begun_again(tab: Explorer) -> None:
    """What is there stays; what was chosen meanwhile is told."""
    tab.open(text=TEXT, view="dataset")
    held: list[Any] = []  # from the second request on

    def hold(route: Any) -> None:
        held.append(route)
        if len(held) == 1:
            route.continue_()

    tab.page.route("**/attention*", hold)
    paste(tab, "\n".join(TEXTS * 10))
    progress = tab.page.locator("#view .progress")
    tab.expect(progress).to_contain_text("32 of 400 texts")
    tab.page.get_by_role("button", name="Stop").click()
    held[1].continue_()
    finished(tab, 64, 400)
    assert len(held) == 2
    assert rows(tab, ".heads-table")
    tab.page.unroute("**/attention*")
    tab.page.get_by_label("Level").select_option("word")
    tab.expect(progress).to_contain_text("have changed")
    tab.page.get_by_role("button", name="Run 400 texts").click()
    finished(tab, 400, 400)
    assert "changed" not in progress.inner_text()


def test_a_file_is_read_in_the_page(tab: Explorer, tmp_path: Path) -> None:
    """Its lines become the list; keys alone run it, and open a text of it."""
    file = tmp_path / "texts.txt"
    file.write_text("\r\n".join(TEXTS[:5]), encoding="utf-8")
    tab.open(text=TEXT, view="dataset")
    before = len(tab.sent)
    tab.page.get_by_label("A file of texts").set_input_files(file)
    run = tab.page.get_by_role("button", name="Run 5 texts")
    tab.expect(run).to_be_visible()
    assert len(tab.sent) == before
    run.focus()
    tab.page.keyboard.press("Enter")
    finished(tab, 5, 5)
    grid = tab.page.locator('[data-head][tabindex="0"]')
    grid.focus()
    tab.page.keyboard.press("ArrowRight")
    tab.page.keyboard.press("Enter")
    tab.expect(tab.page.locator(".ranked caption").first).to_have_text("Most entropy in L1 H1")
    tab.page.locator(".ranked button").last.focus()
    text = tab.page.locator(".ranked button").last.inner_text()
    tab.page.keyboard.press("Enter")
    tab.link_has(text=text, heads=[[1, 1]])


SIZES = [(theme, width) for theme in THEMES for width in (390, 1024, 1440)]


@pytest.fixture(params=SIZES, ids=str)
def filled(request: pytest.FixtureRequest, browser: Any, served: Service) -> Iterator[Explorer]:
    """A tab in each theme and at each width, with a data set that has run."""
    theme, width = request.param
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=theme, reduced_motion="reduce"
    )
    explorer = Explorer(context.new_page(), served.url)
    explorer.open(text=TEXT, view="dataset")
    paste(explorer, "\n".join(TEXTS))
    finished(explorer, 40, 40)
    yield explorer
    found = explorer.found()
    context.close()
    assert found == []


@pytest.mark.in_turns
def test_everyone_can_use_it(filled: Explorer, axe: str) -> None:
    """Axe finds nothing, nothing spills over the edge, and pointing at something moves nothing."""
    assert violations(filled, axe) == []
    wide = filled.page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not wide, filled.page.evaluate(SPILL)
    for selector in ("#view [data-head]", "#view .ranked button", "#view .heads-table tbody tr"):
        points = places(filled, selector)
        before = filled.page.evaluate(BOXES)
        for x, y in points:
            filled.page.mouse.move(x, y)
            filled.page.wait_for_timeout(20)
            assert filled.page.evaluate(BOXES) == before
