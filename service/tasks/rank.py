"""Texts in the order in which they match a query, by each kind of model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal

import numpy as np

from model.contract import FloatArray, HeadInfo, ModelInfo, Output
from model.heads.hybrid_scores import HybridWeights
from model.tokenization.tokenizer import Truncation
from service.engine.engine import Engine
from service.tasks.attend import AttendOptions
from service.tasks.errors import OptionError
from service.tasks.heads import check_head, choose_from

Method = Literal["cross-encoder", "late-interaction", "bi-encoder", "hybrid"]


@dataclass(frozen=True, slots=True)
class RankOptions:
    """Texts to rank by how well they match a query."""

    query: str
    texts: Sequence[str]
    top_n: int | None = None
    """How many to return, the best first; all if None."""
    return_texts: bool = False
    raw_scores: bool = False
    """Whether to return the logits of a cross-encoder."""
    attend: AttendOptions | None = None
    """The attention to return for each pair; only for cross-encoders."""
    prompt_name: str | None = None
    prompt: str | None = None
    """The text that stands before the query, or in its place in the chat template of pairs."""
    truncation: Truncation = field(default_factory=Truncation)
    weights: HybridWeights | None = None
    """How much each kind of a hybrid model's vectors counts; if None, only the sentence vectors do."""
    text_tokens: int | None = None
    """How many tokens of each text are read, from its start, special ones not counted."""
    cut: Sequence[str] | None = None
    """The texts as far as they are read, if `text_tokens` cuts them."""

    @property
    def read(self) -> Sequence[str]:
        """The texts that the model reads."""
        return self.texts if self.cut is None else self.cut

    @property
    def count(self) -> int:
        """How many texts are returned."""
        return min(self.top_n or len(self.texts), len(self.texts))

    def check_method(self, method: Method) -> None:
        """Raise OptionError for options that only models of pairs have."""
        asked = {
            "raw_scores": self.raw_scores,
            "attention": self.attend is not None,
            "prompt_name": self.prompt_name is not None,
            "prompt": self.prompt is not None,
        }
        option = next((option for option, given in asked.items() if given), None)
        if option is not None and method != "cross-encoder":
            raise OptionError(
                lambda name: (
                    f"{name(option)} is only for cross-encoders, which read a query and a text as a pair, "
                    f"but the method of this model is {method}: leave it out."
                ),
                option=option,
                kind="unsupported",
            )


def choose_method(
    engine: Engine, engines: Mapping[str, Engine], weights: HybridWeights | None = None
) -> Method:
    """Return how a model ranks texts; raises OptionError for one that does not, or not with `weights`.

    The error says why, and names those of the served `engines` that do.
    """
    if weights is not None:
        check_head(engine, engines, "hybrid", needs="weights")
        return "hybrid"
    method = _method_of(engine.info)
    if method is not None:
        return method
    names = [name for name, other in engines.items() if ranks(other.info)]
    others = f", or {choose_from(names)}" if names else ""
    head = engine.info.head
    if head is not None and head.kind == "classification":
        labels = len(head.labels)
        reason = f"classifies texts into {labels} classes, which do not rank them: send the texts to /predict"
    else:
        reason = f"does not rank texts: {engine.info.no_ranking}"
    raise OptionError(
        lambda _: f'The model "{engine.name}" {reason}{others}.', option="model", kind="unsupported"
    )


def ranks(info: ModelInfo) -> bool:
    """Whether a model can put texts into an order."""
    return _method_of(info) is not None


def _method_of(info: ModelInfo) -> Method | None:
    match info.head:
        case HeadInfo(kind="classification", labels=labels):
            return "cross-encoder" if len(labels) == 1 else None
        case HeadInfo(kind="late_interaction"):
            return "late-interaction"
        case _:
            return "bi-encoder" if info.no_ranking is None else None


class Best:
    """The `count` texts with the largest logits so far; of equal logits, those with the smallest index.

    Keeps only their outputs: the maps of all texts could take gigabytes.
    """

    def __init__(self, count: int) -> None:
        self.outputs: dict[int, Output] = {}
        self._count = count
        self._heap: list[tuple[float, int]] = []

    def add(self, index: int, logit: float, output: Output) -> None:
        """Take the logit of a text, and its output if it is among the best."""
        heappush(self._heap, (logit, -index))
        self.outputs[index] = output
        if len(self._heap) > self._count:
            _, worst = heappop(self._heap)
            del self.outputs[-worst]

    def ranked(self) -> list[tuple[int, float]]:
        """Return the indices and logits, best first."""
        return [(-index, logit) for logit, index in sorted(self._heap, reverse=True)]


def ranked(scores: FloatArray, count: int, *, logits: FloatArray | None = None) -> list[tuple[int, float]]:
    """Return the indices and scores of the `count` best texts, best first, ties by index.

    Scores that are computed from `logits` are ordered by these: above 17 every sigmoid in float32 is 1.
    """
    order = np.argsort(-(scores if logits is None else logits), kind="stable")[:count]
    return list(zip(order.tolist(), shortest(scores[order]), strict=True))


def shortest(scores: FloatArray) -> Sequence[float]:
    """Convert float32 to numbers that JSON writes with the fewest digits that parse to the same float32."""
    return [float(str(score)) for score in scores]
