"""The parts of a similarity: a number for each unit of one text with each of the other, which sum to it.

The cosine of two sums over tokens, u = Σᵢ uᵢ and v = Σⱼ vⱼ, is Σᵢⱼ uᵢ·vⱼ / (|u||v|); MaxSim is a sum over the
tokens of the query, each of which has one token of the document.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract import ContributionsWant, Encoding, FloatArray, ModelInfo, Output, Similarity
from model.heads.contributions import ADDITIVE
from model.heads.late_interaction import want_vectors
from model.heads.similarity import similarities
from service.tasks.embed import EmbedOptions, EncodePlan, plan_encode
from service.tasks.errors import OptionError
from service.tasks.explain import OF_VECTORS, ExplainOptions, Explanation, expect, item_columns, units_of
from service.tasks.prompts import choose_task
from service.tasks.rank import shortest
from service.tasks.units import Units

Floats = NDArray[np.float64]
Found = tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]

_PRODUCTS: tuple[Similarity, ...] = ("cosine", "dot")
_BLOCK_NUMBERS = 2**20
"""Products in one block: eight megabytes."""
_SCORE_DECIMALS = 7


@dataclass(frozen=True)
class SumParts:
    """The parts of the similarity of two sentence vectors, each a sum over tokens."""

    options: ExplainOptions
    plan: EncodePlan
    function: Similarity
    bias: bool
    """Whether something is added whatever the text is."""

    def explain(self, index: int, encodings: Sequence[Encoding]) -> Explanation:
        """Plan one pair of texts, which run apart."""
        several = units_of(self.options, index, encodings)
        item = item_columns(index, several, bias=self.bias)
        shape = tuple(len(units) + self.bias for units in several)
        held = 8 * self.plan.pooled_size * sum(len(encoding) + 1 for encoding in encodings)
        wants = [replace(self.plan.want(one), heads=(ContributionsWant(),)) for one in encodings]

        def found(outputs: Sequence[Output]) -> Found:
            return self._found(several, outputs)

        return Explanation(
            encodings, wants, item, expect(several, item["units"], {"parts": shape}, held), found
        )

    def _found(self, several: Sequence[Units], outputs: Sequence[Output]) -> Found:
        first, second = ([output.sentence] for output in outputs)
        score = similarities(self.function, np.stack(first), np.stack(second))[0]  # type: ignore[arg-type]
        rows, others = (
            _of_units(output.heads["contributions"], units, bias=self.bias)
            for output, units in zip(outputs, several, strict=True)
        )
        norms = 1.0
        if self.function == "cosine":
            sizes = [float(np.linalg.norm(parts.sum(0))) for parts in (rows, others)]
            norms = max(sizes[0] * sizes[1], 1e-24)
        parts = np.empty((len(rows), len(others)), np.float32)
        step = max(1, _BLOCK_NUMBERS // len(others))
        for start in range(0, len(rows), step):
            parts[start : start + step] = rows[start : start + step] @ others.T / norms
        return {"function": self.function, "score": shortest(score)[0]}, {"parts": parts}


def _of_units(contributions: Floats, units: Units, *, bias: bool) -> Floats:
    """Add up the contributions (N + 1, E) of the tokens of each unit: (units, E), and the bias."""
    starts = [*units.starts[:-1], len(contributions) - 1]
    found: Floats = np.add.reduceat(contributions, starts)
    return found if bias else found[:-1]


@dataclass(frozen=True)
class InteractionParts:
    """The parts of MaxSim: each token of the query has one token of the document, of the largest product."""

    options: ExplainOptions
    task: str | None
    size: int

    def explain(self, index: int, encodings: Sequence[Encoding]) -> Explanation:
        """Plan one pair of a query and a document."""
        several = units_of(self.options, index, encodings)
        item = item_columns(index, several)
        shape = tuple(map(len, several))
        held = 4 * self.size * sum(len(one.vector_rows) for one in encodings) + 8 * math.prod(shape)
        wants = [replace(want_vectors(encoding), task=self.task) for encoding in encodings]

        def found(outputs: Sequence[Output]) -> Found:
            query, document = (output.heads["token_vectors"] for output in outputs)
            parts = _interactions(query, document, [_unit_of_rows(units) for units in several], shape)
            # Not rounded to float32, of which a sum over dozens of tokens is coarser than its parts.
            score = round(float(parts.sum()), _SCORE_DECIMALS)
            return {"function": "max_sim", "score": score}, {"parts": parts.astype(np.float32)}

        return Explanation(
            encodings, wants, item, expect(several, item["units"], {"parts": shape}, held), found
        )


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


def plan_parts(options: ExplainOptions, info: ModelInfo) -> SumParts | InteractionParts:
    """Check that a similarity is a sum over tokens; raises OptionError with a way out."""
    task = choose_task(info, options.task)
    if info.head is not None and info.head.kind == "late_interaction":
        options.check_unused("a model of late interaction", *OF_VECTORS)
        return InteractionParts(options, task, info.head.size or 0)
    function = options.function or info.similarity
    chosen = EmbedOptions(pooling=options.pooling, dimensions=options.dimensions)
    plan = plan_encode(chosen, info, task)
    why = _why_not(options, info, chosen, function)
    if why is not None:
        raise why
    return SumParts(options, plan, function, info.dense)


def _why_not(
    options: ExplainOptions, info: ModelInfo, chosen: EmbedOptions, function: Similarity
) -> OptionError | None:
    """Say why a similarity has no parts, None if it has."""

    def refusal(say: Callable[[Callable[[str], str]], str], option: str, **members: Any) -> OptionError:
        return OptionError(say, option=option, kind="unsupported", **members)

    if not info.exposes_tokens:
        return refusal(
            lambda _: (
                "This model runs as a graph that returns one vector for each text, which has no parts: serve "
                "the model's weights, or the folder that `headlight export MODEL FOLDER` makes of them."
            ),
            "model",
        )
    if function not in _PRODUCTS:
        return refusal(
            lambda name: (
                f'{name("function")} is "{function}", a distance, which is no sum over tokens: choose '
                f"{' or '.join(_PRODUCTS)}."
            ),
            "function",
            allowed=[*_PRODUCTS],
        )
    single = next((mode for mode in chosen.modes(info) if mode not in ADDITIVE), None)
    if single is not None:
        whose = "" if options.pooling is not None else ", the model's own"
        return refusal(
            lambda name: (
                f'{name("pooling")} is "{single}"{whose}, which takes the vector of one token, so that '
                f"the others have no part in it: choose {', '.join(sorted(ADDITIVE))} or mean_max."
            ),
            "pooling",
            allowed=[*sorted(ADDITIVE), "mean_max"],
        )
    if info.nonlinear is not None:
        return refusal(
            lambda _: (
                f"This model has a layer with the activation {info.nonlinear} after its pooling, so that its "
                "vectors are no sums over tokens: choose another model."
            ),
            "model",
        )
    return None
