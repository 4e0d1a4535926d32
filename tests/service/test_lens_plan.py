"""What a logit lens costs, as it is counted for the queue and for deadlines."""

from model.contract import Want
from service.tasks.heads import LensPlan
from service.tasks.indices import Chosen
from service.tasks.results import Expected
from service.tasks.view import View
from tests.support.backends import small
from tests.support.families import encoding_of


def test_products_with_the_vocabulary_count_as_passes() -> None:
    """Of each state and token once, however often they are listed; reading the matrix counts as 16 tokens."""
    decoder, encoding = small("torch").tokenizer.decoder, encoding_of([5] * 40)
    cases: list[tuple[tuple[int, ...], Chosen, int]] = [
        ((0, 1, 2), "all", 120),
        ((2, 2), (0, 0, -1), 2),
        ((1,), (3,), 1),
    ]
    for layers, positions, products in cases:
        plan = LensPlan(layers, positions, 5, 3.0, decoder)
        view = plan.extend(View(Want(), {"index": 0}, Expected()), encoding)
        assert view.want.passes == 1 + round(3.0 * (products + 16) / 40)
        rows = 40 if positions == "all" else len(positions)
        assert set(view.expected.arrays.values()) == {(len(layers), rows, 5)}
        assert view.expected.names["lens_ids"] == -(-decoder.most_json_bytes(5) // 5)
