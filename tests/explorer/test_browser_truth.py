"""Labels say what is so: kinds of heads, flows, scores, and what of a text was read."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.explorer.support.explained import SECOND, asked
from tests.explorer.support.explained import TEXT as FIRST
from tests.explorer.support.explored import Explorer, number, weight_text
from tests.explorer.support.planted import HEADS, LAYERS, NEXT, PREVIOUS, SELF, UNIFORM, WORDS
from tests.references.classifiers import write_classifier
from tests.references.cross_encoder import write_cross_encoder
from tests.support.serving import Service, serve

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat."
N = 9
ROWS = "all => all.map(row => [...row.cells].map(cell => cell.innerText))"


def test_a_head_is_named_for_what_stands_out(tab: Explorer, served: Service) -> None:
    """Planted heads by what they are for; one that looks at all alike is broad, not "mostly special"."""
    found = np.array(served.attention(TEXT)["data"][0]["attention"])
    for head, name in ((UNIFORM, "Broad"), (PREVIOUS, "previous"), (NEXT, "next"), (SELF, "self")):
        tab.open(text=TEXT, view="fingerprints", heads=[[0, head]])
        told = tab.page.locator(".fingerprints-view .told")
        tab.expect(told).to_contain_text(f"Mostly {name}" if head != UNIFORM else f"{name}.")
        if head == UNIFORM:
            continue
        mass, uniform = re.findall(r": (\S+), uniform (\S+)\.$", told.inner_text())[0]
        shift = {PREVIOUS: -1, NEXT: 1, SELF: 0}[head]
        assert abs(number(mass) - found[0, head].diagonal(shift).sum() / N) < 1.5e-3
        assert uniform == weight_text(np.full((N, N), 1 / N).diagonal(shift).sum() / N)


def test_first_and_last_special_tokens_are_told_apart(tab: Explorer) -> None:
    """By their names, in the legend."""
    tab.open(text=TEXT, view="fingerprints")
    legend = tab.page.locator(".legend li").all_inner_texts()
    assert [one.strip() for one in legend] == [
        *("mostly previous", "mostly next", "mostly self", "mostly [CLS]", "mostly [SEP]", "broad", "other")
    ]


def test_statistics_stand_beside_those_of_uniform_attention(tab: Explorer) -> None:
    """Of a head that looks at all tokens alike both are the same."""
    tab.open(text=TEXT, view="heads", heads=[[0, UNIFORM]])
    rows = tab.page.locator(".head-panel dd").all_inner_texts()
    assert len(rows) == 7
    for row in rows:
        own, uniform = (number(one) for one in row.split())
        assert abs(own - uniform) < 2e-3, row


def rollout(found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of maps (L, H, N, N): half of each layer's mean, and half of the identity."""
    result = np.eye(found.shape[-1])
    for layer in found.mean(axis=1):
        result = (0.5 * layer + 0.5 * np.eye(len(layer))) @ result
    return result


def flow(tab: Explorer) -> dict[int, float]:
    """The shares of the table by their positions."""
    tab.expect(tab.page.locator(".flow-view .row-table tbody")).not_to_contain_text("…")
    rows = tab.page.locator(".flow-view .row-table tbody tr").evaluate_all(ROWS)
    return {int(row[0]): number(row[2]) for row in rows}


@pytest.mark.parametrize("position", [1, 3, 6])
def test_a_flow_of_all_edges_is_rollout(tab: Explorer, served: Service, position: int) -> None:
    """Through all layers, of each token its own."""
    tab.open(text=TEXT, view="flow", heads=[[LAYERS - 1, 0]], pinned=[position], edges=40)
    expected = rollout(np.array(served.attention(TEXT)["data"][0]["attention"]))[position]
    shown = flow(tab)
    assert len(shown) == N
    for at, share in shown.items():
        assert abs(share - expected[at]) < 2e-3


def test_flows_of_two_tokens_differ_and_sinks_may_be_left_out(tab: Explorer) -> None:
    """The strongest of a token's own edges are kept, and nothing goes to special tokens if that is wished."""
    shown = []
    for position in (2, 6):
        tab.open(text=TEXT, view="flow", heads=[[LAYERS - 1, 0]], pinned=[position], sinks="drop")
        shares = flow(tab)
        assert shares[position] == max(shares.values())
        assert (shares.get(0, 0), shares.get(N - 1, 0)) == (0, 0)
        assert abs(sum(shares.values()) - 1) < 0.01
        shown.append(shares)
    assert shown[0] != shown[1]


@pytest.fixture(scope="module")
def judges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A classifier, and a reranker."""
    folder = tmp_path_factory.mktemp("models")
    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
    }
    write_classifier(folder / "moods", ("sad", "glad", "none"), words=WORDS, **sizes)
    write_cross_encoder(folder / "ranker", "Bert", **sizes)
    with serve(model=",".join(f"{name}={folder / name}" for name in ("moods", "ranker"))) as started:
        yield started


@pytest.mark.parametrize("view", ["text", "table", "matrix"])
def test_what_a_model_is_for_stands_first(browser: Any, judges: Service, view: str) -> None:
    """Score and logit of a reranker, labels of a classifier, as the API has them."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    tab = Explorer(context.new_page(), judges.url)
    tab.open(text=FIRST, pair=SECOND, model="ranker", view=view)
    body = {"query": FIRST, "texts": [SECOND], "model": "ranker"}
    score, logit = (
        asked(judges, "/rerank", **body, raw_scores=raw)["data"][0]["score"] for raw in (False, True)
    )
    verdict = tab.page.locator(".verdict")
    tab.expect(verdict).to_contain_text(f"score {weight_text(score)}")
    tab.expect(verdict).to_contain_text(f"logit {weight_text(logit)}")
    assert tab.page.locator(".similarities").count() == 0
    tab.open(text=FIRST, model="moods", view=view)
    for one in asked(judges, "/predict", inputs=FIRST, model="moods")["data"][0]["labels"]:
        tab.expect(verdict).to_contain_text(f"{one['label']} {weight_text(one['score'])}")
    assert tab.found() == []
    context.close()


def test_every_view_says_that_a_text_was_cut(tab: Explorer) -> None:
    """With how much of it was read."""
    tab.open(text=" ".join(["cat"] * 100))
    for name in tab.tabs():
        tab.tab(name)
        tab.expect(tab.page.locator(".note.cut").first).to_contain_text("reads 64 of 102 tokens")
