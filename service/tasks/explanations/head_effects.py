"""What a score loses without each head (Michel et al. 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from model.contract import Encoding, Output
from model.encoder.interventions import HeadScale, Interventions
from service.tasks.explanations.plan import Arrays, Explanation, Found, Method, expect, text_columns
from service.tasks.explanations.targets import Target
from service.tasks.explanations.units import Units


@dataclass(frozen=True)
class HeadEffects:
    """Runs each input once more for each head of each layer, with the output of that head set to 0."""

    target: Target
    layers: int
    heads: int
    method: Method = "heads"
    each: str = "head"

    def further(self, several: Sequence[Units], /) -> tuple[int, int]:
        """Count each sequence once for each head of each layer."""
        count = self.layers * self.heads
        return count * len(several), count * sum(len(units.encoding) for units in several)

    @cached_property
    def _ablations(self) -> list[Interventions]:
        # Layer after layer within each head: every batch then has as many heads of early layers, after which
        # more is left to run, as of late ones, and lanes that run batches side by side end together.
        every = [(layer, head) for head in range(self.heads) for layer in range(self.layers)]
        return [Interventions(heads=(HeadScale(layer, (head,)),)) for layer, head in every]

    def explain(self, index: int, several: Sequence[Units], /) -> Explanation:
        """Plan one input; raises OptionError."""
        encodings = [units.encoding for units in several]
        self.target.check(index, encodings)
        wants = [self.target.want(encoding) for encoding in encodings]
        further = [replace(want, interventions=one) for one in self._ablations for want in wants]
        held = self.target.held_bytes * (1 + len(self._ablations)) * sum(map(len, encodings))
        return Explanation(
            encodings * (1 + len(self._ablations)),
            [*wants, *further],
            text_columns(index, several),
            expect(several, None, {"heads": (self.layers, self.heads)}, held, self.target.label_bytes),
            partial(self._find, encodings),
        )

    def effects(self, _: Sequence[Units], __: Arrays, /) -> NDArray[np.float32]:
        """Raise TypeError: no unit was left out."""
        raise TypeError("an explanation by heads has no units")

    def _find(self, encodings: Sequence[Encoding], outputs: Sequence[Output]) -> Found:
        count = len(encodings)
        reading = self.target.read(outputs[:count], encodings)
        heads = reading.losses(outputs[count:]).astype(np.float32).reshape(self.heads, self.layers)
        return {**reading.columns, "score": reading.score}, {"heads": np.ascontiguousarray(heads.T)}
