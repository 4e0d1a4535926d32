"""Scores of logits, against their definitions in higher precision."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

from model.contract import HeadInfo
from model.heads.scores import scores

LOGITS = np.array([[-4.5, 0.0, 2.25], [300.0, -300.0, 299.0], [-1e4, 1e4, -1e4]], np.float32)


def head(activation: str) -> HeadInfo:
    """A classifier of three labels."""
    return HeadInfo("classification", ("a", "b", "c"), activation)  # type: ignore[arg-type]


def softmax(row: list[float]) -> list[float]:
    """Its definition, in 60 digits."""
    with localcontext(prec=60):
        powers = [Decimal(x).exp() for x in row]
        return [float(power / sum(powers)) for power in powers]


def sigmoid(row: list[float]) -> list[float]:
    """Its definition, in 60 digits."""
    with localcontext(prec=60):
        return [float(1 / (1 + (-Decimal(x)).exp())) for x in row]


@pytest.mark.parametrize(("activation", "reference"), [("softmax", softmax), ("sigmoid", sigmoid)])
def test_scores_are_the_definition_s_however_large_the_logits(activation: str, reference: object) -> None:
    """No logit overflows, and a score far below 1 keeps its digits."""
    assert callable(reference)
    expected = np.array([reference(row) for row in LOGITS.tolist()])
    found = scores(LOGITS, head(activation))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-45)


@pytest.mark.parametrize(("activation", "raw"), [("identity", False), ("softmax", True), ("sigmoid", True)])
def test_raw_scores_are_the_logits(activation: str, *, raw: bool) -> None:
    """So are those of a regression."""
    np.testing.assert_array_equal(scores(LOGITS, head(activation), raw=raw), LOGITS)
