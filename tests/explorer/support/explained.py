"""Small models whose scores are explained, what the API says of them, and what the view Why shows."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.explorer.support.explored import Explorer, weight_text
from tests.explorer.support.planted import WORDS
from tests.references.checkpoints import write_bert
from tests.references.classifiers import write_classifier
from tests.references.cross_encoder import write_cross_encoder
from tests.references.labelled_tokens import write_tagger
from tests.support.serving import Service, serve

TEXT, SECOND = "The cat sat on the mat.", "A dog ran."
SIZES: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
ABLATED = [{"kind": "heads", "layer": 0, "heads": [2]}, {"kind": "heads", "layer": 2, "heads": [1]}]
CELLS = "all => all.map(row => [...row.cells].map(cell => cell.innerText.trim()))"
LABELS = "all => all.map(one => one.ariaLabel)"
UNITS, GRID = ".why-view [role=option]", ".why-view [data-head]"
CASES = {
    "encoder": {"text": TEXT, "pair": SECOND},
    "moods": {"text": TEXT},
    "ranker": {"text": TEXT, "pair": SECOND},
    "names": {"text": TEXT},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of an encoder, a classifier, a reranker and a token classifier of random weights."""
    folder = tmp_path_factory.mktemp("models")
    write_bert(folder / "encoder", seed=5, words=WORDS, **SIZES)
    write_classifier(folder / "moods", ("sad", "glad", "none"), words=WORDS, **SIZES)
    write_cross_encoder(folder / "ranker", "Bert", **SIZES)
    write_tagger(folder / "names", words=WORDS, **SIZES)
    with serve(model=",".join(f"{name}={folder / name}" for name in CASES)) as started:
        yield started


def asked(served: Service, path: str, **body: object) -> Any:
    """What the API answers."""
    answer = served.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def explained(served: Service, **body: object) -> Any:
    """The explanation of one input."""
    return asked(served, "/explain", **body)["data"][0]


def signed(number: float) -> str:
    """A number with its sign, as the page writes it."""
    text = weight_text(number)
    return f"+{text}" if number > 0 else text.replace("-", "−")


def shown_scores(tab: Explorer) -> list[list[str]]:
    """The rows above everything else."""
    tab.expect(tab.page.locator(".why-scores progress")).to_have_count(0)
    rows: list[list[str]] = tab.page.locator(".why-scores tbody tr").evaluate_all(CELLS)
    return rows


def told_units(tab: Explorer) -> list[str]:
    """What screen readers say of every unit."""
    tab.page.locator(UNITS).first.wait_for()
    labels: list[str] = tab.page.locator(UNITS).evaluate_all(LABELS)
    return labels


def swept(tab: Explorer) -> list[str]:
    """What screen readers say of every head, once its effect is there and nothing more is on its way."""
    bar = tab.page.get_by_role("region", name="Heads", exact=True).locator(".colour-bar")
    tab.expect(bar).to_have_count(1)
    tab.expect(tab.page.locator("#view progress")).to_have_count(0)
    labels: list[str] = tab.page.locator(GRID).evaluate_all(LABELS)
    return labels


def unit_labels(units: Any, effects: Any) -> list[str]:
    """What is said of units with these numbers."""
    return [f"{text} {signed(float(effect))}" for text, effect in zip(units["text"], effects, strict=True)]


def run(served: Service, model: str, more: dict[str, Any]) -> dict[str, float]:
    """What the API says of a run."""
    if model in ("moods", "names"):
        item = asked(served, "/predict", inputs=TEXT, model=model, **more)["data"][0]
        if model == "names":
            return {item["token_labels"][3]: item["token_scores"][3]}
        return {one["label"]: one["score"] for one in item["labels"]}
    if model == "encoder":
        answer = asked(served, "/similarity", source=TEXT, texts=[SECOND], model=model, **more)
        return {"cosine": answer["similarities"][0]}
    body = {"query": TEXT, "texts": [SECOND], "model": model, **more}
    return {
        name: asked(served, "/rerank", **body, raw_scores=raw)["data"][0]["score"]
        for name, raw in (("score", False), ("logit", True))
    }
