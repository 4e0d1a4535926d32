"""Interventions of a request: what a model cannot run is refused, and texts of one length share theirs."""

from dataclasses import replace

import numpy as np
import pytest

from model.contract import Encoding, Want
from model.encoder.interventions import INTERVENTION_KINDS, BlockedEdges, HeadScale, StateChange
from service.tasks.errors import OptionError
from service.tasks.interventions import Change, ChangedStates, Changes, HiddenKeys, ScaledHeads
from tests.service.test_encode_plan import INFO

VECTOR = np.ones(INFO.hidden_size, np.float32)
EVERY: list[Change] = [
    ScaledHeads(-1, (0, -1, 0)),
    HiddenKeys((0,), "all", "all", (-1,)),
    ChangedStates(-1, (1, -1), VECTOR),
]


def text(length: int) -> Encoding:
    """A text of this many tokens."""
    zeros, nothing = [0] * length, [False] * length
    names, places = ["a"] * length, [(0, 1)] * length
    return Encoding(zeros, zeros, names, places, [*zeros], nothing, truncated=False, original_length=length)


def test_indices_are_resolved_for_each_length() -> None:
    """Negative ones count from the end of each text, and none counts twice."""
    changes = Changes(EVERY, INFO)
    changes.take([text(3), text(5), text(3)], "inputs.{}".format)
    first, second, third = (
        want.interventions for want in changes.add_to([Want(token_layers=(INFO.layers,))] * 3)
    )
    assert first is third
    assert first is not None
    assert second is not None
    last, heads = INFO.layers - 1, tuple(range(INFO.heads))
    assert first.heads == (HeadScale(last, (0, INFO.heads - 1)),)
    assert first.edges == (BlockedEdges((0,), heads, (0, 1, 2), (2,)),)
    assert second.edges == (BlockedEdges((0,), heads, (0, 1, 2, 3, 4), (4,)),)
    (one,), (other,) = first.states, second.states
    assert isinstance(one, StateChange)
    assert (one.layer, one.tokens, one.vector is VECTOR) == (INFO.layers, (1, 2), True)
    assert other.tokens == (1, 4)


def test_their_memory_is_counted_by_length() -> None:
    """Positions of queries and keys; heads and layers are a few."""
    changes = Changes(EVERY, INFO)
    assert changes.held_bytes([text(3), text(5), text(3)]) == 8 * ((3 + 1 + 2) + (5 + 1 + 2))


@pytest.mark.parametrize("change", EVERY, ids=lambda change: change.kind)
def test_a_model_that_cannot_run_a_kind_refuses_it(change: Change) -> None:
    """A graph says what to do instead."""
    others = tuple(kind for kind in INTERVENTION_KINDS if kind != change.kind)
    Changes([change], INFO)
    with pytest.raises(OptionError, match="serve its weights with PyTorch") as caught:
        Changes([change], replace(INFO, interventions=others))
    assert (caught.value.kind, caught.value.option) == ("unsupported", "interventions.0")
