"""Measures passes in eight bits, compared with bfloat16 or float32 and with their products of integers alone.

For the embedded model and, with random weights, for models of the widths of XLM-RoBERTa-base and
ModernBERT-base, `--layers` layers each. A pass is from token ids to the last hidden state. All take turns in
a shuffled order within each round; ratios are formed within a round, and the median is shown, with the
quartiles in brackets. `--without` makes a processor act as one that lacks some capabilities, such as
avx512_f and avx_vnni.

    python -m benchmarks.passes.eight_bits [--models minilm,xlm-roberta,modernbert] [--layers 4] [--rounds 15]
        [--other float32] [--without avx512_f,avx_vnni]
"""

import tempfile
from collections.abc import Callable, Iterator
from ctypes import byref
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for, some_of
from benchmarks.kit.turns import take_turns
from benchmarks.kit.workloads import mixed_lengths
from benchmarks.passes.families import FAMILIES
from benchmarks.passes.forward import encoder_pass
from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import EMBEDDED, resolve
from model.encoder.linear import Linear as EncoderLinear
from model.pytorch.backend import TorchBackend
from model.pytorch.kernels.library import check
from model.pytorch.kernels.stack import NativeStack
from model.pytorch.kernels.structures import Linear, Product
from tests.references.families import write_model

MINILM = "minilm"
SHAPES = {
    "1×15": [15],
    "256×16": [16] * 256,
    "32×128": [128] * 32,
    "mixed": mixed_lengths(32, 254),
}
OF_OTHER = {
    "bfloat16": {"1×15": 1.4, "256×16": 1.55, "32×128": 1.5, "mixed": 1.5},
    "float32": {"1×15": 1.8, "256×16": 1.35, "32×128": 1.35, "mixed": 1.35},
}
OF_PRODUCTS = 0.75
"""The targets: speed of a pass in the other precision, and share of the products of integers alone."""


def main() -> None:
    """Measure and print."""
    parser = parser_for(__doc__)
    known = (MINILM, "xlm-roberta", "modernbert")
    parser.add_argument("--models", type=some_of(known), default=known, help=",".join(known))
    parser.add_argument("--layers", type=int, default=4, help="of the models with random weights")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--other", choices=OF_OTHER, default="bfloat16", help="the precision to compare with")
    can = torch.cpu.get_capabilities()
    parser.add_argument(
        "--without", type=some_of(tuple(can)), default=[], help="capabilities to leave unused"
    )
    arguments = parser.parse_args()
    tables.print_facts("Machine", machine.facts("int8"))
    checks: list[tables.Check] = []
    with patch("torch.cpu.get_capabilities", return_value={**can, **dict.fromkeys(arguments.without, False)}):
        for name in arguments.models:
            with tempfile.TemporaryDirectory() as place:
                folder = find(name, Path(place), arguments.layers)
                checks += measure(name, folder, arguments.other, arguments.rounds)
    tables.print_checks(checks)


def find(name: str, place: Path, layers: int) -> Path:
    """Return the folder of a model, which is written if it has random weights."""
    if name == MINILM:
        return resolve(EMBEDDED)
    prefix, field, sizes = FAMILIES[name]
    write_model(place, prefix, **{**sizes, field: layers})
    return place


def measure(name: str, folder: Path, other_dtype: str, rounds: int) -> list[tables.Check]:
    """Measure one model, and print its table; returns what is held to a bound."""
    rounded, other = (
        TorchBackend(load_checkpoint(folder), device="cpu", dtype=dtype) for dtype in ("int8", other_dtype)
    )
    rows, checks = [], []
    for shape, lengths in SHAPES.items():
        # Tokens that no family treats in a special way.
        texts = [ids.tolist() for ids in torch.split(torch.randint(5, 100, (sum(lengths),)), lengths)]
        contestants: dict[str, Callable[[], object]] = {
            "int8": encoder_pass(rounded, texts),
            other_dtype: encoder_pass(other, texts),
            "products": products(rounded, sum(lengths)),
        }
        with torch.inference_mode():
            seconds = take_turns(contestants, rounds)
        speed = [b / a for a, b in zip(seconds["int8"], seconds[other_dtype], strict=True)]
        share = [b / a for a, b in zip(seconds["int8"], seconds["products"], strict=True)]
        rows.append(
            [
                shape,
                f"{1e3 * sorted(seconds['int8'])[rounds // 2]:.1f}",
                tables.ratio(seconds[other_dtype], seconds["int8"]),
                tables.ratio(seconds["products"], seconds["int8"]),
            ]
        )
        checks.append(
            tables.Check(f"{name}, {shape}: speed of {other_dtype}", speed, OF_OTHER[other_dtype][shape])
        )
        checks.append(tables.Check(f"{name}, {shape}: share of its products", share, OF_PRODUCTS))
    tables.print_table(
        f"{name}, {rounded.info.layers} layers, kernels {rounded.info.kernels}",
        ["", "ms", f"of {other_dtype}", "of its products"],
        rows,
    )
    return checks


def products(backend: TorchBackend, tokens: int) -> Callable[[], object]:
    """Prepare the linear products of a pass by themselves, with their activations."""
    stack = backend.encoder.executor
    assert isinstance(stack, NativeStack)
    linears = [*_linears(stack)]
    dtype = next(one.dtype for one in backend.encoder.modules() if isinstance(one, EncoderLinear))
    x = torch.randn(tokens, max(linear.inputs for linear in linears), dtype=dtype)
    output = torch.empty(tokens, max(linear.outputs for linear in linears), dtype=dtype)
    described = [
        Product(linear=one, x=x.data_ptr(), output=output.data_ptr(), tokens=tokens) for one in linears
    ]
    multiply = stack.kernels.products.multiply

    def run(keep: tuple[torch.Tensor, ...]) -> object:
        for product in described:
            check(multiply(byref(product)))
        return keep

    return partial(run, (x, output))


def _linears(stack: NativeStack) -> Iterator[Linear]:
    for layer in stack.layers:
        yield from (layer.qkv, layer.output, layer.inner, layer.outer)


if __name__ == "__main__":
    main()
