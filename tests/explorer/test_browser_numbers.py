"""Every view shows the numbers of the API, of a model whose first layer is known by heart."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.explorer.support.explored import Explorer, weight_text
from tests.explorer.support.planted import HEADS, LAYERS, NEXT, PREVIOUS, SELF, UNIFORM
from tests.explorer.support.reading import assert_shown, maps
from tests.support.serving import Service

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat."
TOKENS = ["[CLS]", "the", "cat", "sat", "on", "the", "mat", ".", "[SEP]"]
N = len(TOKENS)
COLUMNS = [
    *("entropy", "confidence", "mean_distance", "self", "previous", "next", "special"),
    *("argmax_self", "argmax_previous", "argmax_next"),
]
IDS = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
PIXELS = """canvas => {
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  return Array.from({ length: height }, (_, y) => Array.from({ length: width }, (_, x) => {
    const i = 4 * (y * width + x);
    return 0.2126 * data[i] + 0.7152 * data[i + 1] + 0.0722 * data[i + 2];
  }));
}"""


def summary(served: Service, text: Any = TEXT, **options: object) -> dict[str, NDArray[np.float64]]:
    """The statistics of the API, (layers, heads) each."""
    item = served.attention(text, summary=True, maps=False, **options)["data"][0]
    return {name: np.array(values) for name, values in item["summary"].items()}


def test_the_planted_heads_do_what_they_are_for(served: Service) -> None:
    """What the tests below compare with is known without the API too."""
    first = maps(served)[0]
    assert first[UNIFORM] == pytest.approx(np.full((N, N), 1 / N), abs=1e-4)
    for head, shift in ((PREVIOUS, -1), (NEXT, 1), (SELF, 0)):
        inner = first[head].diagonal(shift)
        assert inner.min() > 0.99, head


@pytest.mark.parametrize("direction", ["from", "to"])
@pytest.mark.parametrize("head", [(0, PREVIOUS), (0, UNIFORM), (1, 2)])
def test_the_text_shows_the_row_of_a_pinned_token(
    tab: Explorer, served: Service, head: tuple[int, int], direction: str
) -> None:
    """Row or column, as the API has it; tokens and positions too; the colours follow."""
    tab.open(text=TEXT, heads=[head], pinned=[3], direction=direction)
    map_ = maps(served)[head]
    assert_shown(tab.weights(), map_[3] if direction == "from" else map_[:, 3])
    rows = tab.page.locator(".row-table tbody tr").evaluate_all(
        "all => all.map(row => [...row.cells].map(cell => cell.innerText))"
    )
    labels = ["[CLS]", "The", "cat", "sat", "on", "the", "mat", ".", "[SEP]"]
    assert {int(row[0]): row[1] for row in rows} == dict(enumerate(labels))
    strongest = int((map_[3] if direction == "from" else map_[:, 3]).argmax())
    if head == (0, PREVIOUS):
        assert strongest == (2 if direction == "from" else 4)
        colour = "one => getComputedStyle(one).backgroundColor"
        others = {tab.token(i).evaluate(colour) for i in range(N) if i != strongest}
        assert tab.token(strongest).evaluate(colour) not in others


def test_several_pins_are_summed_and_several_heads_averaged(tab: Explorer, served: Service) -> None:
    """As the help says, in the table beside the text."""
    tab.open(text=TEXT, heads=[[0, SELF], [1, 1]], pinned=[2, 5])
    found = maps(served)
    assert_shown(tab.weights(), (found[0, SELF] + found[1, 1])[[2, 5]].sum(axis=0) / 2)
    assert "mean of 2 heads" in tab.page.locator(".row-table caption").inner_text()


@pytest.mark.parametrize(
    ("fields", "options", "first"),
    [
        ({"weights": "value_norm"}, {"weights": "value_norm"}, 0),
        ({"weights": "score"}, {"weights": "score"}, 0),
        ({"special": "drop"}, {"special_tokens": "drop"}, 1),
        ({"special": "renormalize"}, {"special_tokens": "drop", "renormalize": True}, 1),
    ],
)
def test_weights_and_special_tokens_are_those_of_the_api(
    tab: Explorer, served: Service, fields: dict[str, str], options: dict[str, object], first: int
) -> None:
    """Each choice of the controls is the API's option of that name."""
    tab.open(text=TEXT, heads=[[1, 0]], pinned=[3], **fields)
    assert_shown(tab.weights(), maps(served, **options)[1, 0, 3 - first], first)


def test_words_are_those_of_the_api(tab: Explorer, served: Service) -> None:
    """Pieces of a word are one, with the word's own row."""
    text = "A cat xyz."
    tab.open(text=text, level="word", heads=[[1, 3]], pinned=[3])
    item = served.attention(text, level="word")["data"][0]
    assert item["words"][3] == "xyz"
    assert tab.token(3).inner_text() == "xyz"
    assert_shown(tab.weights(), np.array(item["attention"])[1, 3, 3])


def test_rollout_is_that_of_the_api(tab: Explorer, served: Service) -> None:
    """Through the layers up to the chosen one."""
    tab.open(text=TEXT, weights="rollout", heads=[[1, 0]], pinned=[2])
    answer = served.attention(TEXT, aggregate="rollout", layers=[1])["data"][0]["attention"]
    assert_shown(tab.weights(), np.array(answer).reshape(N, N)[2])


def test_a_pair_is_that_of_the_api(tab: Explorer, served: Service) -> None:
    """Both texts in one list."""
    pair = ("The cat sat.", "A dog ran.")
    tab.open(text=pair[0], pair=pair[1], heads=[[2, 1]], pinned=[1])
    assert_shown(tab.weights(), maps(served, [pair])[2, 1, 1])


@pytest.mark.parametrize("statistic", ["entropy", "mean_distance", "argmax_previous"])
def test_cells_of_the_grid_show_statistics(tab: Explorer, served: Service, statistic: str) -> None:
    """The number in each cell is the API's; its label says seven of them."""
    tab.open(text=TEXT, view="heads", cells=statistic)
    expected = summary(served)
    for layer, head in IDS:
        cell = tab.page.locator(f'[data-head="{layer},{head}"]')
        assert cell.inner_text() == weight_text(expected[statistic][layer, head])
        label = cell.get_attribute("aria-label")
        assert label.startswith(f"Layer {layer}, head {head}: ")
        values = [part.rpartition(" ")[2] for part in label.partition(": ")[2].split(", ")]
        assert values == [weight_text(expected[name][layer, head]) for name in COLUMNS[:7]]


def test_thumbnails_are_the_maps(tab: Explorer, served: Service) -> None:
    """A pixel for each weight: a larger weight is nowhere fainter than a smaller one of the same map."""
    tab.open(text=TEXT, view="heads")
    found = maps(served)
    for layer, head in IDS:
        pixels = np.array(tab.page.locator(f'[data-head="{layer},{head}"] canvas').evaluate(PIXELS))
        assert_ordered(pixels, found[layer, head])


def assert_ordered(pixels: NDArray[np.float64], map_: NDArray[np.float64]) -> None:
    """Luminance falls, or rises, with the weights, but for steps of the colours."""
    assert pixels.shape == map_.shape
    if np.ptp(map_) < 1e-3:
        assert np.ptp(pixels) == 0
        return
    bright = pixels.ravel()[np.argsort(map_, axis=None)]
    sign = np.sign(bright[-1] - bright[0])
    assert sign != 0
    assert (sign * np.diff(bright)).min() >= -1


def test_the_panel_of_a_head_has_its_map_and_statistics(tab: Explorer, served: Service) -> None:
    """Beside the grid, larger, of the layer's own maps."""
    tab.open(text=TEXT, view="heads", heads=[[0, NEXT]])
    panel = tab.page.locator(".head-panel")
    assert panel.locator("h2").inner_text() == f"L0 H{NEXT}"
    expected = summary(served)
    assert [one.split()[0] for one in panel.locator("dd").all_inner_texts()] == [
        weight_text(expected[name][0, NEXT]) for name in COLUMNS[:7]
    ]
    assert_ordered(np.array(panel.locator("canvas").first.evaluate(PIXELS)), maps(served)[0, NEXT])


def test_the_table_has_every_statistic_of_every_head(tab: Explorer, served: Service) -> None:
    """Layer by layer at first; a title puts the largest first, once more the smallest."""
    tab.open(text=TEXT, view="table")
    expected = summary(served)
    table = tab.page.locator(".heads-table")
    read = "all => all.map(row => [...row.cells].map(cell => cell.innerText))"
    rows = table.locator("tbody tr").evaluate_all(read)
    assert [row[0] for row in rows] == [f"L{layer} H{head}" for layer, head in IDS]
    for row, id_ in zip(rows, IDS, strict=True):
        assert row[1 : 1 + len(COLUMNS)] == [weight_text(expected[name][id_]) for name in COLUMNS]
    order = sorted(IDS, key=lambda id_: (-expected["previous"][id_], id_))
    table.get_by_role("button", name="Previous", exact=True).click()
    tab.expect(table.locator("tbody tr").first).to_contain_text("L{} H{}".format(*order[0]))
    assert table.locator("tbody th").all_inner_texts() == ["L{} H{}".format(*id_) for id_ in order]
    tab.expect(table.get_by_role("columnheader", name="Previous", exact=False).first).to_have_attribute(
        "aria-sort", "descending"
    )


def test_the_table_has_the_similarities_of_the_texts(tab: Explorer, served: Service) -> None:
    """Of every two that were entered, by the vectors of the chosen model; of one text there are none."""
    texts = [TEXT, "A dog ran.", "The dog sat on the mat."]
    tab.open(text=TEXT, view="table", model="other")
    tab.page.locator(".heads-table").wait_for()
    table = tab.page.locator(".similarities")
    assert table.count() == 0
    tab.open(text=TEXT, pair=texts[1], besideText=texts[2], view="table", model="other")
    answer = served.http.post("/similarity", json={"texts": texts, "model": "other"}).json()
    rows = table.locator("tbody tr").evaluate_all(
        "all => all.map(row => [...row.cells].map(c => c.innerText))"
    )
    assert rows == [
        [texts[i], texts[j], weight_text(answer["similarities"][i][j])] for i, j in ((0, 1), (0, 2), (1, 2))
    ]
    tab.expect(table.locator("caption")).to_contain_text("cosine of the sentence vectors of other")


def test_fingerprints_stand_where_their_statistics_are(tab: Explorer, served: Service) -> None:
    """A box over the right end chooses the heads that look farthest, and pointing tells a head's numbers."""
    tab.open(text=TEXT, view="fingerprints")
    expected = summary(served)
    far = expected["mean_distance"]
    box = tab.page.locator(".scatter").bounding_box()
    middle = box["x"] + 44 + (box["width"] - 64) / 2
    tab.page.mouse.move(middle, box["y"] + 2)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] - 2, steps=3)
    tab.page.mouse.up()
    edge = (far.min() + far.max()) / 2
    tab.tab("All heads")
    assert {tuple(one) for one in tab.chosen()} == {id_ for id_ in IDS if far[id_] >= edge}


def test_fingerprints_tell_the_numbers_of_the_current_head(tab: Explorer, served: Service) -> None:
    """In the line below the scatter."""
    tab.open(text=TEXT, view="fingerprints", heads=[[2, 3]])
    expected = summary(served)
    told = tab.page.locator(".fingerprints-view .told").inner_text()
    assert told.startswith("Layer 2, head 3: entropy " + weight_text(expected["entropy"][2, 3]))
    assert weight_text(expected["special"][2, 3]) in told
