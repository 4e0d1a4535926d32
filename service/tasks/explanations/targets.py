"""What is explained: a score that a model gives to the sequences of one input."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from model.choices import Interaction, TokenVectorsWant
from model.contract import (
    Encoding,
    FloatArray,
    HeadInfo,
    LogitsWant,
    Output,
    Similarity,
    Want,
)
from model.encoder.interventions import GradientPoint, Side
from model.heads.late_interaction import want_vectors
from model.heads.late_interaction_scores import max_sim
from model.heads.scores import scores
from model.heads.similarity import paired_similarities
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
    """The score of one input, and how to read the scores of other runs in its place."""

    whole: FloatArray
    """The score, (1,)."""
    columns: Mapping[str, Any]
    measure: Callable[[Sequence[Output]], FloatArray]
    """Returns the scores (R,) of R runs, given their outputs, one run after another."""
    label: int = 0
    """The number of the label, if the score is the logit of one."""

    @property
    def score(self) -> float:
        """The score, as JSON writes it."""
        return shortest(self.whole)[0]

    def losses(self, outputs: Sequence[Output]) -> NDArray[np.float64]:
        """Return by how much the score is larger than the scores of R runs: (R,)."""
        return self.whole.astype(np.float64) - self.measure(outputs)


class Target(Protocol):
    """A score that is computed from the outputs of one input's sequences."""

    @property
    def held_bytes(self) -> int:
        """The most bytes that the outputs of one sequence take, for each of its tokens."""

    @property
    def label_bytes(self) -> int:
        """The most bytes that the name of its label takes in JSON."""

    def check(self, index: int, encodings: Sequence[Encoding], /) -> None:
        """Raise OptionError if an input has no such score."""

    def want(self, encoding: Encoding, /) -> Want:
        """Return what must be computed for each sequence."""

    def read(self, outputs: Sequence[Output], encodings: Sequence[Encoding], /) -> Reading:
        """Read the score."""

    def differentiate(self, encodings: Sequence[Encoding], label: int, /) -> tuple[Want, GradientPoint]:
        """Return what the score is read from, and how; `label` is the logit's label if none was named."""


def _side(encoding: Encoding, skip: int = 0) -> Side:
    return Side(len(encoding), skip, encoding.vector_rows, encoding.unattended)


@dataclass(frozen=True)
class SimilarityTarget:
    """The similarity of two sentence vectors."""

    plan: EncodePlan
    function: Similarity
    label_bytes: int = 0

    @property
    def held_bytes(self) -> int:
        """A vector, for each token at most."""
        return 4 * self.plan.pooled_size

    def check(self, index: int, encodings: Sequence[Encoding], /) -> None:
        """Do nothing: every input has such a score."""

    def want(self, encoding: Encoding, /) -> Want:
        """Return the want of a sentence vector."""
        return self.plan.want(encoding)

    def read(self, outputs: Sequence[Output], _: Sequence[Encoding], /) -> Reading:
        """Compare the two texts."""
        return Reading(self._compare(outputs), {"function": self.function}, self._compare)

    def differentiate(self, encodings: Sequence[Encoding], _: int, /) -> tuple[Want, GradientPoint]:
        """Compare the two texts."""
        wants = [self.want(encoding) for encoding in encodings]
        sides = (
            _side(encoding, want.sentence.skip if want.sentence else 0)
            for encoding, want in zip(encodings, wants, strict=True)
        )
        return wants[0], GradientPoint(tuple(sides), self.function)

    def _compare(self, outputs: Sequence[Output]) -> FloatArray:
        vectors = np.stack([output.sentence for output in outputs])  # type: ignore[misc]
        return paired_similarities(self.function, vectors[::2], vectors[1::2])


@dataclass(frozen=True)
class InteractionTarget:
    """MaxSim of a query and a document, which is 0 if the document has no vector."""

    size: int
    task: str | None
    interaction: Interaction = field(default_factory=Interaction)
    label_bytes: int = 0

    @property
    def function(self) -> str:
        """The name of the score."""
        return "mean_max_sim" if self.interaction.mean else "max_sim"

    @property
    def held_bytes(self) -> int:
        """A vector for each token."""
        return 4 * self.size

    def check(self, index: int, encodings: Sequence[Encoding], /) -> None:
        """Do nothing: every input has such a score."""

    def want(self, encoding: Encoding, /) -> Want:
        """Return the want of the vectors of its tokens."""
        return replace(want_vectors(encoding), task=self.task)

    def read(self, outputs: Sequence[Output], _: Sequence[Encoding], /) -> Reading:
        """Compare the two texts."""
        return Reading(self._compare(outputs), {"function": self.function}, self._compare)

    def differentiate(self, encodings: Sequence[Encoding], _: int, /) -> tuple[Want, GradientPoint]:
        """Compare the two texts."""
        want = Want(task=self.task, heads=(TokenVectorsWant(()),))
        return want, GradientPoint(tuple(map(_side, encodings)), self.function)

    def _compare(self, outputs: Sequence[Output]) -> FloatArray:
        # A text that is left without vectors has the score 0: a loss of 1e9 would say nothing.
        interaction = replace(self.interaction, empty=0.0)
        vectors = [output.heads["token_vectors"] for output in outputs]
        both = zip(vectors[::2], vectors[1::2], strict=True)
        return np.concatenate([max_sim(query, [document], interaction) for query, document in both])


@dataclass(frozen=True)
class LabelTarget:
    """The logit of a label: of the whole input, or of one of its tokens. A ranker has only one label."""

    head: HeadInfo
    task: str | None
    option: TargetOption

    @property
    def held_bytes(self) -> int:
        """The logits, for each token at most."""
        return 4 * len(self.head.labels)

    @property
    def label_bytes(self) -> int:
        """The bytes of the longest label in JSON."""
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
        """Return the want of the logits."""
        return Want(task=self.task, heads=(LogitsWant(),))

    def read(self, outputs: Sequence[Output], encodings: Sequence[Encoding], /) -> Reading:
        """Choose the label, by name or the largest, and read its logit."""
        token = None if self.option.token is None else self.option.token % len(encodings[0])

        def logits(output: Output) -> FloatArray:
            return output.heads["logits"] if token is None else output.heads["token_logits"][token]

        found = logits(outputs[0])
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

        def measure(some: Sequence[Output]) -> FloatArray:
            return np.array([logits(output)[label] for output in some], np.float32)

        return Reading(measure(outputs), columns, measure, label)

    def differentiate(self, encodings: Sequence[Encoding], label: int, /) -> tuple[Want, GradientPoint]:
        """Choose the logit of the label that was named, or else of `label`."""
        (encoding,) = encodings
        if self.option.label is not None:
            label = self.head.labels.index(self.option.label)
        token = None if self.option.token is None else self.option.token % len(encoding)
        return self.want(encoding), GradientPoint((_side(encoding),), label=label, token=token)
