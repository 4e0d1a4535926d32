"""A link holds everything chosen; back and forward lead through it; any link loads."""

import random
import string
from typing import Any

import pytest

from tests.explorer.support.explored import Explorer, fragment, state_of

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat."


def test_a_link_leads_to_what_was_chosen(tab: Explorer) -> None:
    """Opened by another person, the page shows the same."""
    tab.open()
    tab.page.get_by_role("textbox", name="Text", exact=True).fill(TEXT)
    tab.page.keyboard.press("Enter")
    tab.settle()
    tab.token(4).click()
    for key in ("]", "."):  # from L1 H1, which is chosen for a start
        tab.page.keyboard.press(key)
    tab.page.get_by_role("combobox", name="Weights", exact=True).select_option("value_norm")
    tab.settle()
    tab.tab("All heads")
    tab.page.get_by_role("combobox", name="Cells show").select_option("self")
    tab.link_has(text=TEXT, pinned=[4], heads=[[2, 2]], weights="value_norm", view="heads", cells="self")
    link = tab.page.url
    shown = tab.page.locator(".grid").inner_text()
    tab.page.goto("about:blank")
    tab.page.goto(link)
    tab.settle()
    assert tab.page.locator(".grid").inner_text() == shown
    tab.becomes(tab.steps, [2, 2])
    tab.tab("Text")
    tab.becomes(tab.pinned, [4])


def test_a_reload_keeps_what_was_just_chosen(tab: Explorer) -> None:
    """The link has it a moment later; a page that is left before then keeps it for itself."""
    tab.open(text=TEXT, pinned=[2])
    tab.page.evaluate("document.querySelector('[data-position=\"5\"]').click(); location.reload()")
    tab.link_has(pinned=[5])
    tab.becomes(tab.pinned, [5])
    assert tab.page.evaluate("sessionStorage.length") == 0


def test_texts_are_not_in_requests_for_the_page(tab: Explorer) -> None:
    """What stands behind "#" is sent to no server, and no referrer has it."""
    tab.open(text=TEXT)
    for request in tab.sent:
        assert "#" not in request.url or "cat" not in request.url
        assert "1." not in request.headers.get("referer", "")
    assert {request.method for request in tab.sent if "explorer" in request.url} == {"GET"}


def test_back_and_forward_lead_through_the_choices(tab: Explorer) -> None:
    """Each pause between choices is a step."""
    tab.open(text=TEXT)
    tab.token(2).click()
    tab.link_has(pinned=[2])
    tab.tab("Table")
    tab.link_has(view="table")
    tab.page.keyboard.press("]")
    tab.link_has(heads=[[2, 0]])
    selected = tab.page.locator('[role="tab"][aria-selected="true"]')
    tab.page.go_back()
    tab.link_has(view="table", heads=[[1, 0]])
    tab.page.go_back()
    tab.expect(selected).to_have_text("Text")
    tab.becomes(tab.pinned, [2])
    tab.page.go_back()
    tab.expect(tab.page.locator('.tokens [aria-selected="true"]')).to_have_count(0)
    tab.page.go_forward()
    tab.page.go_forward()
    tab.page.go_forward()
    tab.expect(selected).to_have_text("Table")
    tab.becomes(tab.steps, [2, 0])


@pytest.mark.parametrize("step", ["CompressionStream", "btoa"])
def test_an_address_that_is_set_is_not_overwritten(tab: Explorer, step: str) -> None:
    """Not even by a choice on its way to the address, which is being deflated, or is about to be written."""
    tab.open(text=TEXT)
    tab.page.evaluate(
        """([step, link]) => {
          window.written = [];
          const { pushState } = history;
          history.pushState = (...all) => { window.written.push(all[2]); pushState.apply(history, all); };
          const own = window[step];
          window[step] = function (given) {
            window[step] = own;
            location.hash = link;
            return new.target ? new own(given) : own(given);
          };
          document.querySelector('[data-position="5"]').click();
        }""",
        [step, fragment(text=TEXT, view="table", heads=[[1, 0]])],
    )
    tab.link_has(view="table", pinned=None)
    tab.expect(tab.page.locator('[role="tab"][aria-selected="true"]')).to_have_text("Table")
    tab.page.wait_for_timeout(600)  # what waits for the address is written by then
    written = tab.page.evaluate("window.written")
    assert [state_of(one).get("view") for one in written] == ["table"] * len(written)
    tab.link_has(view="table", pinned=None)


def test_any_fragment_loads(tab: Explorer) -> None:
    """200 of them, from valid to torn, leave a page that works; the service may refuse what one asks for."""
    random_ = random.Random(7)  # noqa: S311
    links = [torn(random_, fragment(**fields(random_))) for _ in range(200)]
    tab.open(text=TEXT)
    shown = tab.page.evaluate(
        """async links => {
          const shown = [];
          for (const link of links) {
            location.hash = link;
            await new Promise(resolve => setTimeout(resolve, 40));
            shown.push(document.querySelectorAll('.headlight main .views, .headlight main .welcome').length);
          }
          return shown;
        }""",
        links,
    )
    assert shown == [1] * len(links)
    tab.page.evaluate("link => { location.hash = link }", fragment(text=TEXT, heads=[[0, 1]], pinned=[2]))
    tab.expect(tab.page.locator('.tokens [aria-selected="true"]')).to_have_count(1)
    tab.settle()
    assert tab.weights()[1] > 0.9
    refused = [one for one in tab.problems if "Failed to load resource" in one]
    assert all("422" in one or "404" in one for one in refused), refused
    tab.problems[:] = [one for one in tab.problems if one not in refused]


def fields(random_: random.Random) -> dict[str, object]:
    """Some fields with values of which some are right, some out of range, and some of another type."""
    anything: list[Any] = [None, True, -1, 1e300, "", "x", [], {}, [[1]], [[0, -1]], "\ud800", 3.5, [1e9]]
    indices = [0, 1, 2, 3, 11, 99_999]

    def some(values: list[Any]) -> list[Any]:
        return random_.choices(values, k=random_.randrange(4))

    right: dict[str, list[Any]] = {
        "text": [TEXT, "🙂 日本", "", "a\n\nb", " ", "[CLS]", "</script>", "x" * 300],
        "pair": ["", "The dog ran.", "🙂"],
        "model": ["planted", "other"],
        "prompt": ["", "query"],
        "heads": [[[a, b] for a in some(indices) for b in some(indices)] for _ in range(3)],
        "pinned": [some(indices) for _ in range(3)],
        "view": [
            "text",
            "heads",
            "fingerprints",
            "table",
            "lines",
            "matrix",
            "flow",
            "compare",
            "neuron",
            "pairs",
            "lens",
            "?",
        ],
        "weights": ["probability", "value_norm", "score", "rollout"],
        "level": ["token", "word"],
        "special": ["keep", "drop", "renormalize"],
        "direction": ["from", "to"],
        "cells": ["maps", "entropy", "nothing"],
        "sort": ["-entropy", "next", "nothing"],
        "lens": [[0, 1], [3, 99_999]],
        "colours": ["viridis", "cividis", "magma"],
        "scale": ["linear", "sqrt", "log"],
        "theme": ["light", "dark"],
        "__proto__": [{"text": "x"}],
    }
    names = random_.sample(sorted(right), k=random_.randrange(1, 9))
    return {
        name: random_.choice(anything) if random_.random() < 0.25 else random_.choice(right[name])
        for name in {"text", *names}
    }


def torn(random_: random.Random, link: str) -> str:
    """One link in three is damaged."""
    if random_.random() < 2 / 3:
        return link
    at = random_.randrange(len(link))
    letter = random_.choice(string.ascii_letters + "%=#.-_/\\é")
    return random_.choice([link[:at], link[:at] + letter + link[at + 1 :], letter + link, link + letter])
