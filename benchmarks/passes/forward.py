"""Measures one forward pass on the CPU, compared with its matrix products and with `transformers`.

For several batch shapes it measures, in tokens per second without padding:

- headlight: `TorchBackend.run`, from token ids to normalised sentence vectors, nothing padded;
- side by side: the same in two halves of equal length, each in its own thread with half of the cores,
  until both are done, as the service runs many batches;
- plain: the same on PyTorch's kernels alone, if there are native kernels for the processor;
- encoder: headlight without pooling and without sorting the texts, from token ids to the last hidden state;
- transformers: the reference with `attn_implementation="sdpa"`, in the same dtype, its pooler taken
  off, padded to the longest text and given the attention mask, from token ids to the last hidden state;
- F.linear and prepacked: the linear products of the pass alone, with their biases and nothing else, as
  `F.linear` runs them, which is the ceiling, and with weights in oneDNN's blocked layout, which is faster:
  so the share of the ceiling may be larger than 1. The faster of the two is called linear;
- products: linear and the products of the attention (QKᵀ and the weighted sum of V) together.

All take turns in a shuffled order within each round, after a warm-up. Ratios are formed within a round;
the median over the rounds is shown, with the quartiles in brackets. A ratio is of speeds: 0.5 of the
ceiling means that the linear products alone take half the time of the pass. In bfloat16 some shares of the
ceiling have a target.

With `--data` (an STS file) it also prints how far the sentence vectors are from those in float32.

    python -m benchmarks.passes.forward [--dtype float32] [--pairs 15] [--data sts-dev.tsv]
"""

import argparse
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.kit import machine, tables
from benchmarks.kit.batches import pack_encodings, pack_ids, random_ids
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.turns import take_turns
from benchmarks.kit.workloads import mixed_lengths, read_sts
from model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from model.checkpoints.source import EMBEDDED, resolve
from model.contract import FloatArray
from model.encoder.linear import Linear
from model.encoder.packing import Packing
from model.encoder.plan import Plan
from model.progress import Progress
from model.pytorch.backend import TorchBackend

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
_LANES = 2
_ACCURACY_BATCH = 64
"""Texts in one batch when accuracy is measured."""
SHARES = {"32×128": 0.60, "256×16": 0.70, "256 mixed": 0.60}
"""The targets for the share of the ceiling in bfloat16."""
COSINE = 0.9999
"""The lowest allowed cosine between a text's vectors in bfloat16 and in float32."""


@dataclass(frozen=True)
class Shape:
    """A batch to measure: its name and the length in tokens of each of its texts."""

    name: str
    lengths: list[int]

    @property
    def tokens(self) -> int:
        """Count the real tokens."""
        return sum(self.lengths)


def main() -> None:
    """Measure and print."""
    arguments = parse_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    folder, dtype = resolve(arguments.model), arguments.dtype
    backend = TorchBackend(load_checkpoint(folder), device="cpu", dtype=dtype)
    on_torch = TorchBackend(load_checkpoint(folder), device="cpu", dtype=dtype, native=False)
    plain = load_checkpoint(folder)  # of its own: the backend lays its weights out anew
    reference = load_transformers(plain.folder.layout.transformer, _DTYPES[dtype])

    tables.print_facts(
        "Machine",
        [
            *machine.facts(dtype),
            ("model", arguments.model),
            ("kernels", backend.info.kernels or "PyTorch's"),
        ],
    )
    shapes = make_shapes(plain.tokenizer.max_length)
    measured = {
        shape.name: measure(shape, (backend, on_torch), plain, reference, dtype, arguments.pairs)
        for shape in shapes
    }
    print_speeds(shapes, measured)
    print_ratios(shapes, measured, arguments.pairs)
    checks = [share_check(name, measured[name]) for name in SHARES]
    if arguments.data is not None:
        lowest = print_accuracy(backend, folder, arguments.data, arguments.sentences)
        checks.append(tables.Check("cosine to float32, lowest", [lowest], COSINE, digits=6))
    if dtype == "bfloat16":
        tables.print_checks(checks)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--model", default=EMBEDDED, help="the embedded model, a folder or a hub name")
    parser.add_argument("--dtype", default="bfloat16", choices=list(_DTYPES))
    parser.add_argument("--pairs", type=int, default=15, help="rounds in which all take their turn")
    parser.add_argument("--threads", type=int, help="cores used (default: as PyTorch finds them)")
    parser.add_argument("--data", type=Path, help="an STS file, for the accuracy")
    parser.add_argument("--sentences", type=int, default=1000, help="how many of its sentences")
    return parser.parse_args()


def make_shapes(limit: int) -> list[Shape]:
    """List the batches: equal lengths from a lone short text to the longest, and texts of mixed length."""
    longest = min(512, limit)
    return [
        Shape("32×128", [min(128, limit)] * 32),
        Shape("256×16", [16] * 256),
        Shape(f"8×{longest}", [longest] * 8),
        Shape("1×12", [12]),
        Shape("256 mixed", mixed_lengths(256, limit)),
    ]


def load_transformers(folder: Path, dtype: torch.dtype) -> torch.nn.Module:
    """Load the reference without its pooler, whose result is not used."""
    # Imported here: by now `benchmarks` has told it to stay off the network.
    from transformers import AutoModel  # noqa: PLC0415
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

    disable_progress_bar()
    reference: torch.nn.Module = AutoModel.from_pretrained(folder, attn_implementation="sdpa", dtype=dtype)
    if "pooler" in dict(reference.named_children()):
        reference.register_module("pooler", None)
    return reference.eval()


def measure(
    shape: Shape,
    backends: tuple[TorchBackend, TorchBackend],
    plain: Checkpoint,
    reference: torch.nn.Module,
    dtype: str,
    rounds: int,
) -> dict[str, list[float]]:
    """Time all contestants on one shape, in seconds per pass; `backends`: with and without native kernels."""
    backend, on_torch = backends
    cls_id, sep_id = plain.tokenizer.encode([""])[0].token_ids
    texts = random_ids(shape.lengths, plain.encoder.config.vocab_size, cls_id, sep_id)
    with torch.inference_mode(), ThreadPoolExecutor(_LANES) as pool:
        contestants: dict[str, Callable[[], object]] = {
            "headlight": partial(backend.run, pack_ids(texts, backend.info)),
            "plain": partial(on_torch.run, pack_ids(texts, backend.info)),
            **lanes_pass(backend, texts, pool),
            "encoder": encoder_pass(backend, texts),
            "transformers": transformers_pass(reference, texts),
            **linear_products(plain, shape.tokens, _DTYPES[dtype]),
            "attention": attention_products(plain, shape.lengths, _DTYPES[dtype]),
        }
        seconds = take_turns(contestants, rounds)
    seconds["linear"] = seconds[linear_by(seconds)]
    seconds["products"] = [a + b for a, b in zip(seconds["linear"], seconds.pop("attention"), strict=True)]
    return seconds


def lanes_pass(
    backend: TorchBackend, texts: Sequence[Sequence[int]], pool: Executor
) -> dict[str, Callable[[], object]]:
    """Prepare the pass in parts side by side; none with fewer texts than parts.

    This thread runs no part: its later passes would be limited to the cores of that part.
    """
    if len(texts) < _LANES:
        return {}
    ordered = sorted(texts, key=len)
    parts = [pack_ids(ordered[lane::_LANES], backend.info) for lane in range(_LANES)]
    return {"side by side": lambda: list(pool.map(partial(backend.run, lanes=_LANES), parts))}


def encoder_pass(backend: TorchBackend, texts: Sequence[Sequence[int]]) -> Callable[[], object]:
    """Prepare the bare encoder: packed ids, sorted by length, to the last hidden state.

    A single short text runs as the backend runs it, with what it keeps prepared.
    """
    ordered = sorted(texts, key=len)
    ids = torch.tensor([i for text in ordered for i in text])
    last = Plan({backend.info.layers})
    short, numbers = backend.short_passes, ids.numpy()
    if len(texts) == 1 and short is not None and short.takes(numbers):
        return partial(short.run, numbers, np.zeros_like(numbers), Progress())

    def run() -> object:
        packing = Packing.of(len(text) for text in ordered)
        return backend.encoder(ids, torch.zeros_like(ids), packing, last)

    return run


def transformers_pass(reference: torch.nn.Module, texts: Sequence[Sequence[int]]) -> Callable[[], object]:
    """Prepare the reference: one batch, padded to its longest text, with its mask."""
    longest = max(len(text) for text in texts)
    ids = torch.zeros(len(texts), longest, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for i, text in enumerate(texts):
        ids[i, : len(text)] = torch.tensor(text)
        mask[i, : len(text)] = 1
    return lambda: reference(input_ids=ids, attention_mask=mask)


def linear_products(plain: Checkpoint, tokens: int, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """Prepare every linear product of the pass, in two ways, on random inputs (T, in)."""
    layers = [module for module in plain.encoder.modules() if isinstance(module, Linear)]
    weights = [
        (layer.weight.to(dtype), None if layer.bias is None else layer.bias.to(dtype)) for layer in layers
    ]
    packed = [(torch.ops.mkldnn._reorder_linear_weight(weight, None), bias) for weight, bias in weights]
    inputs = {width: torch.randn(tokens, width, dtype=dtype) for width in {w.shape[1] for w, _ in weights}}
    widths = [weight.shape[1] for weight, _ in weights]

    def by_linear() -> None:
        for width, (weight, bias) in zip(widths, weights, strict=True):
            F.linear(inputs[width], weight, bias)

    def by_prepacked() -> None:
        for width, (weight, bias) in zip(widths, packed, strict=True):
            torch.ops.mkldnn._linear_pointwise(inputs[width], weight, bias, "none", [], "")

    return {"F.linear": by_linear, "prepacked": by_prepacked}


def attention_products(plain: Checkpoint, lengths: Sequence[int], dtype: torch.dtype) -> Callable[[], object]:
    """Prepare QKᵀ and the weighted sum of V in all layers, texts of equal length together."""
    config = plain.encoder.config
    operands: list[tuple[Tensor, Tensor, Tensor]] = []
    for run in Packing.of(sorted(lengths)).runs:
        shape = (run.count, config.num_heads, run.length)
        q, k = (torch.randn(*shape, config.head_size, dtype=dtype) for _ in range(2))
        operands.append((q, k.transpose(-2, -1), torch.rand(*shape, run.length, dtype=dtype)))

    def run_all() -> None:
        for _ in range(config.num_layers):
            for q, k, weights in operands:
                torch.matmul(q, k)
                torch.matmul(weights, q)  # q stands in for v: the same shape

    return run_all


def linear_by(seconds: dict[str, list[float]]) -> str:
    """Name the faster way to run the linear products."""
    return min(("F.linear", "prepacked"), key=lambda name: float(np.median(seconds[name])))


def print_speeds(shapes: Sequence[Shape], measured: dict[str, dict[str, list[float]]]) -> None:
    """Print the medians in thousands of tokens per second."""
    columns = [
        "headlight",
        "plain",
        "side by side",
        "encoder",
        "transformers",
        "F.linear",
        "prepacked",
        "products",
    ]
    rows = []
    for shape in shapes:
        seconds = measured[shape.name]
        speeds = [
            f"{shape.tokens / float(np.median(seconds[c])) / 1000:.1f}" if c in seconds else ""
            for c in columns
        ]
        rows.append([shape.name, str(shape.tokens), *speeds])
    tables.print_table("Thousand tokens per second, median", ["texts", "tokens", *columns], rows)


def print_ratios(shapes: Sequence[Shape], measured: dict[str, dict[str, list[float]]], rounds: int) -> None:
    """Print how many times as fast one is as the other; first the shares of the ceiling."""
    comparisons = [
        ("headlight", "plain"),
        ("headlight", "transformers"),
        ("headlight", "linear"),
        ("encoder", "linear"),
        ("headlight", "products"),
    ]
    shares, rows = [], []
    for shape in shapes:
        seconds = measured[shape.name]
        ways = [way for way in ("headlight", "side by side") if way in seconds]
        shares.append([shape.name, *(tables.ratio(seconds["F.linear"], seconds[way]) for way in ways)])
        shares[-1] += [""] * (3 - len(shares[-1]))
        ratios = [tables.ratio(seconds[slow], seconds[fast]) for fast, slow in comparisons]
        rows.append([shape.name, *ratios, linear_by(seconds)])
    of_rounds = f"median of {rounds} rounds [quartiles]"
    tables.print_table(f"Share of the ceiling, {of_rounds}", ["texts", "headlight", "side by side"], shares)
    header = ["texts", *(f"{fast} / {slow}" for fast, slow in comparisons), "linear by"]
    tables.print_table(f"Ratios of speed, {of_rounds}", header, rows)


def share_check(name: str, seconds: dict[str, list[float]]) -> tables.Check:
    """Check a shape's share of the ceiling, F.linear's time / the pass's time, against its target."""
    shares = np.divide(seconds["F.linear"], seconds["headlight"]).tolist()
    return tables.Check(f"{name}: share of the ceiling", shares, SHARES[name])


def print_accuracy(backend: TorchBackend, folder: Path, data: Path, count: int) -> float:
    """Compare sentence vectors with those of the same model in float32; returns the lowest cosine."""
    texts = list(dict.fromkeys(s for pair in read_sts(data) for s in (pair.first, pair.second)))[:count]
    exact = TorchBackend(load_checkpoint(folder), device="cpu", dtype="float32")
    tokenizer = load_checkpoint(folder).tokenizer
    cosines = []
    for start in range(0, len(texts), _ACCURACY_BATCH):
        encodings = tokenizer.encode(texts[start : start + _ACCURACY_BATCH])
        batch = pack_encodings(encodings, backend.info)
        for ours, truth in zip(backend.run(batch), exact.run(batch), strict=True):
            cosines.append(cosine(ours.sentence, truth.sentence))
    facts = [("sentences", str(len(cosines))), ("lowest", f"{min(cosines):.6f}")]
    facts += [("median", f"{np.median(cosines):.6f}")]
    tables.print_facts(f"Cosine of sentence vectors, {backend.info.dtype} to float32", facts)
    return min(cosines)


def cosine(a: FloatArray | None, b: FloatArray | None) -> float:
    """Compute the cosine of two vectors in double precision."""
    assert a is not None
    assert b is not None
    x, y = a.astype(np.float64), b.astype(np.float64)
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


if __name__ == "__main__":
    main()
