"""The parts of a similarity: a number for each unit of one text with each of the other, whose sum it is.

The cosine of two sums over tokens, u = Σᵢ uᵢ and v = Σⱼ vⱼ, is Σᵢⱼ uᵢ·vⱼ / (|u||v|); MaxSim is a sum over the
tokens of the query, each of which has one token of the document.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.choices import ContributionsWant
from model.contract import FloatArray, ModelInfo, Output, PoolingMode, Similarity
from model.heads.pooling import ADDITIVE
from service.tasks.errors import Names, OptionError
from service.tasks.explanations.plan import (
    Arrays,
    ExplainOptions,
    Explanation,
    Found,
    Method,
    expect,
    item_columns,
)
from service.tasks.explanations.targets import InteractionTarget, SimilarityTarget
from service.tasks.explanations.units import Units, describe

Floats = NDArray[np.float64]

_PRODUCTS: tuple[Similarity, ...] = ("cosine", "dot")
_BLOCK_NUMBERS = 2**20
"""Products in one block: eight megabytes."""
_SCORE_DECIMALS = 7


@dataclass(frozen=True)
class SumParts:
    """The parts of the similarity of two sentence vectors, each a sum over tokens."""

    target: SimilarityTarget
    bias: bool
    """Whether layers after the pooling add something, whatever the text is."""

    method: Method = "parts"
    each: str = "unit"

    def further(self, _: Sequence[Units], /) -> tuple[int, int]:
        """Count nothing: the sequences of the texts themselves are enough."""
        return 0, 0

    def explain(self, index: int, several: Sequence[Units], /) -> Explanation:
        """Plan one pair of texts, which run apart."""
        units = describe(several, bias=self.bias)
        encodings = [one.encoding for one in several]
        shape = tuple(len(units) + self.bias for units in several)
        held = 8 * self.target.plan.pooled_size * sum(len(encoding) + 1 for encoding in encodings)
        wants = [replace(self.target.want(one), heads=(ContributionsWant(),)) for one in encodings]

        return Explanation(
            encodings,
            wants,
            item_columns(index, several, units),
            expect(several, units, {"parts": shape}, held),
            partial(self._find, several),
        )

    def effects(self, several: Sequence[Units], arrays: Arrays, /) -> NDArray[np.float32]:
        """Return what each unit of the texts adds: the sum of its parts."""
        return _sums(several, arrays["parts"])

    def _find(self, several: Sequence[Units], outputs: Sequence[Output]) -> Found:
        reading = self.target.read(outputs, ())
        rows, others = (
            _of_units(output.heads["contributions"], units, bias=self.bias)
            for output, units in zip(outputs, several, strict=True)
        )
        norms = 1.0
        if self.target.function == "cosine":
            sizes = [float(np.linalg.norm(parts.sum(0))) for parts in (rows, others)]
            norms = max(sizes[0] * sizes[1], 1e-24)
        parts = np.empty((len(rows), len(others)), np.float32)
        step = max(1, _BLOCK_NUMBERS // max(1, len(others)))
        for start in range(0, len(rows), step):
            parts[start : start + step] = rows[start : start + step] @ others.T / norms
        return {**reading.columns, "score": reading.score}, {"parts": parts}


def _of_units(contributions: Floats, units: Units, *, bias: bool) -> Floats:
    """Sum the contributions (N + 1, E) of each unit's tokens: (units, E), and a last row with a `bias`."""
    starts = [*units.starts[:-1], len(contributions) - 1]
    found: Floats = np.add.reduceat(contributions, starts)
    return found if bias else found[:-1]


@dataclass(frozen=True)
class InteractionParts:
    """The parts of MaxSim: each token of the query is paired with the document's token of largest product."""

    target: InteractionTarget

    method: Method = "parts"
    each: str = "unit"

    def further(self, _: Sequence[Units], /) -> tuple[int, int]:
        """Count nothing: the sequences of the texts themselves are enough."""
        return 0, 0

    def explain(self, index: int, several: Sequence[Units], /) -> Explanation:
        """Plan one pair of a query and a document."""
        units = describe(several)
        encodings = [one.encoding for one in several]
        shape = tuple(map(len, several))
        held = self.target.held_bytes * sum(len(one.vector_rows) for one in encodings) + 8 * math.prod(shape)
        wants = [self.target.want(encoding) for encoding in encodings]

        def find(outputs: Sequence[Output]) -> Found:
            query, document = (output.heads["token_vectors"] for output in outputs)
            parts = _interactions(query, document, [_unit_of_rows(units) for units in several], shape)
            if self.target.interaction.mean:
                parts /= max(1, len(query))
            # Not rounded to float32, in which a sum over dozens of tokens is coarser than its parts.
            score = round(float(parts.sum()), _SCORE_DECIMALS)
            return {"function": self.target.function, "score": score}, {"parts": parts.astype(np.float32)}

        expected = expect(several, units, {"parts": shape}, held)
        return Explanation(encodings, wants, item_columns(index, several, units), expected, find)

    def effects(self, several: Sequence[Units], arrays: Arrays, /) -> NDArray[np.float32]:
        """Return what each unit of the texts adds: the sum of its parts."""
        return _sums(several, arrays["parts"])


def _sums(several: Sequence[Units], parts: NDArray[Any]) -> NDArray[np.float32]:
    """Return the sum of each row and of each column of parts that belongs to a unit of the texts."""
    first, second = several
    return np.concatenate([parts.sum(1)[first.of_text], parts.sum(0)[second.of_text]])


def _unit_of_rows(units: Units) -> NDArray[np.int64]:
    """Return the unit of each token that has a vector."""
    rows = np.array(units.encoding.vector_rows, np.int64)
    return np.searchsorted(np.array(units.starts), rows, side="right") - 1


def _interactions(
    query: FloatArray,
    document: FloatArray,
    units: Sequence[NDArray[np.int64]],
    shape: tuple[int, ...],
) -> Floats:
    parts = np.zeros(shape)
    step = max(1, _BLOCK_NUMBERS // max(1, len(document)))
    for start in range(0, len(query) if len(document) else 0, step):
        products = query[start : start + step].astype(np.float64) @ document.T.astype(np.float64)
        best = products.argmax(1)
        cells = (units[0][start : start + step], units[1][best])
        np.add.at(parts, cells, products[np.arange(len(products)), best])
    return parts


def why_no_parts(
    options: ExplainOptions, info: ModelInfo, modes: Sequence[PoolingMode], function: Similarity
) -> OptionError | None:
    """Say why the similarity of two sentence vectors is no sum over tokens; None if it is one."""

    def refusal(say: Callable[[Names], str], option: str, **members: Any) -> OptionError:
        return OptionError(say, option=option, kind="unsupported", **members)

    def occlude(name: Names) -> str:
        return f'set {name("method")} to "occlusion"'

    if not info.exposes_tokens:
        return refusal(
            lambda name: (
                "This model runs as an ONNX graph that returns one vector for each text, which has no parts: "
                f"{occlude(name)}, serve the model's weights, or serve the folder that `headlight export "
                "MODEL FOLDER` makes from them."
            ),
            "method",
        )
    if function not in _PRODUCTS:
        return refusal(
            lambda name: (
                f'{name("function")} is "{function}", a distance, which is not a sum over tokens: choose '
                f"{' or '.join(_PRODUCTS)}, or {occlude(name)}."
            ),
            "function",
            allowed=[*_PRODUCTS],
        )
    single = next((mode for mode in modes if mode not in ADDITIVE), None)
    if single is not None:
        whose = "" if options.pooling is not None else ", the model's own"
        return refusal(
            lambda name: (
                f'{name("pooling")} is "{single}"{whose}, which uses the vector of one token, so the '
                f"other tokens contribute nothing: choose {', '.join(sorted(ADDITIVE))} or mean_max, or "
                f"{occlude(name)}."
            ),
            "pooling",
            allowed=[*sorted(ADDITIVE), "mean_max"],
        )
    if info.nonlinear is not None:
        return refusal(
            lambda name: (
                f"This model has a layer with the activation {info.nonlinear} after its pooling, so its "
                f"vectors are not sums over tokens: {occlude(name)}."
            ),
            "method",
        )
    return None
