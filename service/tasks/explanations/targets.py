"""What is explained: a score that a model gives to the sequences of one input."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from model.contract import Encoding, FloatArray, HeadInfo, LogitsWant, Output, Similarity, Want
from model.heads.late_interaction import want_vectors
from model.heads.late_interaction_scores import max_sim
from model.heads.scores import scores
from model.heads.similarity import similarities
from service.tasks.embed import EncodePlan
from service.tasks.errors import OptionError
from service.tasks.label import longest_label
from service.tasks.rank import shortest

TargetKind = Literal["similarity", "score", "label"]


@dataclass(frozen=True, slots=True)
class TargetOption:
    """What to explain; a `token` has labels of its own."""

    kind: TargetKind
    label: str | None = None
    """The one that the model predicts if None."""
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The score of one input, and how others are read that run in its place."""

    score: float
    columns: Mapping[str, Any]
    measure: Callable[[Sequence[Output]], float]


class Target(Protocol):
    """A score of the outputs of one input's sequences."""

    @property
    def held_bytes(self) -> int:
        """What the outputs of one sequence take at most, for each of its tokens."""

    @property
    def label_bytes(self) -> int:
        """What the name of its label takes at most in JSON."""

    def check(self, index: int, encodings: Sequence[Encoding], /) -> None:
        """Raise OptionError if an input has no such score."""

    def want(self, encoding: Encoding, /) -> Want:
        """Return what must be computed of each sequence."""

    def read(self, outputs: Sequence[Output], encodings: Sequence[Encoding], /) -> Reading:
        """Read the score."""


@dataclass(frozen=True)
class SimilarityTarget:
    """The similarity of two sentence vectors."""

    plan: EncodePlan
    function: Similarity
    label_bytes: int = 0

    @property
    def held_bytes(self) -> int:
        """A vector, at most for each token."""
        return 4 * self.plan.pooled_size

    def check(self, index: int, encodings: Sequence[Encoding], /) -> None:
        """All have one."""

    def want(self, encoding: Encoding, /) -> Want:
        """A sentence vector."""
        return self.plan.want(encoding)

    def read(self, outputs: Sequence[Output], _: Sequence[Encoding], /) -> Reading:
        """Compare the two."""
        return Reading(self._compare(outputs), {"function": self.function}, self._compare)

    def _compare(self, outputs: Sequence[Output]) -> float:
        first, second = ([output.sentence] for output in outputs)
        found = similarities(self.function, np.stack(first), np.stack(second))  # type: ignore[arg-type]
        return shortest(found[0])[0]


@dataclass(frozen=True)
class InteractionTarget:
    """MaxSim of a query and a document."""

    size: int
    task: str | None
    label_bytes: int = 0

    @property
    def held_bytes(self) -> int:
        """A vector for each token."""
        return 4 * self.size

    def check(self, index: int, encodings: Sequence[Encoding], /) -> None:
        """All have one."""

    def want(self, encoding: Encoding, /) -> Want:
        """The vectors of its tokens."""
        return replace(want_vectors(encoding), task=self.task)

    def read(self, outputs: Sequence[Output], _: Sequence[Encoding], /) -> Reading:
        """Compare the two."""
        return Reading(self._compare(outputs), {"function": "max_sim"}, self._compare)

    @staticmethod
    def _compare(outputs: Sequence[Output]) -> float:
        query, document = (output.heads["token_vectors"] for output in outputs)
        return shortest(max_sim(query, [document]))[0]


@dataclass(frozen=True)
class LabelTarget:
    """The logit of a label: of the whole input, or of one of its tokens. A ranker has only one label."""

    head: HeadInfo
    task: str | None
    option: TargetOption

    @property
    def held_bytes(self) -> int:
        """The logits, at most of each token."""
        return 4 * len(self.head.labels)

    @property
    def label_bytes(self) -> int:
        """Of the longest label."""
        return longest_label(self.head)

    def check(self, index: int, encodings: Sequence[Encoding], /) -> None:
        """Raise OptionError for a token that an input does not have."""
        token, count = self.option.token, len(encodings[0])
        if token is not None and not -count <= token < count:
            raise OptionError(
                lambda name: (
                    f"{name('target.token')} is {token} and {name(f'inputs.{index}')} has {count} tokens: "
                    f"choose from {-count} to {count - 1}."
                ),
                option="target.token",
                actual=token,
                allowed=[-count, count - 1],
            )

    def want(self, _: Encoding, /) -> Want:
        """The logits."""
        return Want(task=self.task, heads=(LogitsWant(),))

    def read(self, outputs: Sequence[Output], encodings: Sequence[Encoding], /) -> Reading:
        """Choose the label, by name or the largest, and read its logit."""
        token = None if self.option.token is None else self.option.token % len(encodings[0])

        def logits(some: Sequence[Output]) -> FloatArray:
            (output,) = some
            return output.heads["logits"] if token is None else output.heads["token_logits"][token]

        found = logits(outputs)
        labels = self.head.labels
        label = int(found.argmax()) if self.option.label is None else labels.index(self.option.label)
        chances = scores(found, self.head)
        columns: dict[str, Any]
        if self.option.kind == "score":
            sigmoid = scores(found, replace(self.head, activation="sigmoid"))
            columns = {"sigmoid": shortest(sigmoid[label : label + 1])[0]}
        else:
            columns = {"label": labels[label], "probability": shortest(chances[label : label + 1])[0]}
        if token is not None:
            columns["token"] = token

        def measure(some: Sequence[Output]) -> float:
            return shortest(logits(some)[label : label + 1])[0]

        return Reading(measure(outputs), columns, measure)
