"""Keys stay in the tab, nothing leaves the origin, and what was loaded needs no network."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.explorer.support.explored import Explorer
from tests.support.serving import Service, serve

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat."
KEY = "a-secret-key"


@pytest.fixture(scope="module")
def guarded(planted: Path) -> Iterator[Service]:
    """A service that wants a key."""
    with serve(model=planted, api_keys=KEY) as started:
        yield started


@pytest.fixture
def locked(browser: Any, guarded: Service) -> Iterator[Explorer]:
    """A tab of it. A refusal is an error to the browser, and nothing else may be one."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    explorer = Explorer(context.new_page(), guarded.url)
    yield explorer
    found = [one for one in explorer.found() if "401 (Unauthorized)" not in one]
    context.close()
    assert found == []


def test_a_key_is_asked_for_and_kept_in_the_tab(locked: Explorer) -> None:
    """A wrong one is asked for again; the right one is in headers and sessionStorage only, and in no URL."""
    locked.open(text=TEXT)
    dialog = locked.page.locator("dialog.key")
    locked.expect(dialog).to_be_visible()
    for key, visible in (("wrong", True), (KEY, False)):
        locked.page.get_by_label("API key").fill(key)
        locked.page.keyboard.press("Enter")
        if visible:
            locked.becomes(lambda: locked.sent[-1].headers.get("authorization"), "Bearer wrong")
            locked.page.wait_for_timeout(200)
        locked.expect(dialog).to_be_visible(visible=visible)
    locked.expect(locked.page.locator(".token")).to_have_count(9)
    locked.token(2).click()
    locked.link_has(pinned=[2])
    stored = locked.page.evaluate(
        "[JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie]"
    )
    assert KEY in stored[0]
    assert (stored[1], stored[2]) == ("{}", "")
    addresses = [locked.page.url, *(request.url for request in locked.sent)]
    assert not [address for address in addresses if KEY in address]
    assert locked.sent[-1].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in locked.page.content()


def test_a_key_outlives_a_reload_but_not_the_tab(locked: Explorer) -> None:
    """Another tab asks again."""
    locked.open(text=TEXT)
    locked.page.get_by_label("API key").fill(KEY)
    locked.page.keyboard.press("Enter")
    locked.expect(locked.page.locator(".token")).to_have_count(9)
    locked.page.reload()
    locked.expect(locked.page.locator(".token")).to_have_count(9)
    other = locked.page.context.new_page()
    other.goto(f"{locked.url}/explorer")
    locked.expect(other.locator("dialog.key")).to_be_visible()


def test_what_was_loaded_needs_no_network(tab: Explorer) -> None:
    """Once cut off, views, pins and heads of the loaded layer still work, and nothing is asked."""
    tab.open(text=TEXT, heads=[[0, 3]])
    tab.token(2).click()
    assert tab.weights()[2] > 0.9
    for name in tab.tabs():
        tab.tab(name)
    tab.tab("Text")
    tab.page.context.set_offline(True)
    sent = len(tab.sent)
    tab.token(4).click()
    tab.expect(tab.page.locator(".row-table caption")).to_contain_text("“on”")
    assert tab.weights()[4] > 0.9
    tab.page.keyboard.press(",")
    tab.expect(tab.page.locator(".row-table caption")).to_contain_text("L0 H2")
    assert tab.weights()[5] > 0.9
    tab.tab("Table")
    assert tab.page.locator(".heads-table tbody tr").count() == 12
    tab.tab("All heads")
    tab.page.locator('[data-head="2,2"] canvas').wait_for()
    assert len(tab.sent) == sent


def test_a_cut_network_is_told_and_mended(tab: Explorer) -> None:
    """What cannot be loaded is said in a sentence, and the button asks again."""
    tab.open(text=TEXT)
    tab.page.context.set_offline(True)
    tab.page.get_by_role("textbox", name="Text", exact=True).fill("A dog ran.")
    tab.page.keyboard.press("Enter")
    alert = tab.page.get_by_role("alert")
    alert.wait_for(timeout=30_000)
    tab.page.context.set_offline(False)
    alert.get_by_role("button", name="Try again").click()
    tab.expect(tab.page.locator(".token")).to_have_count(6)
    tab.problems[:] = [one for one in tab.problems if "ERR_INTERNET_DISCONNECTED" not in one]


def test_a_text_is_never_markup(tab: Explorer) -> None:
    """Whatever stands in it is shown as it is."""
    text = '<img src=x onerror="alert(1)"> & <b>the</b>'
    tab.open(text=text, pinned=[1])
    assert tab.page.locator(".tokens img, .tokens b").count() == 0
    assert tab.page.locator(".tokens").inner_text().replace("[CLS]", "").replace("[SEP]", "").strip() == text
