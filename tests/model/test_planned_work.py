"""Only what a plan asks for is computed."""

from functools import partial

import pytest
import torch
from torch import Tensor

from model.encoder.attention import SelfAttention
from model.encoder.block import Block
from model.encoder.encoder import Encoder
from model.encoder.plan import Plan
from tests.model.encoder.test_encoder import IDS, config, forward
from tests.support.product import random_encoder


class Calls:
    """Counts the blocks that really ran, and the layers whose queries and keys were projected."""

    def __init__(self, encoder: Encoder) -> None:
        self.blocks: list[int] = []
        self.projections: list[int] = []
        for number, block in enumerate(encoder.blocks):
            assert isinstance(block, Block)
            assert block.attention is not None
            block.register_forward_hook(lambda *_, number=number: self.blocks.append(number))
            block.attention.qkv.register_forward_hook(
                lambda *_, number=number: self.projections.append(number)
            )


@pytest.mark.parametrize(
    ("wanted", "observed", "blocks", "projections"),
    [
        ([0], [], [], []),
        ([1], [], [0], [0]),
        ([3, 1], [], [0, 1, 2], [0, 1, 2]),
        ([], [0], [], [0]),
        ([], [2, 0], [0, 1], [0, 1, 2]),
        ([1], [0], [0], [0]),
        ([1], [1], [0], [0, 1]),
        ([2], [0], [0, 1], [0, 1]),
    ],
)
def test_work_past_the_last_wanted_layer_is_not_done(
    wanted: list[int], observed: list[int], blocks: list[int], projections: list[int]
) -> None:
    """A map of layer 0 needs its queries and keys, not its output; a state needs the blocks up to it."""
    encoder, layers = random_encoder(config()), []
    calls = Calls(encoder)

    def observe(
        layer: int, attention: SelfAttention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None
    ) -> None:
        assert attention is encoder.blocks[layer].attention
        assert (q.shape, k.shape, bias) == ((7, 4, 6), (7, 4, 6), None)
        layers.append(layer)

    plan = Plan(wanted, {layer: partial(observe, layer) for layer in observed})
    states = forward(encoder, IDS, plan)
    assert sorted(states) == sorted(wanted)
    assert layers == sorted(observed)
    assert (calls.blocks, calls.projections) == (blocks, projections)


def test_stopping_early_changes_no_number() -> None:
    """A state is the same whether or not deeper ones were asked for."""
    encoder = random_encoder(config(norm="pre"))
    whole = forward(encoder, IDS, Plan([0, 1, 2, 3]))
    for layer in range(4):
        assert torch.equal(forward(encoder, IDS, Plan([layer]))[layer], whole[layer])
