"""Occlusion: what a score loses without each unit (Zeiler & Fergus 2014; Li et al. 2016)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from model.contract import Encoding, Output
from service.tasks.errors import OptionError
from service.tasks.explanations.plan import Arrays, Explanation, Found, Method, expect, item_columns
from service.tasks.explanations.targets import Target
from service.tasks.explanations.units import Units, describe


@dataclass(frozen=True)
class Occlusion:
    """Runs each input once more for each of its units, without that unit."""

    target: Target
    mask_token: int | None
    """The token that replaces each token of a unit; if None, the tokens are removed."""
    method: Method = "occlusion"
    each: str = "unit"

    def further(self, several: Sequence[Units], /) -> tuple[int, int]:
        """Count one sequence for each unit of the texts."""
        sequences = tokens = 0
        for units in several:
            sequences += len(units.of_text)
            tokens += len(units.of_text) * len(units.encoding)
            if self.mask_token is None:
                tokens -= sum(units.starts[i + 1] - units.starts[i] for i in units.of_text)
        return sequences, tokens

    def explain(self, index: int, several: Sequence[Units], /) -> Explanation:
        """Plan one input; raises OptionError if nothing would be left of it."""
        encodings = [units.encoding for units in several]
        self.target.check(index, encodings)
        sides = [side for side, units in enumerate(several) for _ in units.of_text]
        for units in several:
            spans = (range(units.starts[i], units.starts[i + 1]) for i in units.of_text)
            encodings += [leave_out(units.encoding, span, self.mask_token) for span in spans]
        self._check_left(index, encodings)
        units_found = describe(several, all_units=False)
        wants = [self.target.want(encoding) for encoding in encodings]
        held = self.target.held_bytes * sum(map(len, encodings))
        return Explanation(
            encodings,
            wants,
            item_columns(index, several, units_found)
            | {"replacement": "remove" if self.mask_token is None else "mask"},
            expect(several, units_found, {"attributions": (len(sides),)}, held, self.target.label_bytes),
            partial(self._find, encodings[: len(several)], sides),
        )

    def _find(self, encodings: Sequence[Encoding], sides: Sequence[int], outputs: Sequence[Output]) -> Found:
        whole, others = outputs[: len(encodings)], outputs[len(encodings) :]
        reading = self.target.read(whole, encodings)
        runs: list[Output] = []
        for side, output in zip(sides, others, strict=True):
            runs += [*whole[:side], output, *whole[side + 1 :]]
        effects = reading.losses(runs).astype(np.float32)
        return {**reading.columns, "score": reading.score}, {"attributions": effects}

    def _check_left(self, index: int, encodings: Sequence[Encoding]) -> None:
        if self.mask_token is None and any(len(one) <= one.prompt_length for one in encodings):
            raise OptionError(
                lambda name: (
                    f"Without one of its units, nothing is left of {name(f'inputs.{index}')} that the model "
                    f"could run: choose a smaller {name('unit')}, or send a longer text."
                ),
                option=f"inputs.{index}",
            )

    def effects(self, _: Sequence[Units], arrays: Arrays, /) -> NDArray[np.float32]:
        """Return the attributions."""
        found: NDArray[np.float32] = arrays["attributions"]
        return found


def leave_out(encoding: Encoding, tokens: Collection[int], mask_token: int | None) -> Encoding:
    """Return a sequence without some tokens: they become the mask token, or are removed if it is None."""
    if mask_token is not None:
        ids = encoding.token_ids.copy()
        for token in tokens:
            ids[token] = mask_token
        return replace(encoding, token_ids=ids)
    left_out = frozenset(tokens)
    kept = [token for token in range(len(encoding)) if token not in left_out]
    places = {token: place for place, token in enumerate(kept)}
    return replace(
        encoding,
        token_ids=[encoding.token_ids[token] for token in kept],
        segment_ids=[encoding.segment_ids[token] for token in kept],
        vector_rows=tuple(places[row] for row in encoding.vector_rows if row in places),
    )
