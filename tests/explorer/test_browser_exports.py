"""What the dialog saves and copies has the numbers of the API."""

import base64
import csv
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

from tests.explorer.support.explored import Explorer, shown_weights, state_of, weight_text
from tests.explorer.support.reading import HALF, assert_shown, maps
from tests.support.serving import Service

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat."
LABELS = ["[CLS]", "The", "cat", "sat", "on", "the", "mat", ".", "[SEP]"]
N = len(LABELS)
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


def drawing(tab: Explorer) -> ElementTree.Element:
    """The SVG that is saved."""
    return ElementTree.parse(saved(tab, "SVG")).getroot()  # noqa: S314


def texts_of(root: ElementTree.Element) -> list[str]:
    """What is written in it."""
    return ["".join(one.itertext()).strip() for one in root.iter(f"{SVG}text")]


def cells(root: ElementTree.Element) -> dict[tuple[int, int], str]:
    """The colour of each cell of the largest map in it, by row and column."""
    (group,) = [
        one
        for one in root.iter(f"{SVG}g")
        if one.get("shape-rendering") and len(list(one)) > 1 and _rows(one) == N
    ]
    runs: list[tuple[str, float, float, float]] = []
    for colour in group:
        for run in colour.attrib["d"].split("Z")[:-1]:
            x, y, end = (float(one) for one in re.findall(r"[\d.]+", run)[:3])
            runs.append((colour.attrib["fill"], x, y, end))
    ys = sorted({y for _, _, y, _ in runs})
    left, right = min(run[1] for run in runs), max(run[3] for run in runs)
    side = (right - left) / N
    return {
        (ys.index(y), column): fill
        for fill, x, y, end in runs
        for column in range(round((x - left) / side), round((end - left) / side))
    }


def _rows(group: ElementTree.Element) -> int:
    starts = {run.split()[1].partition("H")[0] for path in group for run in path.attrib["d"].split("Z")[:-1]}
    return len(starts)


def test_a_map_in_an_svg_is_of_vectors(dialog: Explorer, served: Service) -> None:
    """A cell for each weight, darker or lighter by its size; there is no image that programs would blur."""
    root = drawing(dialog)
    assert list(root.iter(f"{SVG}image")) == []
    found = cells(root)
    assert set(found) == {(i, j) for i in range(N) for j in range(N)}
    bright = {
        cell: float(np.dot([0.2126, 0.7152, 0.0722], [int(one) for one in re.findall(r"\d+", colour)]))
        for cell, colour in found.items()
    }
    map_ = maps(served)[1, 2]
    order = sorted(bright, key=lambda cell: map_[cell])
    steps = np.diff([bright[cell] for cell in order])
    assert steps.min() >= -1 or steps.max() <= 1


def test_lines_in_an_svg_are_of_vectors(tab: Explorer) -> None:
    """As many as the legend counts."""
    tab.open(text=TEXT, view="lines", heads=[[1, 2]])
    count = int(tab.page.locator(".lines-legend li .faint").inner_text().split()[0])
    tab.page.get_by_role("button", name="Export").click()
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="SVG", exact=True).click()
    root = ElementTree.parse(download.value.path()).getroot()  # noqa: S314
    assert list(root.iter(f"{SVG}image")) == []
    paths = [one.attrib["d"] for one in root.iter(f"{SVG}path") if one.get("fill") == "none"]
    assert sum(path.count("M") for path in paths) == count


def test_a_figure_has_a_title_and_a_colour_bar_and_no_tables(dialog: Explorer, served: Service) -> None:
    """Model, head and text above the map; the ends of the bar are those of the map's weights."""
    root = drawing(dialog)
    texts = texts_of(root)
    title = f"planted · L1 H2 · “{TEXT}”"
    assert title in " ".join(texts)
    assert root.findtext(f"{SVG}title") == title
    most = float(maps(served)[1, 2].max())
    assert {weight_text(most + off) for off in (-HALF / 2, 0, HALF / 2)} & set(texts)
    assert not any("Click pins" in text or text in ("Weight", "Position") for text in texts)


@pytest.mark.parametrize("view", ["lines", "flow"])
def test_drawings_in_one_colour_have_a_bar_too(tab: Explorer, view: str) -> None:
    """On the page and in the figure: from faint at 0 to the whole colour at 1, half of it at a quarter."""
    tab.open(text=TEXT, view=view, heads=[[1, 2]], theme="light")
    bar = tab.page.locator("#view .colour-bar")
    tab.expect(bar.locator("span")).to_have_text(["0", "0.250", "1.000"])
    read = "one => [...one.getContext('2d').getImageData(0, 0, one.width, 1).data]"
    pixels = np.array(bar.locator("canvas").evaluate(read)).reshape(-1, 4)
    assert set(pixels[:, 3]) == {255}
    ink = 255 - pixels[:, :3].astype(float)
    least = {"lines": 0, "flow": 0.25}[view]
    expected = ink[-1] * np.linspace(least, 1, len(ink))[:, None]
    assert ink[-1].max() > 100
    assert np.abs(ink - expected).max() <= 2
    tab.page.get_by_role("button", name="Export").click()
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="SVG", exact=True).click()
    root = ElementTree.parse(download.value.path()).getroot()  # noqa: S314
    assert {"0", "0.250", "1.000"} <= set(texts_of(root))
    fills = {one.get("fill") for one in root.iter(f"{SVG}path")}
    assert f"rgb({','.join(map(str, pixels[-1, :3]))})" in fills


@pytest.mark.parametrize("mm", [85, 170])
def test_a_figure_has_the_width_on_paper_that_is_wanted(dialog: Explorer, mm: int) -> None:
    """In millimetres, with a height to match; a PNG of 300 dots an inch has the pixels for it."""
    from PIL import Image

    dialog.page.get_by_label("Width in mm").fill(str(mm))
    root = drawing(dialog)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert root.attrib["width"] == f"{mm}mm"
    assert float(root.attrib["height"].removesuffix("mm")) == pytest.approx(mm * height / width, abs=0.01)
    dialog.page.get_by_label("Pixels of the PNG").select_option("300")
    with Image.open(saved(dialog, "PNG")) as image:
        image.verify()
        assert image.width == round(mm / 25.4 * 300)
        assert image.info["dpi"] == pytest.approx((300, 300), abs=0.1)


def test_a_figure_has_no_empty_room_around_it(dialog: Explorer) -> None:
    """The map is a square in a wide frame, and the picture as wide as the map with its margins."""
    root = drawing(dialog)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    frame = dialog.page.locator(".matrix").bounding_box()
    assert width < frame["width"]
    assert height > 0.6 * width


def test_the_link_is_copied(dialog: Explorer) -> None:
    """It has what was chosen, before the address bar has it."""
    dialog.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    dialog.page.get_by_role("button", name="Copy link").click()
    dialog.expect(dialog.page.get_by_text("Copied the link")).to_be_visible()
    link = dialog.page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(f"{dialog.url}/explorer#1.")
    state = state_of(link)
    assert (state["text"], state["heads"], state["pinned"], state["view"]) == (TEXT, [[1, 2]], [2], "matrix")


def test_the_table_of_heads_is_saved_as_csv(tab: Explorer, served: Service) -> None:
    """All digits, in the order of the table, with the weight of a pinned edge."""
    tab.open(text=TEXT, view="table", edge="on", pinned=[3, 2], sort="-edge")
    tab.expect(tab.page.locator(".heads-table tbody tr").first).not_to_contain_text("–")
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="Save as CSV").click()
    assert download.value.suggested_filename == "headlight-heads.csv"
    with Path(download.value.path()).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    edge = maps(served)[:, :, 3, 2]
    assert len(rows) == edge.size
    summary = served.attention(TEXT, summary=True, maps=False)["data"][0]["summary"]
    for row in rows:
        layer, head = int(row["layer"]), int(row["head"])
        assert float(row["“sat” → “cat”"]) == pytest.approx(edge[layer, head], rel=1e-5)
        assert float(row["entropy"]) == pytest.approx(summary["entropy"][layer][head], rel=1e-5)
    weights = [float(row["“sat” → “cat”"]) for row in rows]
    assert weights == sorted(weights, reverse=True)


def test_a_png_has_the_pixels_of_the_view_many_times(dialog: Explorer) -> None:
    """Three for each of the page's, at each side, and they are not all alike."""
    from PIL import Image

    dialog.page.get_by_role("combobox", name="What").select_option("true")
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
    """The tokens beside the map, and if it is wanted the table with the weights of the pinned one."""
    dialog.page.get_by_role("combobox", name="What").select_option("true")
    texts = texts_of(drawing(dialog))
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


def test_a_page_with_a_rollout_opens(tab: Explorer, served: Service, browser: Any) -> None:
    """It is of no layer alone, and the file says through which layer it goes."""
    tab.open(text=TEXT, heads=[[1, 2]], pinned=[2], weights="rollout")
    tab.page.locator(".row-table tbody tr").first.wait_for()
    tab.page.get_by_role("button", name="Export").click()
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="HTML page").click()
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.set_content(Path(download.value.path()).read_text(encoding="utf-8"))
    expected = maps(served, layers=[1], aggregate="rollout")
    assert_shown(shown_weights(page), expected[2])
    assert page.locator(".problem").count() == 0
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
