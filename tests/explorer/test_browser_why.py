"""The view Why: the score first, the words and heads that make it, and the page without some heads."""

import re
from typing import Any

import numpy as np
import pytest

from tests.explorer.support.explained import (
    ABLATED,
    CASES,
    CELLS,
    GRID,
    LABELS,
    SECOND,
    TEXT,
    UNITS,
    asked,
    explained,
    run,
    served,
    shown_scores,
    signed,
    swept,
    told_units,
    unit_labels,
)
from tests.explorer.support.explored import Explorer, weight_text
from tests.support.serving import Service

pytestmark = pytest.mark.deploy
__all__ = ["served"]


def test_a_pair_is_a_sum_of_the_parts_of_both_texts(tab: Explorer, served: Service) -> None:
    """The similarity, each unit's share in it, and of one that is pointed at its row, as the API has them."""
    tab.open(**CASES["encoder"], model="encoder", view="why")
    similarity = asked(served, "/similarity", source=TEXT, texts=[SECOND], model="encoder")
    assert shown_scores(tab) == [["cosine", weight_text(similarity["similarities"][0]), ""]]
    item = explained(served, inputs=[[TEXT, SECOND]], model="encoder", unit="word")
    parts = np.array(item["parts"])
    shares = np.concatenate([parts.sum(axis=1), parts.sum(axis=0)])
    assert told_units(tab) == unit_labels(item["units"], shares)
    largest = np.argsort(-np.abs(parts), axis=None, kind="stable")[:10]
    rows = tab.page.locator(".why-view .differences tbody tr").evaluate_all(CELLS)
    text = item["units"]["text"]
    assert rows == [
        [
            text[i // parts.shape[1]],
            text[len(parts) + i % parts.shape[1]],
            signed(parts[i // parts.shape[1], i % parts.shape[1]]),
        ]
        for i in map(int, largest)
    ]
    tab.page.locator(UNITS).nth(2).hover()
    other = unit_labels(item["units"], np.concatenate([parts.sum(axis=1), parts[2]]))
    tab.becomes(lambda: told_units(tab), other)


def test_the_matrix_tells_its_cells_to_the_keyboard(tab: Explorer, served: Service) -> None:
    """Arrows move, and a line below says the number of the cell, as the API has it."""
    tab.open(**CASES["encoder"], model="encoder", view="why")
    parts = explained(served, inputs=[[TEXT, SECOND]], model="encoder")["parts"]
    matrix = tab.page.locator(".why-matrix [role=group]")
    matrix.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        tab.page.keyboard.press(key)
    told = f"{signed(parts[2][1])} from “cat” with “A”"
    tab.expect(tab.page.locator(".why-matrix .told")).to_have_text(told)
    tab.expect(tab.page.locator('.unseen[role="status"]')).to_have_text(told)


def test_a_classifier_tells_its_labels_first(tab: Explorer, served: Service) -> None:
    """All of them with their scores; the words are those of the predicted label, or of one that is chosen."""
    tab.open(**CASES["moods"], model="moods", view="why")
    labels = asked(served, "/predict", inputs=TEXT, model="moods")["data"][0]["labels"]
    assert [row[:2] for row in shown_scores(tab)] == [
        [one["label"], weight_text(one["score"])] for one in labels
    ]
    item = explained(served, inputs=TEXT, model="moods", unit="word")
    assert told_units(tab) == unit_labels(item["units"], item["attributions"])
    last = labels[-1]["label"]
    tab.page.get_by_role("button", name=f"Explain {last}").click()
    tab.link_has(label=last)
    item = explained(served, inputs=TEXT, model="moods", unit="word", target={"label": last})
    tab.becomes(lambda: told_units(tab), unit_labels(item["units"], item["attributions"]))
    tab.expect(tab.page.locator(".why-view")).to_contain_text(
        f"logit of {last} is {weight_text(item['score'])}"
    )


def test_a_reranker_tells_score_and_logit(tab: Explorer, served: Service) -> None:
    """As `/rerank` has them; words of both texts."""
    tab.open(**CASES["ranker"], model="ranker", view="why")
    body = {"query": TEXT, "texts": [SECOND], "model": "ranker"}
    score = asked(served, "/rerank", **body)["data"][0]["score"]
    logit = asked(served, "/rerank", **body, raw_scores=True)["data"][0]["score"]
    tab.becomes(
        lambda: [row[:2] for row in shown_scores(tab)],
        [["score", weight_text(score)], ["logit", weight_text(logit)]],
    )
    item = explained(served, inputs=[[TEXT, SECOND]], model="ranker", unit="word")
    assert told_units(tab) == unit_labels(item["units"], item["attributions"])


def test_a_token_classifier_explains_a_token(tab: Explorer, served: Service) -> None:
    """Of all tokens one is chosen."""
    tab.open(**CASES["names"], model="names", view="why")
    item = asked(served, "/predict", inputs=TEXT, model="names")["data"][0]
    tab.page.get_by_role("combobox", name="Token", exact=True).select_option("3")
    tab.link_has(labelled=3)
    tab.becomes(
        lambda: shown_scores(tab)[0][:2], [item["token_labels"][3], weight_text(item["token_scores"][3])]
    )
    found = explained(served, inputs=TEXT, model="names", unit="word", target={"token": 3})
    tab.becomes(lambda: told_units(tab), unit_labels(found["units"], found["attributions"]))


@pytest.mark.parametrize("model", CASES)
def test_the_grid_has_the_effect_of_every_head(tab: Explorer, served: Service, model: str) -> None:
    """After one request, which only a click sends."""
    tab.open(**CASES[model], model=model, view="why", **({"labelled": 2} if model == "names" else {}))
    told_units(tab)
    assert [one.url for one in tab.sent if "explain" in one.url] == [f"{tab.url}/explain"]
    with tab.page.expect_response("**/explain") as answered:
        tab.page.get_by_role("button", name="Run without each of the 12 heads").click()
    body = answered.value.request.post_data_json
    expected = np.array(explained(served, **body)["heads"])
    labels = tab.page.locator(GRID)
    tab.becomes(
        lambda: labels.evaluate_all(LABELS),
        [
            f"L{layer} H{head}, effect {signed(expected[layer, head])}"
            for layer in range(3)
            for head in range(4)
        ],
    )
    numbers = tab.page.locator(".why-view .colour-bar").last.locator("span").all_inner_texts()
    most = float(np.abs(expected.astype(np.float32)).max())
    assert numbers == [signed(share * most) for share in (-1, -0.25, 0, 0.25, 1)]


def ablate(tab: Explorer, *, keyboard: bool) -> None:
    """Click two heads, or choose them with the keys alone."""
    cell = '.why-view [data-head="{},{}"]'.format
    for layer, head in ((0, 2), (2, 1)):
        if keyboard:
            tab.page.locator(cell(layer, head)).focus()
            tab.page.keyboard.press("Enter")
        else:
            tab.page.locator(cell(layer, head)).click()
        tab.expect(tab.page.locator(cell(layer, head))).to_have_attribute("aria-pressed", "true")
        if keyboard:
            tab.expect(tab.page.locator(cell(layer, head))).to_be_focused()


@pytest.mark.parametrize("keyboard", [False, True], ids=["click", "keyboard"])
@pytest.mark.parametrize("model", CASES)
def test_a_head_is_ablated(tab: Explorer, served: Service, model: str, *, keyboard: bool) -> None:
    """The score stands beside the one before, and words are those of the run; all numbers are the API's."""
    fields = CASES[model]
    tab.open(**fields, model=model, view="why", labelled=3)
    told_units(tab)
    ablate(tab, keyboard=keyboard)
    tab.link_has(ablated=[[0, 2], [2, 1]])
    before, after = (run(served, model, more) for more in ({}, {"interventions": ABLATED}))
    rows = [
        [name, weight_text(score), weight_text(after[name]) if name in after else "–"]
        for name, score in before.items()
    ]
    tab.becomes(lambda: [row[:3] for row in shown_scores(tab)], rows)
    for row, name in zip(shown_scores(tab), before, strict=True):
        if row[2] != "–":
            assert row[3] == signed(after[name] - before[name])
    body = [one for one in tab.sent if "explain" in one.url][-1].post_data_json
    assert body["interventions"] == ABLATED
    item = explained(served, **body)
    parts = np.array(item.get("parts", [[]]))
    effects = item.get("attributions", [*parts.sum(axis=1), *parts.sum(axis=0)])
    tab.becomes(lambda: told_units(tab), unit_labels(item["units"], effects))


def test_every_view_shows_the_run_without_the_head(tab: Explorer, served: Service) -> None:
    """Maps and statistics are those of the run; a chip takes the head in again."""
    tab.open(text=TEXT, model="encoder", ablated=[[0, 2], [2, 1]], heads=[[1, 1]], pinned=[3])
    first = {"inputs": TEXT, "model": "encoder", "interventions": ABLATED[:1]}
    item = asked(served, "/attention", **first, summary=True)["data"][0]
    weights = np.array(item["attention"])[1, 1, 3]
    assert tab.weights() == pytest.approx(dict(enumerate(weights)), abs=6e-4)
    tab.tab("Table")
    cells = tab.page.locator(".heads-table tbody tr").evaluate_all(CELLS)
    assert [row[1] for row in cells] == [weight_text(one) for one in np.ravel(item["summary"]["entropy"])]
    whole = asked(served, "/attention", inputs=TEXT, model="encoder")["data"][0]["attention"]
    tab.tab("Text")
    tab.page.get_by_role("button", name="Run with L0 H2 again").click()
    tab.settle()
    tab.link_has(ablated=[[2, 1]])
    expected = dict(enumerate(np.array(whole)[1, 1, 3]))
    assert tab.weights() == pytest.approx(expected, abs=6e-4)


def test_compare_has_the_run_before_beside(tab: Explorer, served: Service) -> None:
    """Without another text, both sides are the same text; the difference is that of the maps."""
    tab.open(text=TEXT, model="encoder", ablated=[[0, 2]], heads=[[1, 1]], besideView="difference")
    tab.page.get_by_role("button", name="Compare with before").click()
    tab.link_has(view="compare")
    first = {"inputs": TEXT, "model": "encoder"}
    before, after = (
        np.array(asked(served, "/attention", **first, **more)["data"][0]["attention"])[1, 1]
        for more in ({}, {"interventions": ABLATED[:1]})
    )
    most = np.abs(before - after).max()
    last = tab.page.locator(".differences tbody tr td:last-child").first
    shown = float(last.inner_text().replace("−", "-"))
    assert abs(abs(shown) - most) < 1.5e-3
    tab.page.get_by_role("combobox", name="Show").select_option("text")
    assert tab.page.locator(".sides h2").all_inner_texts() == [
        "L1 H1 of encoder, 9 tokens, without L0 H2",
        "L1 H1 of encoder, 9 tokens",
    ]


def test_the_footer_leads_here(tab: Explorer) -> None:
    """From the sentence about attention."""
    tab.open(text=TEXT, model="moods")
    tab.page.locator("footer").get_by_role("button", name="What does the score depend on?").click()
    tab.link_has(view="why")
    tab.page.locator(".why-scores").wait_for()


def test_a_field_that_is_added_has_the_focus(tab: Explorer) -> None:
    """Typing goes on in the second text."""
    tab.open(text=TEXT, model="encoder")
    tab.page.get_by_role("button", name="Add a second text").click()
    field = tab.page.get_by_role("textbox", name="Second text", exact=True)
    tab.expect(field).to_be_focused()
    tab.page.keyboard.insert_text("a dog")
    tab.page.keyboard.press("Enter")
    tab.link_has(text=TEXT, pair="a dog")


def test_a_single_text_of_an_encoder_needs_another(tab: Explorer) -> None:
    """A sentence says so, and nothing is asked."""
    tab.open(text=TEXT, model="encoder", view="why")
    tab.expect(tab.page.locator("#view")).to_contain_text("Add a second text")
    assert [one for one in tab.sent if "explain" in one.url] == []


def test_an_error_is_a_sentence_of_the_service(browser: Any, served: Service) -> None:
    """The rest of the view stays."""
    context = browser.new_context()
    tab = Explorer(context.new_page(), served.url)
    tab.open(text=TEXT, model="moods", view="why", method="parts")
    tab.expect(tab.page.locator("#view .problem")).to_contain_text('set it to "occlusion"')
    assert tab.page.locator(GRID).count() == 12
    tab.page.get_by_role("combobox", name="Method").select_option("occlusion")
    told_units(tab)
    context.close()


def test_a_sweep_ends_with_its_view(tab: Explorer) -> None:
    """Its request is cancelled, progress was seen, and coming back asks again."""
    held: list[Any] = []

    def hold(route: Any) -> None:
        if route.request.post_data_json.get("method") == "heads" and not held:
            held.append(route)
        else:
            route.continue_()

    tab.page.route("**/explain", hold)
    tab.open(text=TEXT, model="moods", view="why")
    told_units(tab)
    tab.page.get_by_role("button", name="Run without each of the 12 heads").click()
    tab.expect(tab.page.locator("#view progress")).to_be_visible()
    with tab.page.expect_event("requestfailed") as failed:
        tab.page.get_by_role("tab", name="Text", exact=True).click()
    assert failed.value.url.endswith("/explain")
    tab.page.get_by_role("tab", name="Why", exact=True).click()
    assert len(swept(tab)) == 12


@pytest.mark.parametrize("changed", [{"unit": "token"}, {"method": "gradient"}, {"target": None}], ids=str)
def test_what_is_wanted_no_more_is_cancelled(tab: Explorer, served: Service, changed: dict[str, Any]) -> None:
    """The call in flight, by another unit, method or label; what is then shown is what was chosen last."""
    held: list[Any] = []
    tab.open(text=TEXT, model="moods")
    tab.page.route("**/explain", lambda route: route.continue_() if held else held.append(route))
    tab.page.get_by_role("tab", name="Why", exact=True).click()
    explain = tab.page.get_by_role("button", name=re.compile("^Explain ")).last
    explain.wait_for()
    tab.becomes(lambda: len(held), 1)
    label = explain.inner_text().removeprefix("Explain ")
    with tab.page.expect_event("requestfailed") as failed:
        for name, value in changed.items():
            if value is None:
                explain.click()
            else:
                tab.page.get_by_role("combobox", name=name.capitalize(), exact=True).select_option(value)
    assert failed.value.post_data_json == held[0].request.post_data_json
    fields = {name: value or {"label": label} for name, value in changed.items()}
    item = explained(served, **{"inputs": TEXT, "model": "moods", "unit": "word", **fields})
    tab.becomes(lambda: told_units(tab), unit_labels(item["units"], item["attributions"]))
