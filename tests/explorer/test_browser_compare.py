"""Compare aligns two texts and any two heads, says how every head differs, and has the numbers of the API."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.explorer.support.explored import THEMES, Explorer, weight_text
from tests.explorer.support.planted import HEADS, LAYERS, WORDS
from tests.explorer.support.reading import HALF, maps
from tests.explorer.test_browser_access import SPILL, axe, looking, violations
from tests.references.checkpoints import write_bert
from tests.support.serving import Service, serve

pytestmark = pytest.mark.deploy
__all__ = ["axe"]

TEXT, OTHER, LONGER = "The cat sat on the mat.", "The dog ran on the mat.", "The dog sat on the big mat."
LABELS = ["[CLS]", "The", "cat/dog", "sat/ran", "on", "the", "mat", ".", "[SEP]"]
SMALL = (2, 8)
"""Layers and heads of the second model."""
ROWS = "all => all.map(row => [...row.cells].map(cell => cell.innerText))"
COMPARED: dict[str, Any] = {"text": TEXT, "view": "compare", "besideView": "difference"}


@pytest.fixture(scope="module")
def served(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of the planted model, and of one with other numbers of layers and heads."""
    small = tmp_path_factory.mktemp("models") / "small"
    layers, heads = SMALL
    sizes: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": layers, "num_attention_heads": heads}
    write_bert(small, seed=5, words=WORDS, **sizes)
    with serve(model=f"planted={planted},small={small}") as started:
        yield started


def number(text: str) -> float:
    """A number with the page's own signs."""
    return float(text.replace("−", "-").replace("≈", "").replace("+", ""))


def distance(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """Of maps with the same rows and columns: the mean total variation of their rows."""
    return float(np.abs(one - two).sum(axis=1).mean() / 2)


def merged(map_: NDArray[np.float64], kept: list[int]) -> NDArray[np.float64]:
    """Some rows and columns of a map; the last column is the rest of each row."""
    part = map_[np.ix_(kept, kept)]
    return np.hstack([part, map_[kept].sum(axis=1, keepdims=True) - part.sum(axis=1, keepdims=True)])


def differences(tab: Explorer) -> list[list[str]]:
    """The table of the largest."""
    tab.page.locator(".differences tbody tr").first.wait_for()
    rows: list[list[str]] = tab.page.locator(".differences tbody tr").evaluate_all(ROWS)
    return rows


def ranked(tab: Explorer) -> list[list[str]]:
    """The list of heads, once all are read."""
    tab.page.locator(".ranked tbody tr").first.wait_for()
    tab.expect(tab.page.locator("#view progress")).to_have_count(0)
    rows: list[list[str]] = tab.page.locator(".ranked tbody tr").evaluate_all(ROWS)
    return rows


def grid(tab: Explorer) -> dict[tuple[int, int], str]:
    """What each cell of the grid has."""
    cells = tab.page.locator(".difference-heads [data-head]").evaluate_all(
        "all => all.map(one => [one.dataset.head, one.innerText])"
    )
    return {(int(name.split(",")[0]), int(name.split(",")[1])): text for name, text in cells}


def test_a_minimal_pair_is_aligned_by_place(tab: Explorer, served: Service) -> None:
    """Each of the largest differences has the weights of both texts, and both words where they differ."""
    tab.open(**COMPARED, besideText=OTHER, heads=[[1, 2]])
    first, second = maps(served)[1, 2], maps(served, OTHER)[1, 2]
    found = second - first
    rows = differences(tab)
    order = np.argsort(-np.abs(found), axis=None)[: len(rows)]
    assert [abs(number(row[4])) for row in rows] == pytest.approx(np.abs(found).ravel()[order], abs=1.5e-3)
    for from_, to, one, two, _ in rows:
        cell = LABELS.index(from_), LABELS.index(to)
        assert number(one) == pytest.approx(first[cell], abs=1e-3)
        assert number(two) == pytest.approx(second[cell], abs=1e-3)
    heading = tab.page.locator(".difference-view h2").first
    assert heading.inner_text() == "L1 H2 of planted, second minus first"
    assert tab.page.locator(".left-out").count() == 0


@pytest.mark.parametrize("keyboard", [False, True], ids=["mouse", "keyboard"])
def test_the_text_of_both_is_coloured_by_the_difference(
    tab: Explorer, served: Service, *, keyboard: bool
) -> None:
    """Of a token that is pinned: each word of the text, or both, with what it gets more or less."""
    tab.open(**COMPARED, besideText=OTHER, heads=[[1, 2]])
    units = tab.page.locator(".difference-view [role=option]")
    tab.expect(units).to_have_count(len(LABELS))
    assert units.all_inner_texts() == LABELS
    before = units.first.bounding_box()
    if keyboard:
        units.first.focus()
        for _ in range(2):
            tab.page.keyboard.press("ArrowRight")
        tab.page.keyboard.press("Enter")
    else:
        units.nth(2).click()
    tab.link_has(pinned=[2])
    found = (maps(served, OTHER) - maps(served))[1, 2, 2]
    labels = units.evaluate_all("all => all.map(one => one.ariaLabel)")
    shown = [number(label.rpartition(" ")[2]) for label in labels]
    assert shown == pytest.approx(found, abs=1.5e-3)
    tab.page.mouse.move(1, 1)
    assert units.first.bounding_box() == before


def test_texts_of_different_length_are_aligned_by_what_is_the_same(tab: Explorer, served: Service) -> None:
    """What has no counterpart is named and left out; the rest has the API's numbers."""
    tab.open(**COMPARED, besideText=LONGER, heads=[[1, 2]])
    tokens = served.attention(LONGER)["data"][0]["tokens"]
    extra = [i for i, token in enumerate(tokens) if i in range(6, len(tokens) - 3)]
    kept = [i for i in range(len(tokens)) if i not in extra]
    rows = differences(tab)
    note = tab.page.locator(".left-out").inner_text()
    assert note.startswith("Left out, without a counterpart: “")
    assert note.endswith("of the second.")
    first, second = maps(served)[1, 2], maps(served, LONGER)[1, 2][np.ix_(kept, kept)]
    order = np.argsort(-np.abs(second - first), axis=None)[: len(rows)]
    shown = [abs(number(row[4])) for row in rows]
    assert shown == pytest.approx(np.abs(second - first).ravel()[order], abs=1.5e-3)
    whole = maps(served, LONGER)
    for (layer, head), text in _settled(tab).items():
        one, two = maps(served)[layer, head], merged(whole[layer, head], kept)
        expected = distance(np.hstack([one, np.zeros((len(one), 1))]), two)
        assert number(text) == pytest.approx(expected, abs=1e-3 + HALF)


def _settled(tab: Explorer) -> dict[tuple[int, int], str]:
    ranked(tab)
    return grid(tab)


def test_heads_are_ranked_by_how_much_they_differ(tab: Explorer, served: Service) -> None:
    """In the grid and in a list, of which a click opens one."""
    tab.open(**COMPARED, besideText=OTHER)
    first, second = maps(served), maps(served, OTHER)
    expected = {(i, j): distance(first[i, j], second[i, j]) for i in range(LAYERS) for j in range(HEADS)}
    rows = ranked(tab)
    for id_, text in grid(tab).items():
        assert number(text) == pytest.approx(expected[id_], abs=1e-3)
    best = sorted(expected, key=lambda id_: -expected[id_])[:10]
    assert [row[1] for row in rows][:3] == [f"L{layer} H{head}" for layer, head in best][:3]
    tab.page.get_by_role("button", name=rows[0][1], exact=True).last.click()
    tab.link_has(heads=[list(best[0])])
    layer, head = best[0]
    label = tab.page.locator(f'.difference-heads [data-head="{layer},{head}"]').get_attribute("aria-label")
    assert (
        label == f"L{layer} H{head}: difference {weight_text(expected[best[0]])}, rank 1 of {LAYERS * HEADS}"
    )


def test_any_head_stands_beside_any_head(tab: Explorer, served: Service) -> None:
    """Of another model with more heads: titles name both, and the map is their difference."""
    tab.open(**COMPARED, besideModel="small", heads=[[1, 2]])
    tab.page.get_by_label("Head beside").select_option("own")
    steps = tab.page.locator(".compare-view .step")
    steps.first.get_by_role("button", name="Previous layer").click()
    for _ in range(4):
        steps.last.get_by_role("button", name="Next head").click()
    tab.link_has(besideHead="own", besideHeads=[[0, 6]], heads=[[1, 2]])
    heading = tab.page.locator(".difference-view h2").first
    tab.expect(heading).to_have_text("L0 H6 of small minus L1 H2 of planted")
    found = maps(served, model="small")[0, 6] - maps(served)[1, 2]
    order = np.argsort(-np.abs(found), axis=None)[:10]
    tab.becomes(
        lambda: np.allclose(
            [abs(number(row[4])) for row in differences(tab)], np.abs(found).ravel()[order], atol=1.5e-3
        ),
        True,  # noqa: FBT003
    )
    tab.page.get_by_label("Show").select_option("text")
    for name, title in (("First", "L1 H2 of planted, 9 tokens"), ("Second", "L0 H6 of small, 9 tokens")):
        assert tab.page.get_by_role("region", name=name).locator("h2").first.inner_text() == title


def test_the_most_similar_head_is_found(tab: Explorer, served: Service) -> None:
    """Of all heads of the other model, that with the least distance; a click on another chooses that."""
    tab.open(**COMPARED, besideModel="small", besideHead="similar", heads=[[0, 3]])
    second = maps(served, model="small")
    layers, heads = SMALL
    expected = {
        (i, j): distance(maps(served)[0, 3], second[i, j]) for i in range(layers) for j in range(heads)
    }
    rows = ranked(tab)
    order = sorted(expected, key=lambda id_: expected[id_])
    layer, head = order[0]
    heading = tab.page.locator(".difference-view h2").first
    tab.expect(heading).to_have_text(f"L{layer} H{head} of small minus L0 H3 of planted")
    assert rows[0] == ["1", f"L{layer} H{head}", weight_text(expected[layer, head])]
    for id_, text in grid(tab).items():
        assert number(text) == pytest.approx(expected[id_], abs=1e-3)
    layer, head = order[-1]
    tab.page.locator(f'.difference-heads [data-head="{layer},{head}"]').click()
    tab.link_has(besideHead="own", besideHeads=[[layer, head]], heads=[[0, 3]])
    tab.expect(heading).to_have_text(f"L{layer} H{head} of small minus L0 H3 of planted")


def test_a_grid_may_be_of_another_model_than_the_current_head(tab: Explorer) -> None:
    """A data set's run stays when another model is chosen, whose head is in a layer that its grid lacks."""
    tab.open(text=TEXT, view="dataset", model="small", heads=[[SMALL[0], 0]])
    tab.page.get_by_label("Texts, one in each line").fill(f"{TEXT}\n{OTHER}")
    tab.page.get_by_role("button", name="Run 2 texts").click()
    grid = tab.page.locator("#view .grid").first.locator("button")
    tab.expect(grid).to_have_count(SMALL[0] * SMALL[1])
    tab.page.get_by_role("combobox", name="Model", exact=True).select_option("planted")
    tab.becomes(tab.steps, [SMALL[0], 0])
    tab.expect(grid).to_have_count(SMALL[0] * SMALL[1])


@pytest.mark.in_turns
@pytest.mark.parametrize("width", [390, 1024, 1440])
@pytest.mark.parametrize("theme", THEMES)
def test_it_is_accessible_and_fits(tab: Explorer, axe: str, theme: str, width: int) -> None:
    """Axe finds nothing, nothing spills, and pointing at tokens moves none of them."""
    looking(tab, theme, width)
    tab.open(**COMPARED, besideText=OTHER, besideHead="own", besideHeads=[[2, 1]], heads=[[1, 2]])
    ranked(tab)
    assert violations(tab, axe) == []
    wide = tab.page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert (tab.page.evaluate(SPILL) if wide else []) == []
    units = tab.page.locator(".difference-view [role=option]")
    places = "all => all.map(one => [one.offsetLeft, one.offsetTop])"
    before = units.evaluate_all(places)
    for i in range(len(LABELS)):
        units.nth(i).hover()
        assert units.evaluate_all(places) == before


def test_tokens_can_be_aligned_by_what_is_the_same(tab: Explorer) -> None:
    """Where places would do, too."""
    tab.open(**COMPARED, besideText="Cat sat on the mat. The")
    tab.expect(tab.page.locator(".difference-view [role=option]").nth(1)).to_have_text("The/Cat")
    tab.page.get_by_label("Tokens are aligned").select_option("words")
    tab.link_has(besideAlign="words")
    tab.expect(tab.page.locator(".left-out")).to_have_text(
        re.compile("^Left out, without a counterpart: “The” of the first; “The” of the second.$")
    )


def test_whoever_comes_with_the_mouse_writes_at_once(tab: Explorer) -> None:
    """The text is selected, so that what is typed takes its place; keys go on to the other tabs."""
    tab.open(text=TEXT, view="text")
    tab.page.get_by_role("tab", name="Compare").click()
    entry = tab.page.get_by_role("textbox", name="Compare with")
    tab.expect(entry).to_be_focused()
    tab.page.keyboard.type(OTHER)
    tab.page.keyboard.press("Enter")
    tab.link_has(besideText=OTHER)
    tab.page.get_by_role("tab", name="Lines").click()
    tab.page.get_by_role("tab", name="Compare").click()
    tab.page.wait_for_timeout(100)
    tab.expect(tab.page.get_by_role("tab", name="Compare")).to_be_focused()
    tab.open(text=TEXT, view="compare")
    tab.page.get_by_role("tab", name="Compare").press("Enter")
    tab.page.wait_for_timeout(100)
    tab.expect(tab.page.get_by_role("tab", name="Compare")).to_be_focused()
