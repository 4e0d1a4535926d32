"""Measures the families that headlight serves, in their real widths, compared with `transformers`.

Weights are random, the vocabulary is small, and there are `--layers` layers, since ratios hardly depend on
their number. For each family and batch shape it measures, in seconds per pass, from token ids to the last
hidden state:

- headlight: the encoder as the service runs it, and, without native kernels, plain;
- transformers: the reference, with `sdpa` attention where the family has it and `eager` elsewhere, in one
  batch padded to the longest text;
- F.linear: the linear products of the pass alone, which is called the ceiling; of decoders, whose texts are
  longer, with the products of the attention, QKᵀ and the weighted sum of V, over the keys that queries see;
- summary: headlight with the statistics of all heads of all layers;
- int8: headlight in eight bits, with `--int8`.

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
from model.encoder.config import EncoderConfig
from model.encoder.linear import Linear
from model.pytorch.backend import TorchBackend
from tests.references.families import Written, write_model

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
_QWEN3: dict[str, Any] = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
}
_GEMMA3: dict[str, Any] = {
    "hidden_size": 768,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "intermediate_size": 1152,
    "sliding_window": 512,
    "use_bidirectional_attention": True,
    "max_position_embeddings": 32_768,
}
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mpnet": ("MPNet", "num_hidden_layers", {**_BASE, "intermediate_size": 3072}),
    "xlm-roberta": ("XLMRoberta", "num_hidden_layers", {**_BASE, "intermediate_size": 3072}),
    "modernbert": ("ModernBert", "num_hidden_layers", {**_BASE, "intermediate_size": 1152}),
    "nomic": ("NomicBert", "num_hidden_layers", {**_BASE, "intermediate_size": 3072}),
    "deberta": ("DebertaV2", "num_hidden_layers", {**_BASE, "intermediate_size": 3072, **_DEBERTA_V3}),
    "t5": ("T5", "num_layers", {**_T5, "d_ff": 3072, "architecture": "T5EncoderModel"}),
    "qwen3-0.6b": ("Qwen3", "num_hidden_layers", {**_QWEN3, "max_position_embeddings": 32_768}),
    "embeddinggemma-300m": ("Gemma3Text", "num_hidden_layers", _GEMMA3),
}
"""Name -> how its classes begin, its field for the number of layers, and the sizes of its base model."""
_EAGER = ("mpnet", "t5", "deberta")
"""Families without SDPA in `transformers`."""
_MIXED = mixed_lengths(32, 510)
SHAPES = {"1×13": [13], "16×128": [128] * 16, "4×512": [512] * 4, "mixed": _MIXED}
_LONG = {"1×16": [16], "8×128": [128] * 8, "2×1024": [1024] * 2, "mixed": _MIXED, "1×8192": [8192]}
SHAPES_OF = {"qwen3-0.6b": _LONG, "embeddinggemma-300m": _LONG}
"""What is measured of decoders, which read longer texts, in the place of `SHAPES`."""
OF_CEILING, OF_SDPA, OF_EAGER, OF_PADDED, OF_SUMMARY, OF_BFLOAT16 = 0.75, 1.15, 1.5, 3.0, 1.2, 1.5
OF_DECODER = {"ceiling": 0.8, "transformers": 1.25, "padded": 1.5}
"""The targets: share of the ceiling, speed of transformers without and with padding, time with statistics,
and speed in eight bits; those of decoders apart."""


def main() -> None:
    """Measure and print."""
    parser = parser_for(__doc__)
    parser.add_argument("--families", type=some_of(tuple(FAMILIES)), default=list(FAMILIES))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--int8", action="store_true", help="measure eight bits, too")
    parser.add_argument("--rounds", type=int, default=5)
    known = tuple(SHAPES | _LONG)
    parser.add_argument("--shapes", type=some_of(known), default=known, help="which of a family's shapes")
    arguments = parser.parse_args()
    tables.print_facts("Machine", machine.facts(arguments.dtype))
    checks = []
    for name in arguments.families:
        with tempfile.TemporaryDirectory() as place:
            written = write(name, Path(place), arguments.dtype, arguments.layers)
            own = SHAPES_OF.get(name, SHAPES)
            shapes = {shape: lengths for shape, lengths in own.items() if shape in arguments.shapes}
            checks += measure(name, written, arguments.dtype, arguments.rounds, shapes, int8=arguments.int8)
    tables.print_checks(checks)


def write(name: str, place: Path, dtype: str, layers: int) -> Written:
    """Save a family's model, and return it with its reference in a precision."""
    prefix, field, sizes = FAMILIES[name]
    written = write_model(place, prefix, **{**sizes, field: layers})
    written.model.to(getattr(torch, dtype))
    if name not in _EAGER:
        written.model.set_attn_implementation("sdpa")
    return written


def measure(
    name: str,
    written: Written,
    dtype: str,
    rounds: int,
    shapes: Mapping[str, Sequence[int]],
    *,
    int8: bool,
) -> list[tables.Check]:
    """Measure one family with texts of these lengths, print its table, and return what is held to a bound."""
    place, precision = written.folder, getattr(torch, dtype)
    backend, plain = (
        TorchBackend(load_checkpoint(place), device="cpu", dtype=dtype, native=native)
        for native in (True, False)
    )
    eight_bits = TorchBackend(load_checkpoint(place), device="cpu", dtype="int8") if int8 else None
    encoder = load_checkpoint(place).encoder.to(precision)
    linears = [module for module in encoder.modules() if isinstance(module, Linear)]
    rows, checks = [], []
    for shape, lengths in shapes.items():
        # Tokens that no family treats in a special way.
        texts = [ids.tolist() for ids in torch.split(torch.randint(5, 100, (sum(lengths),)), list(lengths))]
        widths = {linear.weight.shape[1] for linear in linears}
        inputs = {width: torch.randn(sum(lengths), width, dtype=precision) for width in widths}
        mixed = mixing(encoder.config, lengths, precision) if name in SHAPES_OF else ()
        contestants: dict[str, Callable[[], object]] = {
            "headlight": encoder_pass(backend, texts),
            "plain": encoder_pass(plain, texts),
            "transformers": transformers_pass(written.model, texts),
            "ceiling": partial(products, linears, inputs, mixed),
            "summary": partial(backend.run, with_summary(texts, backend)),
        }
        if eight_bits is not None:
            contestants["int8"] = encoder_pass(eight_bits, texts)
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
                *([tables.ratio(seconds["headlight"], seconds["int8"])] if int8 else []),
            ]
        )
        checks += make_checks(name, shape, seconds)
    header = [
        "",
        "ms",
        "plain",
        "of ceiling",
        "of transformers",
        "summary, time",
        *(["int8"] if int8 else []),
    ]
    title = f"{name}, {backend.info.layers} layers, kernels {backend.info.kernels}"
    tables.print_table(title, header, rows)
    return checks


def products(
    linears: Sequence[Linear], inputs: Mapping[int, Tensor], mixed: Sequence[tuple[Tensor, Tensor]] = ()
) -> None:
    """Run every linear product of a pass; `inputs` (T, in) by their width. `mixed` is what `mixing` makes."""
    for linear in linears:
        F.linear(inputs[linear.weight.shape[1]], linear.weight, linear.bias)
    for queries, keys in mixed:
        torch.bmm(torch.bmm(queries, keys.transpose(1, 2)), keys)


def mixing(config: EncoderConfig, lengths: Sequence[int], dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    """Make queries (H, n, D) and as many keys as one of them sees in the mean, by layer and text."""
    heads, size = config.num_heads, config.head_size
    made = {}
    for window in {config.layer(number).window for number in range(config.num_layers)}:
        for n in set(lengths):
            seen = min(n, window or n) if config.causal else min(n, 2 * window + 1 if window else n)
            keys = max(1, seen // 2) if config.causal and seen == n else seen
            made[window, n] = (
                torch.randn(heads, n, size, dtype=dtype),
                torch.randn(heads, keys, size, dtype=dtype),
            )
    return [made[config.layer(i).window, n] for i in range(config.num_layers) for n in lengths]


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
    padded, decoder = shape == "mixed", name in SHAPES_OF
    of_transformers = OF_PADDED if padded else OF_EAGER if name in _EAGER else OF_SDPA
    if decoder:
        of_transformers = OF_DECODER["padded" if padded else "transformers"]
    of_ceiling = OF_DECODER["ceiling"] if decoder else OF_CEILING
    checks = [
        tables.Check(f"{name}, {shape}: share of ceiling", over("ceiling", "headlight"), of_ceiling),
        tables.Check(
            f"{name}, {shape}: speed / transformers", over("transformers", "headlight"), of_transformers
        ),
    ]
    if "int8" in seconds:
        speed = over("headlight", "int8")
        checks.append(tables.Check(f"{name}, {shape}: speed of int8", speed, OF_BFLOAT16))
    if shape == "16×128":
        summary = over("summary", "headlight")
        checks.append(tables.Check(f"{name}, {shape}: time with summary", summary, OF_SUMMARY, at_most=True))
    return checks


if __name__ == "__main__":
    main()
