"""MaxSim of late interaction, against the sums written out."""

import numpy as np
import pytest

from model.choices import Interaction
from model.heads import late_interaction_scores
from model.heads.late_interaction_scores import max_sim


def naive(query: np.ndarray, text: np.ndarray) -> float:
    """Σ over the query's tokens of the largest dot product, in float64."""
    return sum(
        max((float(np.dot(q.astype(float), t.astype(float))) for t in text), default=0.0) for q in query
    )


@pytest.mark.parametrize("block", [1, 40, 2**20])
def test_every_text_gets_the_sum_of_the_largest_products(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the texts are grouped, and for texts of one token and of none."""
    monkeypatch.setattr(late_interaction_scores, "_BLOCK_NUMBERS", block)
    draw = np.random.default_rng(0)
    query = draw.standard_normal((5, 16), np.float32)
    texts = [draw.standard_normal((n, 16), np.float32) for n in (3, 0, 1, 9, 30, 0, 2)]
    expected = [naive(query, text) for text in texts]
    found = max_sim(query, texts)
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() <= 1e-5
    assert max_sim(query, texts[1:2]).tolist() == [0.0]
    mean = max_sim(query, texts, Interaction(mean=True, empty=-10.0))
    assert mean.dtype == np.float32
    assert np.abs(mean - np.where([len(text) > 0 for text in texts], expected, -10) / 5).max() <= 1e-6
    assert max_sim(query[:0], texts, Interaction(mean=True)).tolist() == [0.0] * len(texts)
