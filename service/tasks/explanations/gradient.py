"""Integrated gradients: what each unit adds on the way from a text of masks (Sundararajan et al. 2017)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.contract import Encoding, Output, Want
from model.encoder.interventions import GradientPoint
from service.tasks.explanations.plan import Arrays, Explanation, Found, Method, expect, item_columns
from service.tasks.explanations.targets import LabelTarget, Target
from service.tasks.explanations.units import Units, describe
from service.tasks.rank import shortest

Baseline = Literal["mask", "padding"]
"""The token that replaces each token of the texts at the beginning of the line."""
STEPS = 32

# Bytes of an output while it waits: its two arrays, and the objects around them (measured).
_OUTPUT_BYTES = 700


@dataclass(frozen=True)
class IntegratedGradients:
    """Runs each input at the midpoints of `steps` equal parts of a line, and at its ends for their scores.

    Two texts that run apart move one at a time, next to the other as it is: masks in both would make them
    alike. `labels` are the numbers of the labels that the model predicts, one for each input, where these are
    explained.
    """

    target: Target
    token: int
    baseline: Baseline
    steps: int = STEPS
    labels: tuple[int, ...] = ()
    method: Method = "gradient"
    each: str = "step"

    @property
    def predicts(self) -> bool:
        """Whether it still needs the labels that the model predicts; a ranker has only one label."""
        if not isinstance(self.target, LabelTarget) or self.labels:
            return False
        return self.target.option.label is None and len(self.target.head.labels) > 1

    def with_predicted(
        self, inputs: Sequence[Sequence[Encoding]], outputs: Sequence[Output]
    ) -> "IntegratedGradients":
        """Return a plan that has the predicted label of each input, which is one sequence."""
        both = zip(outputs, inputs, strict=True)
        return replace(self, labels=tuple(self.target.read([one], given).label for one, given in both))

    def further(self, several: Sequence[Units], /) -> tuple[int, int]:
        """Count a run of all texts, end to end, for each point, and its tokens there and back."""
        count = len(several) * (self.steps + 1) + 1
        return count, count * GradientPoint.passes * sum(len(units.encoding) for units in several)

    def explain(self, index: int, several: Sequence[Units], /) -> Explanation:
        """Plan one input; raises OptionError."""
        encodings = [units.encoding for units in several]
        self.target.check(index, encodings)
        wants = [self.target.want(encoding) for encoding in encodings]
        points = self._points(encodings, self.labels[index] if self.labels else 0)
        together = _end_to_end(encodings)
        units = describe(several, all_units=False)
        held = self.target.held_bytes * len(together)
        held += len(points) * (_OUTPUT_BYTES + 4 * len(together))
        return Explanation(
            [*encodings, *[together] * len(points)],
            [*wants, *points],
            item_columns(index, several, units) | {"baseline": self.baseline},
            expect(several, units, {"attributions": (len(units["text"]),)}, held, self.target.label_bytes),
            partial(self._find, encodings, units["token_spans"]),
        )

    def _points(self, encodings: Sequence[Encoding], label: int) -> list[Want]:
        """Return the baseline of each text's line, the end that all share, and the midpoints of each line."""
        want, given = self.target.differentiate(encodings, label)
        lines = [replace(given, tokens=tokens, baseline=self.token) for tokens in _moved(encodings)]
        shares = [(number + 0.5) / self.steps for number in range(self.steps)]
        points = [replace(line, share=0.0) for line in lines] + [replace(lines[0], share=1.0)]
        points += [replace(line, share=share) for line in lines for share in shares]
        return [replace(want, gradient=point) for point in points]

    def _find(
        self, encodings: Sequence[Encoding], spans: Sequence[tuple[int, int]], outputs: Sequence[Output]
    ) -> Found:
        count = len(encodings)
        columns = dict(self.target.read(outputs[:count], encodings).columns)
        ends, steps = outputs[count : 2 * count + 1], outputs[2 * count + 1 :]
        *baselines, score = (float(end.heads["value"][0]) for end in ends)
        found = np.array([step.heads["gradient"] for step in steps], np.float64)
        gradients = found.reshape(count, self.steps, -1).mean(1).sum(0)  # (N,)
        added = np.array([gradients[start:stop].sum() for start, stop in spans], np.float64)
        residual = sum(score - baseline for baseline in baselines) - added.sum()
        if "sigmoid" in columns:
            columns["sigmoid"] = shortest(np.exp(-np.logaddexp(0, -np.array([score], np.float32))))[0]
        *columns["baseline_scores"], columns["score"] = shortest(np.array([*baselines, score], np.float32))
        (columns["residual"],) = shortest(np.array([residual], np.float32))
        return columns, {"attributions": added.astype(np.float32)}

    def effects(self, _: Sequence[Units], arrays: Arrays, /) -> NDArray[np.float32]:
        """Return the attributions."""
        found: NDArray[np.float32] = arrays["attributions"]
        return found


def _moved(encodings: Sequence[Encoding]) -> list[tuple[int, ...]]:
    """Return the tokens of each text's words, by their positions among the tokens of all."""
    found, before = [], 0
    for encoding in encodings:
        words = enumerate(encoding.word_ids, before)
        found.append(tuple(token for token, word in words if word is not None))
        before += len(encoding)
    return found


def _end_to_end(encodings: Sequence[Encoding]) -> Encoding:
    """Join the token and segment ids of the texts, one after the other; nothing else is needed."""
    ids, segments = (
        list(chain.from_iterable(getattr(encoding, name) for encoding in encodings))
        for name in ("token_ids", "segment_ids")
    )
    return Encoding(ids, segments, [], [], [], [], truncated=False, original_length=len(ids))
