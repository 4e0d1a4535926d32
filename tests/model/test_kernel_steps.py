"""How many layers one call of the kernels takes: as many as little is kept for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.pytorch.kernels import stack
from model.pytorch.kernels.stack import steps


@given(st.integers(0, 30), st.sets(st.integers(0, 30)), st.integers(1, 2**22))
def test_each_layer_is_in_one_call(last: int, probed: set[int], numbers: int) -> None:
    """In order, none twice, and what is kept of a call's probed layers fits the room, or is one layer's."""
    calls = list(steps(last, probed, numbers))
    assert [layer for call in calls for layer in call] == list(range(last))
    for call in calls:
        kept = len(probed & {*call})
        assert kept <= 1 or 3 * numbers * kept <= stack._ROOM


@pytest.mark.parametrize(("probed", "calls"), [(set(), 1), ({0}, 1), ({0, 5}, 1), ({0, 1, 2, 3, 4, 5}, 3)])
def test_calls_are_as_few_as_that_allows(probed: set[int], calls: int) -> None:
    """What nobody looks at is never a reason for another call."""
    assert len(list(steps(6, probed, stack._ROOM // 6))) == calls
