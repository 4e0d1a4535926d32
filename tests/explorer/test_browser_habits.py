"""Habits of people and places: wrong keys, lost services, Shift, other scripts, paper, foreign links."""

import base64
import json
import zlib
from typing import Any

import pytest

from tests.explorer.support.explored import Explorer, fragment
from tests.support.serving import Service, serve

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat."
# Views whose canvases are drawn when a signal changes, and their fields.
DRAWN: dict[str, dict[str, object]] = {
    "fingerprints": {"view": "fingerprints"},
    "compare": {"view": "compare", "besideView": "difference", "besideText": "The dog ran on the mat."},
}


def test_a_refused_key_is_said_to_be_one(browser: Any, planted: Any) -> None:
    """In a sentence for people, with the key still there to be mended."""
    with serve(model=planted, api_keys="right") as service:
        context = browser.new_context()
        tab = Explorer(context.new_page(), service.url)
        tab.open(text=TEXT)
        dialog, field = tab.page.locator("dialog.key"), tab.page.get_by_label("API key")
        tab.expect(dialog.get_by_role("alert")).to_have_count(0)
        field.fill("wrong")
        tab.page.keyboard.press("Enter")
        tab.expect(dialog.get_by_role("alert")).to_contain_text("does not know this key")
        tab.expect(field).to_have_value("wrong")
        tab.page.keyboard.press("Escape")
        tab.page.get_by_role("button", name="Enter a key").click()
        field.fill("right")
        tab.page.keyboard.press("Enter")
        tab.expect(tab.page.locator(".token")).to_have_count(9)
        context.close()


def test_what_was_loaded_stays_until_the_service_is_back(tab: Explorer) -> None:
    """And the page then goes on by itself; nothing of what it says is for programs."""
    tab.open(text=TEXT, pinned=[2])
    tab.page.context.set_offline(True)
    tab.page.get_by_role("textbox", name="Text", exact=True).fill("A dog ran.")
    tab.page.keyboard.press("Enter")
    alert = tab.page.get_by_role("alert")
    tab.expect(alert).to_contain_text("does not answer", timeout=40_000)
    assert "waitUntilReady" not in alert.inner_text()
    tab.expect(tab.page.locator(".token")).to_have_count(9)
    tab.page.context.set_offline(False)
    tab.expect(tab.page.locator(".token")).to_have_count(6, timeout=40_000)
    tab.expect(alert).to_have_count(0)
    tab.problems[:] = [one for one in tab.problems if "ERR_INTERNET_DISCONNECTED" not in one]


def test_shift_adds_and_selects_no_text(tab: Explorer) -> None:
    """A click after another would else select all between them."""
    tab.open(text=TEXT, heads=[[0, 1]])
    tab.token(2).click()
    tab.token(6).click(modifiers=["Shift"])
    tab.becomes(tab.pinned, [2, 6])
    assert tab.page.evaluate("String(getSelection())") == ""
    assert tab.page.evaluate("document.activeElement.dataset.position") == "6"


def test_right_to_left_texts_begin_at_the_right(tab: Explorer) -> None:
    """Though "[CLS]" stands before them; the left arrow then leads to the next token."""
    tab.open(text="החתול ישב")
    first, last = (tab.page.locator(".token").nth(i).bounding_box() for i in (0, -1))
    assert first["x"] > last["x"]
    tab.page.locator(".token").first.focus()
    tab.page.keyboard.press("ArrowLeft")
    tab.becomes(lambda: tab.page.evaluate("document.activeElement.dataset.position"), "1")
    assert tab.page.get_by_role("textbox", name="Text", exact=True).get_attribute("dir") == "auto"


@pytest.mark.parametrize("view", ["heads", "lines", "matrix", "table"])
def test_paper_shows_all_of_a_view(tab: Explorer, view: str) -> None:
    """As wide as a page of A4, on which nothing can be scrolled."""
    tab.open(text=" ".join(["The cat sat on the mat"] * 4), view=view)
    tab.page.emulate_media(media="print")
    tab.page.set_viewport_size({"width": 718, "height": 1000})
    cut = tab.page.evaluate(
        """() => [...document.querySelectorAll("#view, #view :not(.switch, .unseen)")].filter(one => {
          const { overflowX, overflowY } = getComputedStyle(one);
          return [overflowX, overflowY].some(how => ["auto", "scroll", "hidden"].includes(how)) &&
            (one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1);
        }).map(one => one.className)"""
    )
    assert cut == []
    wide = tab.page.locator("#view canvas, #view .grid").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().right)"
    )
    assert max(wide, default=0) <= 718
    tab.page.emulate_media(media="screen")


def test_the_footer_covers_nothing_in_a_small_window(browser: Any, served: Service) -> None:
    """As 1,440 × 900 pixels are at twice the size; where it stays in sight, the focus is above it."""
    context = browser.new_context(viewport={"width": 720, "height": 450})
    tab = Explorer(context.new_page(), served.url)
    tab.open(text=TEXT, view="table")
    assert tab.page.locator(".footer").evaluate("one => getComputedStyle(one).position") == "static"
    tab.page.set_viewport_size({"width": 1440, "height": 900})
    tab.open(text=TEXT, view="table")
    button = tab.page.locator(".heads-table tbody button").last
    button.focus()
    footer = tab.page.locator(".footer").bounding_box()
    box = button.bounding_box()
    assert box["y"] + box["height"] <= footer["y"]
    context.close()


def test_going_back_to_a_link_that_was_packed_elsewhere_keeps_the_way_forward(tab: Explorer) -> None:
    """Another deflate packs the same fields otherwise."""
    fields = {"text": TEXT, "heads": [[0, 1]], "pinned": [2]}
    stored = zlib.compressobj(level=0, wbits=-15)
    packed = stored.compress(json.dumps(fields).encode()) + stored.flush()
    link = "1." + base64.urlsafe_b64encode(packed).decode().rstrip("=")
    tab.page.goto(f"{tab.url}/explorer#{link}")
    tab.settle()
    tab.token(4).click()
    tab.link_has(pinned=[4])
    entries = tab.page.evaluate("history.length")
    tab.page.go_back()
    tab.becomes(tab.pinned, [2])
    tab.page.wait_for_timeout(600)  # what waits for the address is written by then
    tab.page.go_forward()
    tab.becomes(tab.pinned, [4])
    assert tab.page.evaluate("history.length") == entries


def test_an_exported_page_has_the_layers_of_all_chosen_heads(tab: Explorer) -> None:
    """Unless one layer is chosen: then only its heads are shown."""
    tab.open(text=TEXT, heads=[[0, 1], [2, 2]], pinned=[3])
    tab.page.get_by_role("button", name="Export").click()
    layers = tab.page.get_by_role("combobox", name="Layers")
    tab.expect(layers).to_have_value("chosen")
    layers.select_option("layer")
    with tab.page.expect_download() as saved:
        tab.page.get_by_role("button", name="HTML page").click()
    page = saved.value.path().read_text("utf-8")
    data = page.partition('id="headlight-data">')[2].partition("</script>")[0]
    assert json.loads(data)["state"]["heads"] == [[2, 2]]


@pytest.mark.parametrize("view", DRAWN)
def test_a_view_may_be_left_at_any_moment(tab: Explorer, view: str) -> None:
    """What changes between the end of a view and the next frame is drawn into none of its canvases."""
    tab.open(text=TEXT, theme="light", **DRAWN[view])
    drawn = ".difference-map canvas" if view == "compare" else ".scatter canvas"
    tab.expect(tab.page.locator(drawn).first).to_be_visible()
    left = tab.page.evaluate(
        """([of, link]) => new Promise(resolve => {
          const canvas = document.querySelector(of);
          new MutationObserver((_, observer) => {
            if (canvas.isConnected) return;
            observer.disconnect();
            document.querySelector('button[aria-label^="Theme"]').click();
            setTimeout(() => resolve(true), 100);
          }).observe(document.body, { childList: true, subtree: true });
          location.hash = link;
        })""",
        [drawn, fragment(text=TEXT, theme="light")],
    )
    assert left
