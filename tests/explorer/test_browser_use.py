"""What a person does on the page, with a mouse and with the keyboard alone."""

from itertools import pairwise

import pytest

from tests.explorer.support.explored import Explorer
from tests.explorer.support.planted import HEADS, LAYERS

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat."


def test_enter_shows_the_text(tab: Explorer) -> None:
    """As in a search box; the button does the same, and with Shift the line breaks."""
    tab.open()
    area = tab.page.get_by_role("textbox", name="Text", exact=True)
    area.fill(TEXT)
    area.press("Shift+Enter")
    tab.expect(tab.page.get_by_role("tab")).to_have_count(0)
    area.fill(TEXT)
    area.press("Enter")
    tab.expect(tab.page.locator(".token")).to_have_count(9)
    area.fill("A dog ran.")
    tab.page.get_by_role("button", name="Show attention").click()
    tab.expect(tab.page.locator(".token")).to_have_count(6)


def test_the_documentation_of_the_api_is_a_click_away(tab: Explorer) -> None:
    """The page that the service has of its own."""
    tab.open(text=TEXT)
    tab.page.get_by_role("link", name="API documentation").click()
    tab.page.wait_for_url(f"{tab.url}/docs")
    tab.expect(tab.page.get_by_text("/attention").first).to_be_visible()


def test_examples_lead_to_a_view(tab: Explorer) -> None:
    """Before a text is entered; the one of a pair fills both fields."""
    tab.open()
    examples = tab.page.locator(".welcome").get_by_role("button")
    assert examples.count() > 2
    tab.page.locator(".welcome button:has(span + span)").click()
    tab.settle()
    assert tab.page.get_by_label("Second text").input_value()
    assert tab.page.locator(".tokens hr").count() == 1


def test_a_mouse_chooses_heads_in_every_view(tab: Explorer) -> None:
    """A click opens, with Shift adds, a double click isolates; table and controls show what the grid does."""
    tab.open(text=TEXT, view="heads")
    cell = '[data-head="{},{}"]'.format
    tab.page.locator(cell(0, 1)).click()
    tab.becomes(lambda: (tab.chosen(), tab.steps()), ([[0, 1]], [0, 1]))
    tab.page.locator(cell(2, 3)).click(modifiers=["Shift"])
    tab.becomes(lambda: (tab.chosen(), tab.steps()), ([[0, 1], [2, 3]], [2, 3]))
    tab.page.locator(cell(0, 1)).click()
    tab.becomes(
        lambda: (tab.chosen(), tab.steps()), ([[0, 1], [2, 3]], [0, 1])
    )  # one of several leaves the others
    tab.tab("Table")
    chosen = tab.page.locator(".heads-table tr.chosen th")
    tab.becomes(chosen.all_inner_texts, ["L0 H1", "L2 H3"])
    tab.page.get_by_role("button", name="L1 H0", exact=True).click(modifiers=["Shift"])
    tab.tab("Fingerprints")
    assert "3 chosen, the current one L1 H0" in tab.page.locator(".scatter canvas").get_attribute(
        "aria-label"
    )
    tab.tab("All heads")
    tab.page.locator(cell(2, 3)).dblclick()
    tab.becomes(lambda: (tab.chosen(), tab.steps()), ([[2, 3]], [2, 3]))
    tab.link_has(view="heads", heads=[[2, 3]])


def test_the_keyboard_alone_goes_from_a_text_to_a_head(tab: Explorer) -> None:
    """Tab, arrows, Enter and Shift-Enter reach and choose what the mouse does."""
    tab.open()
    press = tab.page.keyboard.press
    tab.page.get_by_role("textbox", name="Text", exact=True).focus()
    tab.page.keyboard.type(TEXT)
    press("Enter")
    tab.settle()
    reach(tab, '[role="tab"]')
    press("ArrowRight")
    tab.settle()
    assert tab.page.locator('[role="tab"][aria-selected="true"]').inner_text() == "All heads"
    reach(tab, "[data-head]")
    assert focused(tab, "one => one.dataset.head") == "1,1"  # what is pinned for a start
    for key in ("ArrowUp", "ArrowUp", "Enter"):
        press(key)
    tab.becomes(tab.chosen, [[0, 1]])
    for key in ("ArrowDown", "ArrowLeft", "ArrowLeft", "Shift+Enter"):
        press(key)
    tab.becomes(tab.chosen, [[0, 1], [1, 0]])


def reach(tab: Explorer, selector: str) -> None:
    """Press Tab until the focus is on such an element."""
    for _ in range(60):
        if focused(tab, f"one => one.matches({selector!r})"):
            return
        tab.page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {selector}")


def focused(tab: Explorer, question: str) -> object:
    """Ask something of the element that has the focus."""
    return tab.page.evaluate(f"({question})(document.activeElement)")


def test_a_mouse_pins_tokens(tab: Explorer) -> None:
    """Pointing shows weights, a click keeps them, Shift adds another, once more takes it out, Esc all."""
    tab.open(text=TEXT)
    tab.token(2).hover()
    tab.expect(tab.page.locator(".row-table caption")).to_contain_text("“cat”")
    tab.becomes(tab.pinned, [])
    clicks: list[tuple[int, list[str], list[int]]] = [
        *((2, [], [2]), (4, ["Shift"], [2, 4]), (2, ["Shift"], [4])),
        *((6, [], [6]), (6, [], [])),
    ]
    for position, modifiers, expected in clicks:
        tab.token(position).click(modifiers=modifiers)
        tab.becomes(tab.pinned, expected)
    tab.token(3).click()
    tab.page.keyboard.press("Escape")
    tab.becomes(tab.pinned, [])
    tab.link_has(text=TEXT, pinned=None)


def test_the_keyboard_pins_tokens(tab: Explorer) -> None:
    """Arrows, Home and End move; Enter and Space pin; the page says what is pinned."""
    tab.open(text=TEXT)
    press = tab.page.keyboard.press
    reach(tab, ".token")
    where = "one => Number(one.dataset.position)"
    for key, at in (
        ("ArrowRight", 1),
        ("ArrowDown", 2),
        ("ArrowLeft", 1),
        ("End", 8),
        ("ArrowRight", 8),
        ("Home", 0),
    ):
        press(key)
        tab.becomes(lambda: focused(tab, where), at)
    press("ArrowRight")
    press("Enter")
    press("ArrowRight")
    press("Shift+Enter")
    tab.becomes(tab.pinned, [1, 2])
    tab.expect(tab.page.locator('.unseen[role="status"]')).to_contain_text(
        "The and cat pinned. Largest weights:"
    )
    press("ArrowRight")
    press(" ")
    tab.becomes(tab.pinned, [3])
    press("Escape")
    tab.becomes(tab.pinned, [])


def test_slash_finds_tokens(tab: Explorer) -> None:
    """Enter goes to the next that has it, in a circle; a word that is nowhere is said to be so."""
    tab.open(text=TEXT)
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("the")
    for position in (1, 5, 1):
        tab.page.keyboard.press("Enter")
        tab.becomes(lambda: focused(tab, "one => Number(one.dataset.position)"), position)
        tab.page.keyboard.press("/")
    tab.page.keyboard.press("Control+a")
    tab.page.keyboard.type("elephant")
    tab.page.keyboard.press("Enter")
    tab.becomes(lambda: focused(tab, "one => one.getAttribute('aria-invalid')"), "true")
    tab.expect(tab.page.locator('.unseen[role="status"]')).to_contain_text("No token contains elephant.")


@pytest.mark.parametrize("view", ["text", "heads", "fingerprints", "lines", "flow", "table", "compare"])
def test_brackets_and_points_step_through_heads(tab: Explorer, view: str) -> None:
    """In every view, and not beyond the edges; in a field they are letters."""
    tab.open(text=TEXT, view=view)
    tab.becomes(tab.steps, [LAYERS // 2, 0])  # the first head of the middle layer is where one starts
    for key, expected in (
        ("]", [2, 0]),
        ("]", [2, 0]),
        (".", [2, 1]),
        ("[", [1, 1]),
        ("[", [0, 1]),
        ("[", [0, 1]),
        (",", [0, 0]),
        (",", [0, 0]),
        *((".", [0, head]) for head in range(1, HEADS)),
        (".", [0, HEADS - 1]),
    ):
        tab.page.keyboard.press(key)
        tab.becomes(tab.steps, expected)
    area = tab.page.get_by_role("textbox", name="Text", exact=True)
    area.fill("")
    area.press_sequentially("[,.]/")
    assert (area.input_value(), tab.steps()) == ("[,.]/", [0, HEADS - 1])


def test_arrows_step_through_fingerprints(tab: Explorer) -> None:
    """To the right distances only grow, and upwards entropies."""
    tab.open(text=TEXT, view="fingerprints", heads=[[0, 3]])
    tab.page.locator(".scatter").focus()
    for key, what in (("ArrowRight", "distance"), ("ArrowUp", "entropy")):
        seen = [told(tab, what)]
        for _ in range(4):
            before = str(tab.page.locator(".fingerprints-view .told").inner_text())
            tab.page.keyboard.press(key)
            tab.expect(tab.page.locator(".fingerprints-view .told")).not_to_have_text(before)
            seen.append(told(tab, what))
        assert all(a <= b for a, b in pairwise(seen)), key
        assert seen[0] < seen[-1], key
        tab.page.keyboard.press("ArrowLeft" if what == "distance" else "ArrowDown")


def told(tab: Explorer, what: str) -> float:
    """A number of the line below the scatter."""
    text = str(tab.page.locator(".fingerprints-view .told").inner_text())
    return float(text.partition(f"{what} ")[2].split(",")[0])


def test_controls_change_what_is_asked(tab: Explorer) -> None:
    """Weights, level and special tokens are asked of the service, and are in the link."""
    tab.open(text=TEXT, pinned=[3])
    for label, value, field in (
        ("Weights", "value_norm", "weights"),
        ("Special tokens", "renormalize", "special"),
        ("Level", "word", "level"),
    ):
        with tab.page.expect_response("**/attention*") as answered:
            tab.page.get_by_role("combobox", name=label, exact=True).select_option(value)
        assert answered.value.ok
        tab.settle()
        tab.link_has(**{field: value})
    body = tab.sent[-1].post_data_json
    assert (body["weights"], body["level"], body["special_tokens"], body["renormalize"]) == (
        *("value_norm", "word", "drop"),
        True,
    )
    tab.becomes(tab.pinned, [])  # positions count words now
    assert tab.page.locator('.tokens [aria-disabled="true"]').count() == 2


def test_colours_scale_and_theme_ask_nothing(tab: Explorer) -> None:
    """They change pixels, and the link, but not what is loaded."""
    tab.open(text=TEXT, pinned=[3], heads=[[1, 2]])
    tab.weights()
    sent = len(tab.sent)
    before = colours_of(tab)
    for label, value in (("Colours", "magma"), ("Scale", "linear"), ("Scale", "log")):
        tab.page.get_by_role("combobox", name=label, exact=True).select_option(value)
        changes(tab, before)
        before = colours_of(tab)
    tab.page.get_by_role("button", name="Theme: as the system").click()
    tab.page.get_by_role("button", name="Theme: light").click()
    tab.expect(tab.page.locator(".headlight")).to_have_attribute("data-theme", "dark")
    tab.link_has(theme="dark", scale="log", colours="magma")
    changes(tab, before)
    assert len(tab.sent) == sent


def changes(tab: Explorer, before: object) -> None:
    """Wait until the tokens have other colours."""
    for _ in range(100):
        if colours_of(tab) != before:
            return
        tab.page.wait_for_timeout(20)
    raise AssertionError("the colours stay as they are")


def colours_of(tab: Explorer) -> object:
    """The backgrounds of all tokens."""
    return tab.page.locator(".token").evaluate_all(
        "all => all.map(one => getComputedStyle(one).backgroundColor)"
    )


def test_the_help_names_the_keys(tab: Explorer) -> None:
    """Opened by "?" and closed by Esc, which leaves the pins."""
    tab.open(text=TEXT, pinned=[3])
    tab.page.keyboard.press("?")
    assert {"[ ]", ", .", "/", "Esc", "?"} <= set(tab.page.locator("dialog.help kbd").all_inner_texts())
    tab.page.keyboard.press("Escape")
    tab.expect(tab.page.locator("dialog.help")).not_to_be_visible()
    tab.becomes(tab.pinned, [3])
