"""What `/explain` names matters more than random units, on the embedded model: a small part of a benchmark.

`benchmarks/explanations/faithfulness.py` measures the same on 200 pairs.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.explanations.faithfulness import METHODS, Measured, measure
from benchmarks.explanations.fitted_classifier import Labelled, accuracy, fit_classifier
from tests.support.serving import Service, serve

pytestmark = pytest.mark.thorough

PAIRS = [
    ["A man is playing a guitar on the stage.", "Somebody plays the guitar."],
    ["It rained all day and the match was cancelled.", "They did not play because of the weather."],
    ["The stock market fell sharply on Monday.", "Shares lost much of their value yesterday."],
    ["Two dogs run through the snow.", "A pair of dogs is playing in deep snow."],
    ["The president met the ministers in Paris.", "Ministers from Paris visited the museum."],
    ["How can I repair a broken window?", "What is the best way to mend a window?"],
    ["She bought fresh bread and cheese at the market.", "The market sells bread, fruit and fish."],
    ["The train to the coast was two hours late.", "Passengers waited for the delayed train."],
    ["Scientists found water on the moon.", "Researchers discover ice below the surface of the moon."],
    ["The boy reads a book about old ships.", "A child is reading in the library."],
]
WITHIN_CHANCE = {("similarity", "gradient", "comprehensiveness", 0.5)}
"""Its interval has 0 in it for 200 pairs, too (docs/proofs.md)."""
NEWS, COOKING = "news", "cooking"
SENTENCES = {
    "The government raised taxes on petrol this week.": NEWS,
    "Police arrested three men after the robbery.": NEWS,
    "The minister resigned over the spending scandal.": NEWS,
    "Thousands protested in the capital on Sunday.": NEWS,
    "The court sentenced the banker to five years.": NEWS,
    "An earthquake struck the island early this morning.": NEWS,
    "Chop the onions and fry them slowly in butter.": COOKING,
    "Add a pinch of salt and stir the soup.": COOKING,
    "Bake the bread for forty minutes until it is brown.": COOKING,
    "Whisk the eggs with sugar in a large bowl.": COOKING,
    "Let the dough rest in a warm place for an hour.": COOKING,
    "Serve the pasta with grated cheese and basil.": COOKING,
}


@pytest.fixture(scope="module")
def fitted(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("models") / "subjects"
    fit_classifier(service.http, Labelled([*SENTENCES], [*SENTENCES.values()]), folder)
    with serve(model=f"all-MiniLM-L6-v2,{folder}") as started:
        yield started


def assert_better(found: list[Measured], target: str) -> None:
    assert {one.method for one in found} == {*METHODS[target]}
    for one in found:
        if (target, one.method, one.measure, one.share) not in WITHIN_CHANCE:
            assert one.gains.mean() > 0, f"{one.method}: {one.measure} of {one.share}"
    for method in METHODS[target]:
        gains = np.concatenate([one.gains for one in found if one.method == method])
        assert (gains > 0).mean() > 0.6, f"{method} is better on some inputs alone"


def test_the_words_of_a_similarity(fitted: Service) -> None:
    assert_better(measure(fitted.http, "similarity", PAIRS, "remove"), "similarity")


def test_the_words_of_a_label(fitted: Service) -> None:
    """Of a classifier that was fitted, and that labels right what it was fitted to."""
    assert accuracy(fitted.http, Labelled([*SENTENCES], [*SENTENCES.values()]), "subjects") == 1
    assert_better(measure(fitted.http, "label", [*SENTENCES], "mask", model="subjects"), "label")
