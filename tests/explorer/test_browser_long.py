"""A text of 512 tokens is shown to its last weight, and in little memory; fingers do what the mouse does."""

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.explorer.support.explored import Explorer
from tests.explorer.support.planted import WORDS
from tests.explorer.support.reading import assert_shown, maps
from tests.references.checkpoints import write_bert
from tests.support.serving import Service, serve

pytestmark = pytest.mark.deploy

TOKENS, LAYERS, HEADS = 512, 2, 4
TEXT = " ".join(random.Random(3).choices(WORDS, k=TOKENS - 2))  # noqa: S311
LAYER_BYTES = 2 * HEADS * TOKENS**2
WRITTEN = """
window.written = {};
const { fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.fillText = function (label, x, y) {
  if (this.canvas.closest(".matrix") && / [0-9]+$/.test(label)) {
    const { actualBoundingBoxAscent: above, actualBoundingBoxDescent: below } = this.measureText(label);
    const turned = this.getTransform().b !== 0;
    const density = this.canvas.width / this.canvas.clientWidth;
    const { x: left, y: top } = this.getTransform().transformPoint({ x, y });
    const all = (window.written[turned ? "columns" : "rows"] ??= []);
    const place = (turned ? left : top) / density;
    if (all.length > 0 && place <= all.at(-1)[1]) all.length = 0;
    all.push([label, place, above + below]);
  }
  fillText.call(this, label, x, y);
};
"""
"""Keeps what is written beside rows and above columns: label, place and height, of the last time."""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of a model that reads 512 tokens."""
    folder: Path = tmp_path_factory.mktemp("models") / "long"
    write_bert(
        folder,
        words=WORDS,
        hidden_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=TOKENS,
    )
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text(encoding="utf-8")) | {"model_max_length": TOKENS}
    file.write_text(json.dumps(settings), encoding="utf-8")
    with serve(model=folder) as started:
        yield started


@pytest.fixture
def text(browser: Any, long: Service) -> Iterator[Explorer]:
    """The text with a pinned token."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    tab = Explorer(context.new_page(), long.url)
    tab.open(text=TEXT, pinned=[300], heads=[[1, 2]])
    yield tab
    assert tab.found() == []
    context.close()


def test_a_long_text_has_every_weight(text: Explorer, long: Service) -> None:
    """The row of a token, and its column, of all 512."""
    expected = maps(long, TEXT, layers=[1], heads=[2])[0, 0]
    assert_shown(text.weights(), expected[300])
    text.page.get_by_role("radio", name="what looks at it").check(force=True)
    assert_shown(text.weights(), expected[:, 300])
    for name in text.tabs():
        text.tab(name)


@pytest.mark.in_turns
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("count", [89, TOKENS])
def test_small_cells_have_labels(text: Explorer, long: Service, width: int, count: int) -> None:
    """Every second, fifth or tenth row and column, …, with its position; none lies over another."""
    text.page.set_viewport_size({"width": width, "height": 900})
    text.page.add_init_script(WRITTEN)
    shorter = " ".join(TEXT.split()[: count - 2])
    text.open(text=shorter, view="matrix", heads=[[1, 2]])
    tokens = long.attention(shorter, maps=False, summary=True)["data"][0]["tokens"]
    assert len(tokens) == count
    text.page.locator(".matrix").wait_for()
    text.becomes(lambda: len(text.page.evaluate("window.written.rows ?? []")) > 3, expected=True)
    for axis in ("rows", "columns"):
        labels = text.page.evaluate(f"window.written.{axis}")
        named = [(int(one.split()[-1]), one.split()[0].rstrip("…")) for one, _, _ in labels]
        steps = {b - a for (a, _), (b, _) in itertools.pairwise(named)}
        assert len(steps) == 1
        assert steps <= {2, 5, 10, 20, 50}
        assert all(tokens[position].startswith(word) for position, word in named)
        places = [place for _, place, _ in labels]
        highest = max(high for _, _, high in labels)
        assert min(b - a for a, b in itertools.pairwise(places)) >= highest


def test_layers_of_a_long_text_take_two_bytes_a_weight(text: Explorer) -> None:
    """Two layers have less than three would; pointing at tokens leaves no styles on them."""
    text.page.keyboard.press("[")
    text.settle()
    for position in range(40, 60):
        text.token(position).hover()
    assert text.page.locator(".token[style]").count() == 0
    session = text.page.context.new_cdp_session(text.page)
    session.send("HeapProfiler.collectGarbage")
    kept = session.send("Runtime.getHeapUsage")["backingStorageSize"]
    assert LAYERS * LAYER_BYTES < kept < (LAYERS + 1) * LAYER_BYTES


def test_a_finger_pins_tokens_and_opens_heads(browser: Any, served: Service) -> None:
    """A tap does what a click does, in the text, in the grid and in the matrix."""
    context = browser.new_context(viewport={"width": 360, "height": 800}, has_touch=True, is_mobile=True)
    tab = Explorer(context.new_page(), served.url)
    tab.open(text="The cat sat on the mat.")
    tab.token(2).tap()
    tab.becomes(tab.pinned, [2])
    tab.page.get_by_role("tab", name="All heads").tap()
    tab.page.locator('[data-head="1,2"]').tap()
    tab.expect(tab.page.locator(".head-panel h2")).to_have_text("L1 H2")
    tab.page.get_by_role("tab", name="Matrix").tap()
    tab.settle()
    tab.page.locator(".matrix").tap()  # which scrolls to it
    tab.expect(tab.page.locator(".matrix-view .told")).to_contain_text("→")
    assert tab.found() == []
    context.close()
