"""Measures the families that headlight serves, in their real widths, compared with `transformers`.

Weights are random, the vocabulary is small, and there are `--layers` layers, since ratios hardly depend on
their number. For each family and batch shape it measures, in seconds per pass, from token ids to the last
hidden state:

- headlight: the encoder as the service runs it, and, without native kernels, plain;
- transformers: the reference, with `sdpa` attention where the family has it and `eager` elsewhere, in one
  batch padded to the longest text;
- F.linear: the linear products of the pass alone, which is called the ceiling;
- summary: headlight with the statistics of all heads of all layers.

All take turns in a shuffled order within each round; ratios are formed within a round, and the median is
shown, with the quartiles in brackets.

    python -m benchmarks.passes.families [--families mpnet,modernbert] [--dtype float32] [--layers 4]
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.kit import machine, tables
from benchmarks.kit.batches import pack_ids
from benchmarks.kit.command_line import parser_for, some_of
from benchmarks.kit.turns import take_turns
from benchmarks.kit.workloads import mixed_lengths
from benchmarks.passes.forward import encoder_pass, transformers_pass
from model.checkpoints.checkpoint import load_checkpoint
from model.contract import SummaryWant, Want
from model.encoder.linear import Linear
from model.pytorch.backend import TorchBackend
from tests.references.families import write_model

_BASE: dict[str, Any] = {"hidden_size": 768, "num_attention_heads": 12, "max_position_embeddings": 1026}
_T5: dict[str, Any] = {"d_model": 768, "d_kv": 64, "num_heads": 12}
_DEBERTA_V3: dict[str, Any] = {
    "max_position_embeddings": 512,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "layer_norm_eps": 1e-7,
    "type_vocab_size": 0,
    "position_biased_input": False,
}
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mpnet": ("MPNet", "num_hidden_layers", {**_BASE, "intermediate_size": 3072}),
    "xlm-roberta": ("XLMRoberta", "num_hidden_layers", {**_BASE, "intermediate_size": 3072}),
    "modernbert": ("ModernBert", "num_hidden_layers", {**_BASE, "intermediate_size": 1152}),
    "nomic": ("NomicBert", "num_hidden_layers", {**_BASE, "intermediate_size": 3072}),
    "deberta": ("DebertaV2", "num_hidden_layers", {**_BASE, "intermediate_size": 3072, **_DEBERTA_V3}),
    "t5": ("T5", "num_layers", {**_T5, "d_ff": 3072, "architecture": "T5EncoderModel"}),
}
"""Name -> how its classes begin, its field for the number of layers, and the sizes of its base model."""
_EAGER = ("mpnet", "t5", "deberta")
"""Families without SDPA in `transformers`."""
SHAPES = {"1×13": [13], "16×128": [128] * 16, "4×512": [512] * 4, "mixed": mixed_lengths(32, 510)}
OF_CEILING, OF_SDPA, OF_EAGER, OF_PADDED, OF_SUMMARY = 0.75, 1.15, 1.5, 3.0, 1.2
"""The targets: share of the ceiling, speed of transformers without and with padding, time with statistics."""


def main() -> None:
    """Measure and print."""
    parser = parser_for(__doc__)
    parser.add_argument("--families", type=some_of(tuple(FAMILIES)), default=list(FAMILIES))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    tables.print_facts("Machine", machine.facts(arguments.dtype))
    checks = []
    for name in arguments.families:
        with tempfile.TemporaryDirectory() as place:
            checks += measure(name, Path(place), arguments.dtype, arguments.layers, arguments.rounds)
    tables.print_checks(checks)


def measure(name: str, place: Path, dtype: str, layers: int, rounds: int) -> list[tables.Check]:
    """Measure one family, and print its table; returns what is held to a bound."""
    prefix, field, sizes = FAMILIES[name]
    written = write_model(place, prefix, **{**sizes, field: layers})
    precision = getattr(torch, dtype)
    written.model.to(precision)
    if name not in _EAGER:
        written.model.set_attn_implementation("sdpa")
    backend, plain = (
        TorchBackend(load_checkpoint(place), device="cpu", dtype=dtype, native=native)
        for native in (True, False)
    )
    encoder = load_checkpoint(place).encoder.to(precision)
    linears = [module for module in encoder.modules() if isinstance(module, Linear)]
    rows, checks = [], []
    for shape, lengths in SHAPES.items():
        # Tokens that no family treats in a special way.
        texts = [ids.tolist() for ids in torch.split(torch.randint(5, 100, (sum(lengths),)), lengths)]
        widths = {linear.weight.shape[1] for linear in linears}
        inputs = {width: torch.randn(sum(lengths), width, dtype=precision) for width in widths}
        contestants: dict[str, Callable[[], object]] = {
            "headlight": encoder_pass(backend, texts),
            "plain": encoder_pass(plain, texts),
            "transformers": transformers_pass(written.model, texts),
            "ceiling": partial(products, linears, inputs),
            "summary": partial(backend.run, with_summary(texts, backend)),
        }
        with torch.inference_mode():
            seconds = take_turns(contestants, rounds)
        rows.append(
            [
                shape,
                f"{1e3 * sorted(seconds['headlight'])[rounds // 2]:.0f}",
                tables.ratio(seconds["plain"], seconds["headlight"]),
                tables.ratio(seconds["ceiling"], seconds["headlight"]),
                tables.ratio(seconds["transformers"], seconds["headlight"]),
                tables.ratio(seconds["summary"], seconds["headlight"]),
            ]
        )
        checks += make_checks(name, shape, seconds)
    header = ["", "ms", "plain", "of ceiling", "of transformers", "summary, time"]
    tables.print_table(f"{name}, {layers} layers, kernels {backend.info.kernels}", header, rows)
    return checks


def products(linears: Sequence[Linear], inputs: Mapping[int, Tensor]) -> None:
    """Run every linear product of a pass; `inputs` (T, in) by their width."""
    for linear in linears:
        F.linear(inputs[linear.weight.shape[1]], linear.weight, linear.bias)


def with_summary(texts: Sequence[Sequence[int]], backend: TorchBackend) -> Any:
    """Make a batch that wants its last sentence vectors and the statistics of all heads."""
    info = backend.info
    want = SummaryWant(tuple(range(info.layers)), tuple(range(info.heads)), special=())
    batch = pack_ids(texts, info)
    return type(batch)(
        batch.input_ids,
        batch.segment_ids,
        batch.cu_seqlens,
        tuple(Want(sentence=one.sentence, summary=want) for one in batch.wants),
    )


def make_checks(name: str, shape: str, seconds: dict[str, list[float]]) -> list[tables.Check]:
    """Hold the ratios of a shape to their bounds."""

    def over(a: str, b: str) -> list[float]:
        return [x / y for x, y in zip(seconds[a], seconds[b], strict=True)]

    if shape == "1×13":
        return []
    padded = shape == "mixed"
    of_transformers = OF_PADDED if padded else OF_EAGER if name in _EAGER else OF_SDPA
    checks = [
        tables.Check(f"{name}, {shape}: share of ceiling", over("ceiling", "headlight"), OF_CEILING),
        tables.Check(
            f"{name}, {shape}: speed / transformers", over("transformers", "headlight"), of_transformers
        ),
    ]
    if shape == "16×128":
        summary = over("summary", "headlight")
        checks.append(tables.Check(f"{name}, {shape}: time with summary", summary, OF_SUMMARY, at_most=True))
    return checks


if __name__ == "__main__":
    main()
