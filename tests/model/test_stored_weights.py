"""Products in float32 with weights as a file holds them, which observe attention in eight bits."""

from collections.abc import Sequence
from ctypes import addressof, byref
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.checkpoints.checkpoint import load_checkpoint
from model.contract import FloatArray, Output
from model.encoder.parts import Activation
from model.pytorch.backend import TorchBackend
from model.pytorch.kernels.instructions import KERNEL_SETS, NEON_DOTPROD
from model.pytorch.kernels.library import (
    ACTIVATIONS,
    STORED,
    check,
    kernels_of_stored_weights,
)
from model.pytorch.kernels.structures import Linear, Product, StoredRows
from tests.support.families import ALIKE, ATTENDING, ENCODERS, SIZES, sample, write_small
from tests.support.kernel import kernels_of, multiply, needs_int8, restrict_to
from tests.support.product import run, want_all

SETS = {one.name: one.instructions for one in KERNEL_SETS if one.precision == "float32"}
WITH_EIGHT_BITS = SETS | {"float32_neon": NEON_DOTPROD}
"""The least that each has beside them on processors with eight bits."""


@pytest.fixture(params=SETS)
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of each set that the processor has, while it has no other."""
    name: str = request.param
    restrict_to(SETS[name], monkeypatch)
    kernels_of(name)
    return name


@pytest.fixture(params=["all", *SETS])
def _processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """This one, and those that have one set alone."""
    restrict_to(WITH_EIGHT_BITS.get(request.param), monkeypatch)


def describe(parts: Sequence[Tensor]) -> Any:
    """The parts of a weight, as the kernels read them."""
    rows = [
        StoredRows(first=part.data_ptr(), count=len(part), type=STORED.index(part.dtype)) for part in parts
    ]
    return (StoredRows * len(parts))(*rows)


def products_of(
    instructions: str,
    x: Tensor,
    parts: Sequence[Tensor],
    bias: Tensor,
    activation: Activation | None = None,
    *,
    gated: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run the kernel, which leaves numbers behind the result as they are, and one with panels, in float32."""
    stored, laid_out = kernels_of_stored_weights(), kernels_of(instructions)
    assert stored.instructions == laid_out.instructions
    rows, width = describe(parts), len(bias) // 2 if gated else len(bias)
    room, expected = torch.full((len(x) * width + 9,), 7.0), torch.empty(len(x), width)
    linear = Linear(
        bias=bias.data_ptr(),
        inputs=x.shape[1],
        outputs=len(bias),
        activation=ACTIVATIONS.index(activation),
        gated=gated,
        stored=addressof(rows),
        parts=len(parts),
    )
    described = Product(linear=linear, x=x.data_ptr(), output=room.data_ptr(), tokens=len(x))
    check(stored.products.multiply(byref(described)))
    assert (room[-9:] == 7).all()
    weight = torch.cat([part.float() for part in parts])
    multiply(laid_out.products, x, weight, bias, expected, activation, gated=gated)
    return room[:-9].view(len(x), width), expected


def operands(rows: int, inputs: int, counts: Sequence[int]) -> tuple[Tensor, list[Tensor], Tensor]:
    """Random ones: parts of so many rows each, of one type after the other."""
    generator = torch.Generator().manual_seed(rows * inputs + sum(counts))
    x = torch.randn(rows, inputs, generator=generator)
    parts = [
        torch.randn(count, inputs, generator=generator).to(STORED[i % 3]) for i, count in enumerate(counts)
    ]
    return x, parts, torch.randn(sum(counts), generator=generator)


@given(
    rows=st.integers(0, 40),
    inputs=st.integers(1, 300),
    counts=st.lists(st.integers(1, 70), min_size=1, max_size=4),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_product_has_the_bits_of_one_with_panels(
    instructions: str, rows: int, inputs: int, counts: Sequence[int]
) -> None:
    """Whatever the types of the parts, and wherever in a panel one ends and the next begins."""
    x, parts, bias = operands(rows, inputs, counts)
    found, expected = products_of(instructions, x, parts, bias)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("size", [1, 16, 47, 48, 100])
def test_so_has_one_with_an_activation_or_a_gate(
    instructions: str, size: int, activation: Activation | None
) -> None:
    """Gates and values are the halves of all rows, not of a part's."""
    x, parts, bias = operands(9, 20, [size + size // 2, size - size // 2])
    for gated in (False, True):
        found, expected = products_of(instructions, x, parts, bias, activation, gated=gated)
        assert torch.equal(found, expected)


@pytest.mark.usefixtures("instructions")
def test_parts_that_do_not_fit_are_refused() -> None:
    """Too few or too many rows, a part of none, without an address, or of an unknown type; and no parts."""
    x, (weight,), bias = operands(3, 8, [10])
    address, output = weight.data_ptr(), torch.empty(3, 10)
    products = kernels_of_stored_weights().products
    cases = ([(address, 9, 0)], [(address, 11, 0)], [(address, 10, 0), (address, 0, 0)], [(None, 10, 0)])
    for parts in (*cases, [(address, 10, 3)], [(address, 10, -1)], []):
        rows = (StoredRows * len(parts))(*(StoredRows(*part) for part in parts))
        linear = Linear(bias=bias.data_ptr(), inputs=8, outputs=10, stored=addressof(rows), parts=len(parts))
        wrong = Product(linear=linear, x=x.data_ptr(), output=output.data_ptr(), tokens=3)
        assert products.multiply(byref(wrong)) == -2


def observe(folder: Path, dtype: str) -> list[Output]:
    """Every map of some texts, in one batch."""
    model = TorchBackend(load_checkpoint(folder), device="cpu", dtype=dtype)
    return run(model, sample(), [want_all(model)] * len(sample()))


# Attention of different kinds: by the tokens alone, by distances, in windows, and by fewer keys than queries.
_KINDS = ("bert", "deberta-v2", "modernbert", "qwen3")
_QUICK = {("all", family) for family in ATTENDING if family not in ALIKE} | {*product(SETS, _KINDS)}
_EIGHT_BITS = [
    pytest.param(*case, marks=[] if case in _QUICK else [pytest.mark.thorough])
    for case in product(("all", *SETS), ATTENDING)
]


@pytest.mark.in_turns
@needs_int8
@pytest.mark.parametrize(("_processor", "family"), _EIGHT_BITS, indirect=["_processor"])
@pytest.mark.usefixtures("_processor")
def test_maps_in_eight_bits_are_those_of_float32(family: str, tmp_path: Path) -> None:
    """Bit by bit, whatever a family's layers are; only vectors of distances stay in bfloat16."""
    write_small(tmp_path, family, ENCODERS.get(family, "Model"))
    for ours, exact in zip(*(observe(tmp_path, dtype) for dtype in ("int8", "float32")), strict=True):
        if family == "deberta-v2":
            assert np.abs(whole(ours) - whole(exact)).max() <= 0.02
        else:
            assert np.array_equal(whole(ours), whole(exact))


def whole(output: Output) -> FloatArray:
    """The maps of every layer and head."""
    assert output.attention is not None
    return output.attention


@needs_int8
@pytest.mark.usefixtures("_processor")
def test_a_file_of_smaller_numbers_is_read_as_it_is(tmp_path: Path) -> None:
    """Nothing is widened in memory, and nothing of a checkpoint is copied."""
    write_small(tmp_path, "bert", "Model")
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    types = [STORED[i % 3] for i in range(len(tensors))]
    save_file({name: x.to(to) for (name, x), to in zip(tensors.items(), types, strict=True)}, file)
    parts = [part for parts in load_checkpoint(tmp_path).stored.values() for part in parts]
    assert len(parts) == 6 * SIZES["num_hidden_layers"]
    assert {part.dtype for part in parts} == {*STORED}
    maps = [line.split() for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
    places = [range(*(int(end, 16) for end in line[0].split("-"))) for line in maps if line[-1] == str(file)]
    assert all(any(part.data_ptr() in place for place in places) for part in parts)
    stack: Any = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype="int8").encoder.executor
    maps = [line.split() for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
    places = [range(*(int(end, 16) for end in line[0].split("-"))) for line in maps if line[-1] == str(file)]
    for layer in stack.layers:
        for linear in (layer.qkv, layer.output, layer.inner, layer.outer):
            rows = (StoredRows * linear.parts).from_address(linear.stored)
            assert all(any(row.first in place for place in places) for row in rows)
    for ours, exact in zip(*(observe(tmp_path, dtype) for dtype in ("int8", "float32")), strict=True):
        assert np.array_equal(whole(ours), whole(exact))


@needs_int8
@pytest.mark.usefixtures("_processor")
@pytest.mark.parametrize("change", ["new numbers", "another layout", "float64 in the file"])
def test_weights_that_are_not_as_in_the_file_are_used_as_they_are(change: str, tmp_path: Path) -> None:
    """Trained further, or of a type that the kernels do not read: then the model keeps a copy."""
    write_small(tmp_path, "bert", "Model")
    if change == "float64 in the file":
        file = tmp_path / "model.safetensors"
        save_file({name: x.double() for name, x in load_file(file).items()}, file)
    found = []
    for dtype in ("int8", "float32"):
        checkpoint = load_checkpoint(tmp_path)
        for linear in checkpoint.stored:
            if change == "new numbers":
                linear.weight.data = linear.weight.data * 1.5
            elif change == "another layout":
                linear.weight.data = 1.5 * linear.weight.data.T.contiguous().T
        model = TorchBackend(checkpoint, device="cpu", dtype=dtype)
        found.append(run(model, sample(), [want_all(model)] * len(sample())))
    for ours, exact in zip(*found, strict=True):
        assert np.array_equal(whole(ours), whole(exact))
