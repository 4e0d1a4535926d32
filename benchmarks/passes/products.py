"""The kernels' own linear products, compared with those of oneDNN, by number of rows.

Multiplies random rows by MiniLM's 24 matrices, with bias and, for the first of each feed-forward layer, GELU.
Both kinds multiply by weights that are laid out in advance, and take turns; ratios are formed within a round.

    python -m benchmarks.passes.products [--dtype float32] [--threads 1] [--rounds 15]
"""

from collections.abc import Callable, Sequence
from ctypes import byref

import numpy as np
import torch
from torch import Tensor

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.turns import take_turns
from model.encoder.linear import Linear
from model.encoder.parts import Activation
from model.pytorch.kernels import structures
from model.pytorch.kernels.library import ACTIVATIONS, Products, check, find_kernels
from model.pytorch.kernels.panels import lay_out

OURS, THEIRS = "ours", "oneDNN"
_LAYERS = 6
_SHAPES: tuple[tuple[int, int, Activation | None], ...] = (
    (384, 1152, None),
    (384, 384, None),
    (384, 1536, "gelu"),
    (1536, 384, None),
)
_ROWS = (4, 8, 13, 16, 32, 64, 120, 256, 408, 1024)


def main() -> None:
    """Measure and print."""
    parser = parser_for(__doc__)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    dtype = getattr(torch, arguments.dtype)
    kernels = find_kernels(dtype)
    tables.print_facts("Machine", [*machine.facts(arguments.dtype), ("kernels", kernels.instructions)])
    layers = [_layer(*shape, dtype) for _ in range(_LAYERS) for shape in _SHAPES]
    rows = [_measure(count, layers, kernels.products, arguments.rounds) for count in _ROWS]
    tables.print_table(
        f"Milliseconds for 24 products, median of {arguments.rounds} rounds [quartiles of the ratio]",
        ["rows", OURS, THEIRS, f"{THEIRS} / {OURS}"],
        rows,
    )


def _layer(inputs: int, outputs: int, activation: Activation | None, dtype: torch.dtype) -> Linear:
    layer = Linear(inputs, outputs, activation).to(dtype)
    layer.weight.data.normal_(std=inputs**-0.5)
    assert layer.bias is not None
    layer.bias.data.normal_()
    return layer


def _measure(count: int, layers: Sequence[Linear], products: Products, rounds: int) -> list[str]:
    """Return a row of the table for this number of rows."""
    dtype = layers[0].weight.dtype
    inputs = {size: torch.randn(count, size).to(dtype) for size, _, _ in _SHAPES}
    # As in a pass, where few buffers are written again and again.
    outputs = {size: torch.empty(count, size, dtype=dtype) for _, size, _ in _SHAPES}
    ours = [
        _our_product(layer, inputs[layer.weight.shape[1]], outputs[layer.outputs], products)
        for layer in layers
    ]
    theirs = [_their_product(layer, inputs[layer.weight.shape[1]]) for layer in layers]
    seconds = take_turns({OURS: lambda: _call_each(ours), THEIRS: lambda: _call_each(theirs)}, rounds)
    return [
        str(count),
        *(f"{np.median(seconds[name]) * 1e3:.2f}" for name in (OURS, THEIRS)),
        tables.ratio(seconds[THEIRS], seconds[OURS]),
    ]


def _our_product(layer: Linear, x: Tensor, output: Tensor, products: Products) -> Callable[[], object]:
    panels = lay_out(layer.weight, products.columns)
    outputs, inputs = layer.weight.shape
    assert layer.bias is not None
    bias = layer.bias.float()
    described = structures.Linear(
        panels=panels.data_ptr(),
        bias=bias.data_ptr(),
        inputs=inputs,
        outputs=outputs,
        activation=ACTIVATIONS.index(layer.activation),
    )
    product = structures.Product(linear=described, x=x.data_ptr(), output=output.data_ptr(), tokens=len(x))

    def run(_alive: object = (panels, bias, output)) -> None:
        check(products.multiply(byref(product)))

    return run


def _their_product(layer: Linear, x: Tensor) -> Callable[[], object]:
    prepacked = Linear(layer.weight.shape[1], layer.weight.shape[0], layer.activation)
    prepacked.weight, prepacked.bias = layer.weight, layer.bias
    prepacked.prepack()
    return lambda: prepacked(x)


def _call_each(calls: Sequence[Callable[[], object]]) -> None:
    for call in calls:
        call()


if __name__ == "__main__":
    main()
