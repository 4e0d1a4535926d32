"""The pictures of the docs are what the page looks like.

`python -m tests.explorer.test_browser_pictures` draws them anew.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.explorer.explored import THEMES, WIDTHS, Explorer, chromium
from tests.support.serving import ROOT, serve

pytestmark = pytest.mark.deploy

FOLDER = ROOT / "docs" / "images" / "explorer"
TEXT = "The animal did not cross the street because it was too tired."
COMMON: dict[str, Any] = {"text": TEXT, "heads": [[3, 1]], "pinned": [9]}
VIEWS: dict[str, dict[str, Any]] = {
    "text": COMMON,
    "heads": COMMON,
    "matrix": COMMON,
    "lines": {**COMMON, "pinned": []},
}
HEIGHTS = {360: 800, 768: 800, 1440: 860}
COLOURS = 128
"""Of the pictures: they are small, and only gradients show it."""
NEAR, SHARE = 24, 0.02
"""Of 255, what a pixel may differ by; and the share of pixels that may differ by more: fonts, and times."""


@contextmanager
def shown(browser: Any, url: str, view: str, theme: str, width: int) -> Iterator[Explorer]:
    """A view as it looks at a width in a theme, at rest."""
    context = browser.new_context(
        viewport={"width": width, "height": HEIGHTS[width]}, color_scheme=theme, reduced_motion="reduce"
    )
    tab = Explorer(context.new_page(), url)
    tab.open(**VIEWS[view], view=view)
    tab.page.mouse.move(1, 1)
    tab.page.locator(".timing").evaluate("one => { one.textContent = '15 tokens, 9 ms' }")
    tab.page.wait_for_timeout(150)
    yield tab
    context.close()


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


@pytest.mark.parametrize(
    ("view", "theme", "width"),
    [("text", "light", 1440), ("heads", "dark", 1440), ("matrix", "light", 768), ("text", "dark", 360)],
)
def test_pictures_are_what_the_page_looks_like(
    browser: Any, embedded: str, view: str, theme: str, width: int
) -> None:
    """Pixel by pixel, but for a few; drawn anew after a change that is meant."""
    with shown(browser, embedded, view, theme, width) as tab:
        now = pixels(tab.page.screenshot())
    kept = pixels(picture(view, theme, width))
    assert now.shape == kept.shape
    assert different(now, kept) <= SHARE, "python -m tests.explorer.test_browser_pictures"


def different(one: NDArray[np.int16], other: NDArray[np.int16]) -> float:
    """The share of pixels of which some channel is far from the other's."""
    return float((np.abs(one - other).max(axis=2) > NEAR).mean())


def test_the_other_theme_is_another_picture() -> None:
    """What is compared above differs where the page does."""
    assert different(*(pixels(picture("text", theme, 1440)) for theme in THEMES)) > 0.5
    assert different(pixels(picture("text", "light", 1440)), pixels(picture("heads", "light", 1440))) > SHARE


def test_pictures_are_small() -> None:
    """All of them below 2 MB, for each view in each theme at each width."""
    names = {picture(view, theme, width) for view in VIEWS for theme in THEMES for width in WIDTHS}
    assert set(FOLDER.glob("*.png")) == names
    assert sum(path.stat().st_size for path in names) < 2e6


def draw(folder: Path) -> None:
    """Write every picture."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    with serve() as service, chromium() as browser:
        for view in VIEWS:
            for theme in THEMES:
                for width in WIDTHS:
                    with shown(browser, service.url, view, theme, width) as tab:
                        content = tab.page.screenshot()
                    with Image.open(BytesIO(content)) as image:
                        small = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
                        small.save(folder / picture(view, theme, width).name, optimize=True)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
