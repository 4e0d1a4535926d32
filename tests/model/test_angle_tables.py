"""The native kernels' rotary angles: those that the definition gives, whatever passes came before."""

from dataclasses import replace

import torch

from model.encoder.packing import Packing
from model.encoder.parts import LayerConfig, Rotary
from model.encoder.positions import rotary_angles
from model.pytorch.kernels.positions import AngleTables
from tests.model.test_kernel_steps import BASE

KINDS = (Rotary.of(16), Rotary.of(8, base=500.0))


def test_tables_give_the_angles_of_each_position() -> None:
    """Alone and side by side, with padding rows and without, after shorter and after longer sequences."""
    layers = (LayerConfig(), *(LayerConfig(rotary=kind) for kind in KINDS))
    tables = AngleTables(replace(BASE, layers=layers))
    for lengths, padding in (
        ((3,), 0),
        ((5, 9, 1), 0),
        ((40,), 2),
        ((7,), 0),
        ((64, 2), 1),
        ((65,), 0),
        ((), 2),
    ):
        packing, rows = Packing.of(lengths), sum(lengths) + padding
        found = tables.of(packing, rows)
        positions = torch.tensor([*(i for length in lengths for i in range(length)), *[0] * padding])
        assert found.keys() == set(KINDS)
        for kind, both in found.items():
            for one, expected in zip(both, rotary_angles(positions, kind), strict=True):
                torch.testing.assert_close(one, expected, rtol=0, atol=0)
                assert one.is_contiguous()


def test_an_encoder_without_rotary_positions_has_no_angles() -> None:
    """Nothing is computed for it."""
    assert AngleTables(replace(BASE, layers=(LayerConfig(),))).of(Packing.of([3]), 3) == {}
