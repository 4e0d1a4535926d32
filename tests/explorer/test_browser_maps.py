"""Matrix, lines, flow, blocks of a pair and comparisons show the numbers of the API too."""

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.explorer.support.explored import Explorer, number
from tests.explorer.support.planted import HEADS, LAYERS, PREVIOUS, SELF
from tests.explorer.support.reading import HALF, assert_shown, maps
from tests.support.serving import Service

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat."
LABELS = ["[CLS]", "The", "cat", "sat", "on", "the", "mat", ".", "[SEP]"]
N = len(LABELS)
PAIR = ("The cat sat.", "A dog ran on.")
ROWS = "all => all.map(row => [...row.cells].map(cell => cell.innerText))"


def entropy(row: NDArray[np.float64]) -> float:
    """In nats."""
    return float(-(row * np.log(np.maximum(row, 1e-30))).sum())


def test_the_matrix_tells_each_cell(tab: Explorer, served: Service) -> None:
    """Arrow keys lead to every cell of a row and a column; each is told with its weight and its margins."""
    tab.open(text=TEXT, view="matrix", heads=[[1, 2]])
    map_ = maps(served)[1, 2]
    tab.page.locator(".matrix").focus()
    told = tab.page.locator(".matrix-view .told")
    row = column = 0
    for key in ["Home", *["ArrowRight"] * (N - 1), *["ArrowDown"] * (N - 1)]:
        tab.page.keyboard.press(key)
        row, column = row + (key == "ArrowDown"), column + (key == "ArrowRight")
        cell = f"{LABELS[row]} ({row}) → {LABELS[column]} ({column}): "
        tab.expect(told).to_contain_text(cell)
        numbers = told.inner_text().partition(cell)[2].replace("≈", "")
        weight, spread, received = map(float, re.findall(r"\d+(?:\.\d+)?", numbers))
        assert weight == pytest.approx(
            map_[row, column], abs=HALF * weight + (5e-4 if weight >= 0.01 else 5e-6)
        )
        assert spread == pytest.approx(entropy(map_[row]), abs=5e-3)
        assert received == pytest.approx(map_[:, column].sum(), abs=5e-3)


def test_the_matrix_pins_by_mouse_and_keyboard(tab: Explorer, served: Service) -> None:
    """A click pins the row of its cell, Enter that of the cell that arrows lead to."""
    tab.open(text=TEXT, view="matrix", heads=[[1, 2]])
    tab.page.locator(".matrix").focus()
    for key in ("Home", "ArrowDown", "ArrowDown", "ArrowDown", "Enter"):
        tab.page.keyboard.press(key)
    tab.link_has(pinned=[3])
    assert_shown(tab.weights(), maps(served)[1, 2, 3])


@pytest.mark.parametrize("mass", [0.3, 0.7, 0.95])
def test_lines_reach_the_mass(tab: Explorer, served: Service, mass: float) -> None:
    """Of each row the fewest that reach it: of a head with one key a row that is one line a row."""
    tab.open(text=TEXT, view="lines", heads=[[0, SELF], [1, 1]], mass=mass)
    found = maps(served)
    counts = [fewest(found[0, SELF], mass), fewest(found[1, 1], mass)]
    assert counts[0] == N
    legend = tab.page.locator(".lines-legend li")
    assert [int(re.findall(r"(\d+) line", one)[0]) for one in legend.all_inner_texts()] == counts


def fewest(map_: NDArray[np.float64], mass: float) -> int:
    """How many of the largest weights reach a share of their row, over all rows."""
    ordered = -np.sort(-map_, axis=1)
    return int((ordered.cumsum(axis=1) < mass * ordered.sum(axis=1, keepdims=True)).sum() + len(map_))


def test_lines_have_the_table_of_a_pinned_token(tab: Explorer, served: Service) -> None:
    """The same that stands beside the text."""
    tab.open(text=TEXT, view="lines", heads=[[0, PREVIOUS]], pinned=[4])
    assert_shown(tab.weights(), maps(served)[0, PREVIOUS, 4])


def test_flow_and_rollout_are_those_of_the_api(tab: Explorer, served: Service) -> None:
    """Through one layer the flow is half the mean of its heads and half what stays; rollout is the API's."""
    tab.open(text=TEXT, view="flow", heads=[[0, 0]], pinned=[3], edges=40)
    tab.expect(tab.page.locator(".flow-view .row-table tbody")).not_to_contain_text("…")
    rows = tab.page.locator(".flow-view .row-table tbody tr").evaluate_all(ROWS)
    flow = maps(served)[0].mean(axis=0)[3] / 2
    flow[3] += 0.5
    rollout = np.array(served.attention(TEXT, aggregate="rollout", layers=[0])["data"][0]["attention"])
    assert len(rows) == N
    for position, label, share, rolled in rows:
        assert label == LABELS[int(position)]
        assert number(share) == pytest.approx(flow[int(position)], abs=1.1e-3)
        assert number(rolled) == pytest.approx(rollout.reshape(N, N)[3, int(position)], abs=1.1e-3)


def test_blocks_of_a_pair_are_sums_of_its_maps(tab: Explorer, served: Service) -> None:
    """In the label of every cell: means over the rows of a text of the sums of their weights on a text."""
    tab.open(text=PAIR[0], pair=PAIR[1], view="pairs", heads=[[1, 1]])
    item = served.attention([PAIR])["data"][0]
    found = np.array(item["attention"])
    segments, special = np.array(item["segment_ids"]), np.array(item["special"], dtype=bool)
    texts = [(segments == text) & ~special for text in (0, 1)]
    for layer in range(LAYERS):
        for head in range(HEADS):
            cell = tab.page.locator(f'[data-head="{layer},{head}"]')
            tab.expect(cell).not_to_have_attribute("aria-label", re.compile("–"))
            shown = [
                float(one) for one in re.findall(r"→[AB] (\S+?)(?:,|$)", cell.get_attribute("aria-label"))
            ]
            map_ = found[layer, head]
            expected = [map_[a][:, b].sum(axis=1).mean() for a in texts for b in texts]
            assert shown == pytest.approx(expected, abs=1.5e-3)


def test_a_second_text_stands_beside_the_first(tab: Explorer, served: Service) -> None:
    """Each side with its own numbers, of the same head, and of the same token where both have it."""
    other = "Dog sat."
    tab.open(text=TEXT, view="compare", besideText=other, besideView="text", heads=[[1, 0]], pinned=[3])
    for name, text, position in (("First", TEXT, 3), ("Second", other, 2)):
        side = tab.page.get_by_role("region", name=name)
        side.locator(".row-table tbody tr").first.wait_for()
        rows = side.locator(".row-table tbody tr").evaluate_all(ROWS)
        shown = {int(row[0]): number(row[2]) for row in rows}
        assert_shown(shown, maps(served, text)[1, 0, position])


def test_escape_takes_out_pins_of_either_side(tab: Explorer) -> None:
    """A token that the first text lacks is pinned beside it alone, and no longer after Esc."""
    tab.open(text=TEXT, view="compare", besideText="Dog ran.", besideView="text")
    side = tab.page.get_by_role("region", name="Second")
    pinned = tab.page.locator('.tokens [aria-selected="true"]')
    side.get_by_role("option", name="Dog").click()
    tab.expect(pinned).to_have_count(1)
    tab.page.keyboard.press("Escape")
    tab.expect(pinned).to_have_count(0)


def test_differences_of_two_models(tab: Explorer, served: Service) -> None:
    """The largest, each with the weight of either model."""
    tab.open(text=TEXT, view="compare", besideModel="other", besideView="difference", heads=[[1, 3]])
    tab.page.locator(".differences tbody tr").first.wait_for()
    rows = tab.page.locator(".differences tbody tr").evaluate_all(ROWS)
    first, second = maps(served)[1, 3], maps(served, model="other")[1, 3]
    order = np.argsort(-np.abs(second - first), axis=None)[: len(rows)]
    assert len(rows) == 10
    shown = [abs(number(row[4])) for row in rows]
    assert shown == pytest.approx(np.abs(second - first).ravel()[order], abs=1.5e-3)
    for from_, to, one, two, difference in rows:
        assert number(two) - number(one) == pytest.approx(number(difference), abs=1.1e-3)
        at = [(i, j) for i in range(N) for j in range(N) if (LABELS[i], LABELS[j]) == (from_, to)]
        assert any(
            abs(number(one) - first[cell]) < 1e-3 and abs(number(two) - second[cell]) < 1e-3 for cell in at
        )
