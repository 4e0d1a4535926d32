"""The pictures of the docs are what the page looks like.

`python -m tests.explorer.test_browser_pictures` draws them anew.
"""

import sys
from collections.abc import Iterator
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.explorer.support.explored import THEMES, WIDTHS, Explorer, chromium, fragment
from tests.support.serving import ROOT, serve

pytestmark = pytest.mark.deploy

FOLDER = ROOT / "docs" / "images" / "explorer"
TEXT = "The animal did not cross the street because it was too tired."
OTHER = "The animal did not cross the street because it was too wide."
COMMON: dict[str, Any] = {"text": TEXT, "heads": [[3, 1]], "pinned": [9]}
VIEWS: dict[str, dict[str, Any]] = {
    "text": COMMON,
    "heads": COMMON,
    "fingerprints": COMMON,
    "lines": {**COMMON, "pinned": []},
    "matrix": COMMON,
    "flow": COMMON,
    "table": {**COMMON, "sort": "-entropy", "besideText": OTHER},
    "compare": {**COMMON, "besideText": OTHER},
    "why": {
        **COMMON,
        "pair": "It was exhausted, so the dog stayed on this side of the road.",
        "pinned": [],
        "effects": "on",
        "ablated": [[5, 10]],
    },
    "pairs": {**COMMON, "text": "Who wrote Hamlet?", "pair": "Shakespeare wrote Hamlet.", "pinned": []},
}
TALLEST = {360: 1700, 768: 1400, 1440: 1250}
"""Pixels, by width. A picture is as high as its view, up to here."""
NEAR, SHARE = 24, 0.01
"""Of 255, what a pixel may differ by; and the share of pixels that may differ by more: fonts, and times."""
COMMON_COLOURS, COLOURS = 64, 160
"""What a picture has, which makes it small: the page's most common colours, and in all."""
_FRAMES = "async () => { for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame) }"
_HEIGHT = """() => {
  const footer = document.querySelector(".footer");
  const above = parseFloat(getComputedStyle(footer).marginTop);
  const { bottom } = document.querySelector("#view").getBoundingClientRect();
  return Math.ceil(bottom + above + footer.offsetHeight);
}"""
_TIMING = "one => { one.firstChild.data = '15 tokens, 9 ms'; scrollTo(0, 0) }"


def shots(browser: Any, url: str, theme: str, width: int) -> Iterator[tuple[str, bytes]]:
    """All views as they look at a width in a theme, at rest: in one tab, which takes less time than many."""
    context = browser.new_context(
        viewport={"width": width, "height": TALLEST[width]}, color_scheme=theme, reduced_motion="reduce"
    )
    tab = Explorer(context.new_page(), url)
    tab.open(text=TEXT)
    tab.page.mouse.move(1, 1)
    for view, fields in VIEWS.items():
        link = fragment(**fields, view=view)
        tab.page.evaluate("link => { location.hash = link }", link)
        tab.page.locator(f"#view.view-{view}").wait_for()
        for _ in range(2):  # what a view asks for may follow from its first answer
            tab.settle()
            tab.expect(tab.page.locator("#view progress")).to_have_count(0)
            tab.page.evaluate(_FRAMES)
        fit(tab, width)
        tab.page.locator(".timing").evaluate(_TIMING)
        yield view, tab.page.screenshot()
    assert tab.found() == []
    context.close()


def fit(tab: Explorer, width: int) -> None:
    """Make the window as high as the view, of which some parts are as high as the window."""
    for _ in range(5):
        height = min(tab.page.evaluate(_HEIGHT), TALLEST[width])
        if tab.page.viewport_size["height"] == height:
            return
        tab.page.set_viewport_size({"width": width, "height": height})
        tab.page.evaluate(_FRAMES)
    raise AssertionError(f"The view is still {height} pixels high.")


def picture(view: str, theme: str, width: int) -> Path:
    """Where it is."""
    return FOLDER / f"{view}-{theme}-{width}.png"


def pixels(content: bytes | Path) -> NDArray[np.int16]:
    """An image as numbers, (height, width, 3)."""
    from PIL import Image

    with Image.open(BytesIO(content) if isinstance(content, bytes) else content) as image:
        return np.asarray(image.convert("RGB"), dtype=np.int16)


@pytest.fixture(scope="module")
def embedded() -> Iterator[str]:
    """The address of a service of the embedded model, whose attention the pictures show."""
    with serve() as started:
        yield started.url


@pytest.mark.in_turns
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
def test_pictures_are_what_the_page_looks_like(browser: Any, embedded: str, theme: str, width: int) -> None:
    """Pixel by pixel, but for a few; drawn anew after a change that is meant."""
    for view, content in shots(browser, embedded, theme, width):
        now, kept = pixels(content), pixels(picture(view, theme, width))
        assert now.shape == kept.shape, view
        share = different(now, kept)
        assert share <= SHARE, f"{view}: python -m tests.explorer.test_browser_pictures"


def different(one: NDArray[np.int16], other: NDArray[np.int16]) -> float:
    """The share of pixels of which some channel is far from the other's."""
    return float((np.abs(one - other).max(axis=2) > NEAR).mean())


def test_the_other_theme_is_another_picture() -> None:
    """What is compared above differs where the page does."""
    assert different(*(pixels(picture("text", theme, 1440)) for theme in THEMES)) > 0.5
    views = [pixels(picture(view, "light", 1440)) for view in ("text", "heads")]
    height = min(len(view) for view in views)
    assert different(*(view[:height] for view in views)) > SHARE


def test_pictures_are_small() -> None:
    """All of them below 3 MB, for each view in each theme at each width."""
    names = {picture(*one) for one in product(VIEWS, THEMES, WIDTHS)}
    assert set(FOLDER.glob("*.png")) == names
    assert sum(path.stat().st_size for path in names) < 3e6


def reduced(image: NDArray[np.int16]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A palette, (colours, 3), and of each pixel the index of the nearest colour in it, (height, width).

    After the most common colours come those farthest from all before: a few pixels of a legend keep theirs.
    """
    own, pixel, counts = np.unique(image.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    chosen = [int(one) for one in np.argsort(-counts)[:COMMON_COLOURS]]
    distances = [np.abs(own - own[one]).max(axis=1) for one in chosen]  # each (own,)
    nearest = np.min(distances, axis=0)
    while len(chosen) < COLOURS:
        chosen.append(int(nearest.argmax()))
        distances.append(np.abs(own - own[chosen[-1]]).max(axis=1))
        nearest = np.minimum(nearest, distances[-1])
    indices = np.argmin(distances, axis=0).astype(np.uint8)
    return own[chosen].astype(np.uint8), indices[pixel].reshape(image.shape[:2])


def draw(folder: Path) -> None:
    """Write every picture."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    with serve() as service, chromium() as browser:
        for theme, width in product(THEMES, WIDTHS):
            for view, content in shots(browser, service.url, theme, width):
                palette, indices = reduced(pixels(content))
                image = Image.fromarray(indices, mode="P")
                image.putpalette(palette.tobytes())
                image.save(folder / picture(view, theme, width).name, optimize=True)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
