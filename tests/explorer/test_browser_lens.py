"""The logit lens shows the words of the API for every layer and token, by pointer, keyboard and link."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.explorer.support.explored import THEMES, Explorer, state_of, weight_text
from tests.explorer.support.firefox import firefox
from tests.explorer.test_browser_hover import MOVED
from tests.references.checkpoints import MINILM, write_tokenizer
from tests.support.families import write_small
from tests.support.serving import Service, serve

pytestmark = pytest.mark.deploy

TEXT = "the man beats the [MASK] boy"
LAYERS, MASK, TOGETHER = 3, 5, 64
ROWS = ["emb", *(f"L{layer}" for layer in range(LAYERS))]
CELLS, CHOSEN = "#view .cell", '#view .cell[aria-pressed="true"]'
LISTED = "all => all.map(row => [...row.cells].map(cell => cell.textContent))"
LOOK = """one => {
  const { backgroundColor, color, boxShadow } = getComputedStyle(one.firstChild);
  const [, bar] = / 0px -?([\\d.]+)px 0px 0px inset/.exec(boxShadow);
  return [backgroundColor.match(/\\d+/g).map(Number), Number(bar)];
}"""
BAR = "one => [...one.getContext('2d').getImageData(0, 0, one.width, 1).data]"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of two models for masked words, one of longer texts, and of one that predicts nothing."""
    folder = tmp_path_factory.mktemp("models")
    for name, longest in (("bert", 64), ("long", 160)):
        sizes: dict[str, Any] = {"tie_word_embeddings": True, "max_position_embeddings": longest}
        write_small(folder / name, "bert", "ForMaskedLM", **sizes)
        write_tokenizer(folder / name, model_max_length=longest)
    with serve(model=f"bert={folder / 'bert'},long={folder / 'long'},minilm={MINILM}") as started:
        yield started


def lens_of(service: Service, text: Any = TEXT, **options: Any) -> tuple[list[str], dict[str, Any]]:
    """The tokens of a text, and its lens as the API has it."""
    (item,) = service.encode(text, outputs=["logit_lens"], layers="all", **options)["data"]
    return item["tokens"], item["logit_lens"]


def open_lens(tab: Explorer, **fields: Any) -> None:
    tab.open(**{"text": TEXT, "view": "lens", **fields})
    tab.page.locator(CELLS).first.wait_for()


def caption(tab: Explorer) -> str:
    """Whose words are listed."""
    return " ".join(tab.page.locator("#view caption > *").all_inner_texts())


def listed(tab: Explorer) -> list[list[str]]:
    """The words, logits and probabilities beside the table."""
    rows: list[list[str]] = tab.page.locator("#view .row-table tbody tr").evaluate_all(LISTED)
    return rows


def expected(lens: dict[str, Any], row: int, column: int) -> list[list[str]]:
    """The same of the API."""
    words, *values = (lens[name][row][column] for name in ("tokens", "logits", "probabilities"))
    return [[word, *map(weight_text, some)] for word, *some in zip(words, *values, strict=True)]


def test_arrow_keys_list_every_number(tab: Explorer, served: Service) -> None:
    """Of every cell: along one row, down, and back along the next; the table names layers and tokens."""
    open_lens(tab)
    tokens, lens = lens_of(served)
    assert tab.page.locator("#view thead th").all_inner_texts()[: len(tokens)] == tokens
    assert tab.page.locator("#view tbody th").all_inner_texts() == ROWS
    cells = tab.page.locator(CELLS)
    assert cells.all_inner_texts() == [words[0] or "–" for layer in lens["tokens"] for words in layer]
    cells.first.focus()
    for row, name in enumerate(ROWS):
        columns = list(range(len(tokens)))
        for column in columns if row % 2 == 0 else columns[::-1]:
            assert listed(tab) == expected(lens, row, column)
            assert caption(tab) == f"{name} at “{tokens[column]}” position {column}"
            label = tab.page.evaluate("document.activeElement.ariaLabel")
            word, probability = lens["tokens"][row][column][0], lens["probabilities"][row][column][0]
            assert label == f"{name}, {tokens[column]}: {word} {weight_text(probability)}"
            tab.page.keyboard.press("ArrowRight" if row % 2 == 0 else "ArrowLeft")
        tab.page.keyboard.press("ArrowDown")
    assert tab.page.locator(f'{CELLS}[tabindex="0"]').count() == 1


@pytest.mark.parametrize(("scale", "power"), [("linear", 1), ("sqrt", 0.5)])
@pytest.mark.parametrize("theme", THEMES)
def test_colours_and_bars_are_those_of_the_probabilities(
    tab: Explorer, served: Service, theme: str, scale: str, power: float
) -> None:
    """From 0 to 1 on the colour bar; and a bar below each word is as high."""
    open_lens(tab, theme=theme, scale=scale)
    _, lens = lens_of(served)
    bar = tab.page.locator("#view .colour-bar")
    tab.expect(bar.locator("span")).to_have_text(["0", weight_text(0.5 ** (1 / power)), "1.000"])
    inks = np.array(bar.locator("canvas").evaluate(BAR)).reshape(-1, 4)[:, :3]
    shares = np.array(lens["probabilities"])[..., 0].ravel() ** power
    tops = set()
    for share, cell in zip(shares, tab.page.locator(CELLS).all(), strict=True):
        ground, high = cell.evaluate(LOOK)
        ink = inks[round(float(share) * (len(inks) - 1))]
        assert np.abs(ink - ground).max() <= 1
        assert high == round(4 * float(share))
        tops.add(tuple(ground))
    assert len(tops) > 3


@pytest.mark.parametrize("size", [(390, 844), (1024, 768), (1440, 900)], ids=str)
def test_pointing_lists_words_and_moves_nothing(
    tab: Explorer, served: Service, size: tuple[int, int]
) -> None:
    """A cell away, those of the chosen one are back."""
    tab.page.set_viewport_size({"width": size[0], "height": size[1]})
    open_lens(tab)
    tokens, lens = lens_of(served)
    assert listed(tab) == expected(lens, LAYERS, MASK)
    tab.page.locator(CELLS).first.scroll_into_view_if_needed()
    tab.page.wait_for_timeout(100)
    assert tab.page.evaluate(MOVED)["all"] > 50
    for row in range(LAYERS + 1):
        for column in range(0, len(tokens), 2):
            cell = tab.page.locator(CELLS).nth(row * len(tokens) + column)
            box = cell.bounding_box()
            if box["x"] + box["width"] > size[0]:
                continue
            tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            tab.becomes(lambda: listed(tab), expected(lens, row, column))
            now = tab.page.evaluate(MOVED)
            assert (now["moved"], now["gone"]) == ([], 0)
    tab.page.mouse.move(1, 1)
    tab.becomes(lambda: listed(tab), expected(lens, LAYERS, MASK))


def test_a_click_keeps_a_cell_in_the_link(tab: Explorer, served: Service) -> None:
    """Opened by another person, its words are listed; of another text it is none of the cells."""
    open_lens(tab)
    tokens, lens = lens_of(served)
    tab.page.locator(CELLS).nth(len(tokens) + 2).click()
    tab.link_has(lens=[1, 2])
    tab.page.mouse.move(1, 1)
    tab.page.keyboard.press("ArrowDown")
    tab.page.keyboard.press("Enter")
    tab.link_has(lens=[2, 2])
    link = tab.page.url
    tab.page.goto("about:blank")
    tab.page.goto(link)
    tab.page.locator(CHOSEN).wait_for()
    assert listed(tab) == expected(lens, 2, 2)
    assert tab.page.locator(CELLS).nth(2 * len(tokens) + 2).get_attribute("aria-pressed") == "true"
    tab.page.get_by_role("textbox", name="Text", exact=True).fill("a boy")
    tab.page.keyboard.press("Enter")
    tab.expect(tab.page.locator(CELLS)).to_have_count((LAYERS + 1) * 4)
    tab.becomes(lambda: "lens" in state_of(tab.page.url), expected=False)
    assert caption(tab).startswith("L2 at “[CLS]”")


def test_it_begins_with_what_is_asked_about(tab: Explorer) -> None:
    """The mask, else the pinned token, or of a pinned word the first of its tokens."""
    for fields, name in (
        ({"pinned": [2]}, "L2 at “[MASK]” position 5"),
        ({"pinned": [2], "text": "the man"}, "L2 at “man” position 2"),
        ({"pinned": [3], "text": "the mans man", "level": "word"}, "L2 at “man” position 4"),
        ({"text": "the mans [MASK]", "level": "word"}, "L2 at “[MASK]” position 4"),
        ({"lens": [9, 99]}, "L2 at “[SEP]” position 7"),
        ({"lens": [0, 1]}, "emb at “the” position 1"),
    ):
        open_lens(tab, **fields)
        assert caption(tab) == name


def test_words_are_those_of_the_run_that_is_shown(tab: Explorer, served: Service) -> None:
    """Without some heads, of a pair, and beside another text in a comparison."""
    open_lens(tab, ablated=[[0, 1], [2, 0]], pair="a boy")
    off = [{"kind": "heads", "layer": layer, "heads": [head]} for layer, head in ((0, 1), (2, 0))]
    pair = [[TEXT, "a boy"]]
    (tokens, lens), (_, whole) = lens_of(served, pair, interventions=off), lens_of(served, pair)
    assert listed(tab) == expected(lens, LAYERS, MASK) != expected(whole, LAYERS, MASK)
    tab.page.locator(CELLS).nth(2 * len(tokens) - 2).focus()
    assert listed(tab) == expected(lens, 1, len(tokens) - 2)
    other = TEXT.replace("man", "boy")
    tab.open(text=TEXT, view="compare", besideView="lens", besideText=other)
    sides = tab.page.locator(".side")
    tab.expect(sides.locator(".lens")).to_have_count(2)
    for side, text in zip(sides.all(), (TEXT, other), strict=True):
        rows = side.locator(".row-table tbody tr").evaluate_all(LISTED)
        assert rows == expected(lens_of(served, text)[1], LAYERS, MASK)


def test_a_long_text_is_shown_in_parts(tab: Explorer, served: Service) -> None:
    """Only the tokens of one are asked for: that of the mask, until another is chosen."""
    text = " ".join(["the man beats the boy"] * 20 + ["a [MASK]"] + ["hello"] * 5)
    open_lens(tab, text=text, model="long")
    tokens, lens = lens_of(served, text, model="long")
    mask = tokens.index("[MASK]")
    assert mask > TOGETHER

    def shown() -> list[str]:
        return [str(one) for one in tab.page.locator("#view thead").first.locator("th").all_inner_texts()]

    assert shown() == tokens[TOGETHER:]
    assert listed(tab) == expected(lens, LAYERS, mask)
    field = tab.page.get_by_role("combobox", name="Tokens", exact=True)
    assert field.locator("option").all_inner_texts() == ["0 to 63", f"64 to {len(tokens) - 1}"]
    tab.page.locator(CELLS).first.focus()
    assert listed(tab) == expected(lens, 0, TOGETHER)
    field.select_option("0 to 63")
    tab.becomes(shown, tokens[:TOGETHER])
    tab.page.locator(CELLS).nth(TOGETHER - 1).focus()
    assert listed(tab) == expected(lens, 0, TOGETHER - 1)
    asked = [json.loads(one.post_data)["positions"] for one in tab.sent if one.url.endswith("/encode")]
    assert asked == [[*range(TOGETHER, len(tokens))], [*range(TOGETHER)]]


def test_a_model_that_predicts_no_words_says_so(tab: Explorer, planted: Path, browser: Any) -> None:
    """With what to choose or to serve, and without a request that would be refused."""
    tab.open(text=TEXT, view="lens", model="minilm")
    told = "The logit lens needs a model that predicts masked words, and {} does not: {}."
    assert tab.page.locator("#view > .note").inner_text() == told.format("minilm", "choose bert or long")
    assert not [one for one in tab.sent if one.url.endswith("/encode")]
    with serve(model=f"planted={planted}") as alone:
        other = Explorer(browser.new_page(), alone.url)
        other.open(text=TEXT, view="lens")
        ending = "serve one whose architecture ends in MaskedLM"
        assert other.page.locator("#view > .note").inner_text() == told.format("planted", ending)
        assert other.found() == []
        other.page.close()


def test_exports_have_the_words(tab: Explorer, served: Service, tmp_path: Path) -> None:
    """A figure, a table with all digits, and a page that needs no service."""
    open_lens(tab)
    tokens, lens = lens_of(served)
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="Save as CSV").click()
    with Path(download.value.path()).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == (LAYERS + 1) * len(tokens) * 10
    for row in rows:
        layer, position, rank = (int(row[name]) for name in ("hidden_state", "position", "rank"))
        names = {"word": "tokens", "word_id": "token_ids", "logit": "logits", "probability": "probabilities"}
        assert row["token"] == tokens[position]
        for name, field in names.items():
            value = lens[field][layer][position][rank - 1]
            assert row[name] == value if name == "word" else float(row[name]) == value
    tab.page.get_by_role("button", name="Export").click()
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="SVG", exact=True).click()
    root = ElementTree.parse(download.value.path()).getroot()  # noqa: S314
    texts = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    firsts = [[words[0] or "–" for words in layer] for layer in lens["tokens"]]
    written = [*tokens, *(one for name, row in zip(ROWS, firsts, strict=True) for one in (name, *row))]
    assert [one for one in texts if one in written] == written
    assert "Logit" not in texts
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="HTML page").click()
    path = tmp_path / "lens.html"
    download.value.save_as(path)
    tab.page.goto(path.as_uri())
    tab.page.locator(CELLS).nth(len(tokens)).focus()
    assert listed(tab) == expected(lens, 1, 0)
    assert tab.problems == [f"request to {path.as_uri()}"], "it loads nothing but itself"
    tab.problems.clear()


def test_a_wide_grid_shows_what_is_chosen(tab: Explorer) -> None:
    """From a link, and after the last part; a cell that is clicked in sight stays where it is."""
    text = " ".join(["the man beats the boy"] * 11 + ["hello"])
    frame = tab.page.locator("#view .scroll").first

    def place() -> tuple[float, float]:
        """How far the chosen cell is from the left edge of its frame, and the frame's width."""
        cell, around = tab.page.locator(CHOSEN).bounding_box(), frame.bounding_box()
        assert cell is not None
        assert around is not None
        return cell["x"] - around["x"], around["width"]

    open_lens(tab, text=text, model="long", lens=[1, 55])
    left, width = place()
    assert frame.evaluate("one => one.scrollWidth") > 2 * width
    assert 48 <= left <= width - 48
    assert tab.page.evaluate("scrollY") == 0
    cell = tab.page.locator(CELLS).nth(53)
    before = cell.bounding_box()
    cell.click()
    tab.link_has(lens=[0, 53])
    assert cell.bounding_box() == before
    frame.evaluate("one => { one.scrollLeft = 0 }")
    open_lens(tab, text=text, model="long", lens=[1, 1])
    assert frame.evaluate("one => one.scrollLeft") == 0


@pytest.fixture(params=[(theme, width) for theme in THEMES for width in (390, 1024, 1440)], ids=str)
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

    open_lens(sized, text=f"{TEXT} {TEXT}")
    sized.page.locator(CELLS).first.focus()
    sized.page.evaluate(str(AXE_SCRIPT))
    found = sized.page.evaluate("axe.run().then(({ violations }) => violations.map(one => one.id))")
    assert found == []
    assert sized.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_firefox_shows_the_same(served: Service, tmp_path: Path) -> None:
    """By arrow keys, and a key keeps a cell."""
    tokens, lens = lens_of(served)
    rows = "[...document.querySelectorAll('#view .row-table tbody tr')]"
    with firefox(served.url, tmp_path) as fox:
        fox.open(1440, 900, text=TEXT, heads=[[1, 0]], view="lens")
        fox.becomes(f"document.querySelectorAll({json.dumps(CELLS)}).length === {4 * len(tokens)}")
        fox.run(f"await page.focus({json.dumps(CELLS)})")
        for row, column, key in ((0, 0, "ArrowRight"), (0, 1, "ArrowDown"), (1, 1, "Enter")):
            found = fox.ask(f"({LISTED})({rows})")
            assert found == expected(lens, row, column)
            fox.press(key)
        fox.becomes(f"document.querySelector({json.dumps(CHOSEN)}) === document.activeElement")
        assert fox.run("return problems") == []
