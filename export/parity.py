"""Compares two backends that should give the same results, in every output, on the same inputs.

Every input runs alone and in batches of mixed lengths. The comparison covers every hidden state, every map of
every layer in three kinds of weights, every statistic but those of argmax, and the sentence vectors. One
group of inputs runs with interventions.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from model.contract import (
    STATISTICS,
    AttentionWant,
    Backend,
    Batch,
    Encoding,
    FloatArray,
    LogitsWant,
    ModelInfo,
    Output,
    SentenceWant,
    SummaryWant,
    Want,
    Weights,
)
from model.encoder.interventions import BlockedEdges, HeadScale, Interventions

Quantity = Literal[
    "hidden states",
    "attention",
    "scores",
    "value norms",
    "summaries",
    "sentence vectors",
    "1 - sentence cosine",
    "logits",
]
"""The quantities that are compared. Differences of attention are absolute; others are divided by the largest
number (in each hidden state, by its own largest) if that is more than 1: float32 has seven digits of it."""

INTERVENTIONS = "interventions"
"""The name of the inputs that run with interventions, which depend on their lengths."""
_WEIGHTS: dict[Weights, Quantity] = {
    "probability": "attention",
    "score": "scores",
    "value_norm": "value norms",
}
# A masked key has a score below this; its exact value means nothing.
_HIDDEN = -1e30
# Numbers that one run may return: 128 MiB.
_ROOM = 2**25
# The most tokens of a random sequence, and of a mixed batch.
_LONGEST = 2048
_BATCH_TOKENS = 1024


@dataclass(frozen=True)
class Row:
    """One line of the table: the largest difference among `inputs`, and its `bound` (None: no bound).

    `rounding` is how far PyTorch's own float32 is from float64, if `largest` is a difference from float64.
    """

    inputs: str
    what: Quantity
    largest: float
    bound: float | None
    rounding: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the difference is within its bound; NaN and infinity never are."""
        return self.largest <= self.bound if self.bound is not None else bool(np.isfinite(self.largest))


def compare(
    reference: Backend,
    written: Backend,
    inputs: Mapping[str, Sequence[Encoding]],
    bounds: Mapping[str, Mapping[Quantity, float]],
) -> list[Row]:
    """Run groups of inputs on both backends, alone and mixed; `bounds` is keyed by the groups' names."""
    rows = []
    with ThreadPoolExecutor(1) as beside:
        for name, encodings in inputs.items():
            largest: dict[Quantity, float] = {}
            for batch in _batches(encodings):
                changed = name == INTERVENTIONS
                for what, difference in _differences(reference, written, batch, beside, changed=changed):
                    # `max` would ignore a NaN: count it as infinite.
                    known = difference if np.isfinite(difference) else np.inf
                    largest[what] = max(largest.get(what, 0.0), known)
            rows += [Row(name, what, number, bounds[name].get(what)) for what, number in largest.items()]
    return rows


def table(rows: Sequence[Row]) -> str:
    """Format the comparison as aligned text, one line per row."""
    head = ("what", "inputs", "largest difference", "bound", "ok", "")
    lines = [
        (
            row.what,
            row.inputs,
            f"{row.largest:.2g}",
            "" if row.bound is None else f"{row.bound:.3g}",
            _word(row),
            "" if row.rounding is None else f"from float64; float32: {row.rounding:.2g}",
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in (head, *lines)
    )


def _word(row: Row) -> str:
    if not row.ok:
        return "NO"
    return "" if row.bound is None else "yes"


def as_data(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the comparison as JSON-serializable data."""
    known = (
        {name: value for name, value in asdict(row).items() if name != "rounding" or value} for row in rows
    )
    return [{**facts, "ok": row.ok} for facts, row in zip(known, rows, strict=True)]


def random_encodings(info: ModelInfo, vocabulary: int, segments: int) -> list[Encoding]:
    """Make sequences of random tokens, the same in every call.

    Their lengths are the powers of 2, each of these plus and minus 1, and the longest that the model reads,
    2,048 at most: maps of 32,768 tokens would take gigabytes for each head.
    """
    longest = min(info.max_length, _LONGEST)
    random = np.random.default_rng(0)
    near = {2**power + step for power in range(10) for step in (-1, 0, 1)}
    lengths = sorted({length for length in near if 1 <= length < longest} | {longest})
    return [
        Encoding(
            token_ids=random.integers(0, vocabulary, length).tolist(),
            segment_ids=np.sort(random.integers(0, max(1, segments), length)).tolist(),
            tokens=[""] * length,
            offsets=[(0, 0)] * length,
            word_ids=[None] * length,
            special=[place in (0, length - 1) for place in range(length)],
            truncated=False,
            original_length=length,
        )
        for length in lengths
    ]


def _batches(encodings: Sequence[Encoding]) -> Iterator[list[Encoding]]:
    """Yield each encoding alone, then all of them in batches of mixed lengths."""
    yield from ([encoding] for encoding in encodings)
    batch: list[Encoding] = []
    for i in np.random.default_rng(1).permutation(len(encodings)):
        if batch and sum(map(len, batch)) + len(encodings[i]) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(encodings[i])
    if batch:
        yield batch


def _differences(
    reference: Backend, written: Backend, batch: Sequence[Encoding], beside: Executor, *, changed: bool
) -> Iterator[tuple[Quantity, float]]:
    """Run one batch on both backends, side by side, as often as needed to compare every output."""
    changes = [_interventions(reference.info, len(encoding)) if changed else None for encoding in batch]
    for usual in _wants(reference.info, batch):
        wants = [replace(want, interventions=one) for want, one in zip(usual, changes, strict=True)]
        packed = Batch.pack(batch, wants)
        expected = beside.submit(reference.run, packed)
        found = written.run(packed)
        for want, ours, theirs in zip(wants, expected.result(), found, strict=True):
            yield from _compare(want, ours, theirs)


def _interventions(info: ModelInfo, length: int) -> Interventions:
    """Choose interventions of each kind that a graph runs; one of them leaves a row without keys."""
    layers, heads = info.attention_layers, info.heads
    head, token, others = length % heads, length // 2, tuple(range(length))
    layer, following = (layers[number % len(layers)] for number in (length, length + 1))
    return Interventions(
        heads=(HeadScale(layer, (head,), 0.5), HeadScale(following, (heads - 1,), mean=True)),
        edges=(
            BlockedEdges((layers[0], layer), (head,), others, (token,)),
            BlockedEdges((layers[-1],), (0,), (token,), others),
        ),
    )


def _wants(info: ModelInfo, batch: Sequence[Encoding]) -> Iterator[list[Want]]:
    """Yield the wants of each run, which are split so that one run returns at most _ROOM numbers."""
    heads = tuple(range(info.heads))
    numbers = sum(len(encoding) ** 2 for encoding in batch) * info.heads
    at_once = max(1, _ROOM // numbers)
    attending = info.attention_layers
    parts = [attending[i : i + at_once] for i in range(0, len(attending), at_once)]
    pooling = SentenceWant(info.pooling, (info.layers,), info.normalize)
    classifies = info.head is not None and info.head.labels
    # First without observations: a graph may then use different products (int8).
    first_want = Want(
        sentence=pooling,
        token_layers=tuple(range(info.layers + 1)),
        heads=(LogitsWant(),) if classifies else (),
    )
    yield [first_want for _ in batch]
    first, *others = parts
    yield [
        Want(
            sentence=pooling,
            attention=AttentionWant(first, heads),
            summary=SummaryWant(
                attending,
                heads,
                tuple(np.flatnonzero(encoding.special).tolist()),
                _CONTINUOUS,
            ),
        )
        for encoding in batch
    ]
    for weights in _WEIGHTS:
        for layers in others if weights == "probability" else parts:
            yield [Want(attention=AttentionWant(layers, heads, weights)) for _ in batch]


# Rounding may change which of two nearly equal weights is the largest, so argmax statistics are left out.
_CONTINUOUS = tuple(name for name in STATISTICS if not name.startswith("argmax"))


def _compare(want: Want, ours: Output, theirs: Output) -> Iterator[tuple[Quantity, float]]:
    """Compare the outputs of one sequence."""
    if ours.sentence is not None:
        yield "sentence vectors", _distance("sentence vectors", ours.sentence, theirs.sentence)
        yield "1 - sentence cosine", _below_one(ours.sentence, theirs.sentence)
    if ours.tokens is not None:
        states = [None] * len(ours.tokens) if theirs.tokens is None else theirs.tokens
        for one, other in zip(ours.tokens, states, strict=True):
            yield "hidden states", _distance("hidden states", one, other)
    for name, logits in ours.heads.items():
        yield "logits", _distance("logits", logits, theirs.heads.get(name))
    if ours.attention is not None and want.attention is not None:
        what = _WEIGHTS[want.attention.weights]
        yield what, _distance(what, ours.attention, theirs.attention)
    if ours.summary is not None:
        for name, statistic in ours.summary.items():
            yield "summaries", _distance("summaries", statistic, (theirs.summary or {}).get(name))


def _distance(what: Quantity, ours: FloatArray, theirs: FloatArray | None) -> float:
    """Return the largest difference between two arrays; infinity if they cannot be compared."""
    if theirs is None or ours.shape != theirs.shape:
        return np.inf
    if what == "scores":
        visible = ours > _HIDDEN
        if not np.array_equal(visible, theirs > _HIDDEN):
            return np.inf
        ours, theirs = ours[visible], theirs[visible]
    difference = float(np.abs(ours - theirs).max(initial=0.0))
    unit = 1.0 if what == "attention" else max(1.0, float(np.abs(ours).max(initial=0.0)))
    return difference / unit


def _below_one(ours: FloatArray, theirs: FloatArray | None) -> float:
    """Return how far the cosine of two vectors is below 1."""
    if theirs is None or ours.shape != theirs.shape:
        return np.inf
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return max(0.0, 1.0 - float(a @ b) / norms) if norms else float(np.abs(a - b).max())
