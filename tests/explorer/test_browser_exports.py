"""What the dialog saves and copies has the numbers of the API."""

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.explorer.support.explored import Explorer
from tests.explorer.support.reading import HALF, maps
from tests.support.serving import Service

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat."
LABELS = ["[CLS]", "The", "cat", "sat", "on", "the", "mat", ".", "[SEP]"]
EDGE = 16
"""Of paper around a picture, in pixels of the page."""
SVG = "{http://www.w3.org/2000/svg}"
BERTVIZ = """
import numpy as np

def head_view(attention, tokens, *rest):
    np.save("maps.npy", np.stack([np.asarray(layer)[0] for layer in attention]))
    print(tokens)
"""


@pytest.fixture
def dialog(tab: Explorer) -> Explorer:
    """The page with the dialog open, over the matrix of a head."""
    tab.open(text=TEXT, view="matrix", heads=[[1, 2]], pinned=[2])
    tab.page.get_by_role("button", name="Export").click()
    return tab


def saved(tab: Explorer, button: str) -> Path:
    """The file that a button saves."""
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name=button, exact=True).click()
    assert download.value.suggested_filename.startswith("headlight-matrix-L1H2.")
    return Path(download.value.path())


def test_a_png_has_the_pixels_of_the_view_many_times(dialog: Explorer) -> None:
    """Three for each of the page's, at each side, and they are not all alike."""
    from PIL import Image

    dialog.page.get_by_role("combobox", name="Pixels of the PNG").select_option("3")
    box = dialog.page.locator("#view").bounding_box()
    with Image.open(saved(dialog, "PNG")) as image:
        told = f"Saved a picture of {image.width} × {image.height} pixels."
        dialog.expect(dialog.page.get_by_text(told)).to_be_visible()
        assert abs(image.width - 3 * (box["width"] + 2 * EDGE)) <= 3
        colours = image.convert("RGB").resize((400, 400)).getcolors(maxcolors=400**2)
    assert colours is not None
    assert len(colours) > 50


def test_an_svg_has_texts_as_texts(dialog: Explorer) -> None:
    """The tokens beside the map, and the table with the weights of the pinned one."""
    root = ElementTree.parse(saved(dialog, "SVG")).getroot()  # noqa: S314
    texts = ["".join(one.itertext()).strip() for one in root.iter(f"{SVG}text")]
    assert {"cat", "mat", "[SEP]"} <= set(texts)
    rows = dialog.page.locator(".row-table tbody tr td:nth-child(3)").all_inner_texts()
    assert len(rows) == len(LABELS)
    assert set(rows) <= set(texts)


def test_an_svg_has_the_bars_below_tokens(tab: Explorer) -> None:
    """As high as on the page, each above a line of the token's own ground."""
    tab.open(text=TEXT, heads=[[1, 2]], pinned=[2])
    tab.page.locator(".row-table tbody tr").first.wait_for()
    heights = [
        max(map(float, re.findall(r"-([\d.]+)px", shadow)))
        for shadow in tab.page.locator(".token").evaluate_all(
            "all => all.map(one => getComputedStyle(one).boxShadow)"
        )
        if shadow != "none"
    ]
    assert max(heights) == 5
    tab.page.get_by_role("button", name="Export").click()
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="SVG", exact=True).click()
    root = ElementTree.parse(download.value.path()).getroot()  # noqa: S314
    found = [float(one.attrib["height"]) for one in root.iter(f"{SVG}rect")]
    assert found.count(1) >= len(heights)
    assert sorted(one for one in found if 1 < one <= 5) == sorted(heights)


def test_an_npz_is_the_answer_of_the_service(dialog: Explorer, served: Service) -> None:
    """All layers, in single precision."""
    dialog.page.get_by_role("combobox", name="Layers").select_option("all")
    with np.load(saved(dialog, "npz")) as arrays:
        (name,) = [one for one in arrays.files if one.endswith("attention")]
        assert np.abs(arrays[name] - maps(served)).max() < 1e-6


def test_a_page_holds_the_maps_of_its_layer_and_shows_them(
    dialog: Explorer, served: Service, browser: Any
) -> None:
    """In half precision; opened without a network it has the same numbers."""
    content = saved(dialog, "HTML page").read_text(encoding="utf-8")
    found = re.search('id="headlight-data">(.*?)</script>', content, flags=re.DOTALL)
    assert found is not None
    (layer,) = json.loads(found[1])["layers"]
    packed = layer["attention"]
    weights = np.frombuffer(base64.b64decode(packed["float16"]), "<f2").reshape(packed["shape"])
    assert np.abs(weights[0] - maps(served)[1]).max() <= HALF
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.set_content(content)
    page.locator(".row-table tbody tr").first.wait_for()
    rows = [row.split("\t") for row in page.locator(".row-table tbody tr").all_inner_texts()]
    assert {row[1]: row[2] for row in rows}["mat"] == f"{maps(served)[1, 2, 2, 6]:.3f}"
    assert page.get_by_role("link", name="API documentation").count() == 0  # there is no service
    context.close()


@pytest.mark.parametrize("language", ["curl", "python", "bertviz"])
def test_copied_programs_get_the_same_maps(
    dialog: Explorer, served: Service, tmp_path: Path, language: str
) -> None:
    """As they are copied, they run, and print or draw the layer."""
    dialog.page.get_by_role("combobox", name="Language").select_option(language)
    code = dialog.page.get_by_role("textbox", name="Code").input_value()
    layer = maps(served)[1]
    if language == "curl":
        answer = json.loads(printed(["bash", "-c", code], tmp_path))
        assert np.abs(np.array(answer["data"][0]["attention"])[0] - layer).max() < 1e-6
        return
    (tmp_path / "bertviz.py").write_text(BERTVIZ, encoding="utf-8")
    ending = 'import numpy\nnumpy.save("maps.npy", item.attention)\n' if language == "python" else ""
    text = printed([sys.executable, "-c", code + ending], tmp_path)
    assert text.splitlines()[0] == str([label.lower() if label[0] != "[" else label for label in LABELS])
    assert np.abs(np.load(tmp_path / "maps.npy")[0] - layer).max() < 1e-6


def printed(command: list[str], folder: Path) -> str:
    """What a program prints, with the modules of a folder beside it."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout
