"""How faithful an explanation is: what the score loses without the units ranked first, and with only these.

Comprehensiveness and sufficiency of DeYoung et al. 2020 (ERASER, §4.2), also for units in random order.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract import Encoding, Output, Want
from service.tasks.errors import OptionError
from service.tasks.explanations.occlusion import leave_out
from service.tasks.explanations.targets import Reading, Target
from service.tasks.explanations.units import Units
from service.tasks.rank import shortest

SHARES = (0.1, 0.2, 0.5)
"""The shares of an input's units that are left out or kept, both texts of a pair together."""
_RANDOM_ORDERS = 3
_SEED = 0
_ORDERS = 1 + _RANDOM_ORDERS
_NAMES = ("comprehensiveness", "sufficiency")


@dataclass(frozen=True)
class Faithfulness:
    """Runs each input again without the first units of each order, and with these alone."""

    target: Target
    mask_token: int | None

    def further(self, several: Sequence[Units]) -> tuple[int, int]:
        """Count the sequences that run for one input, and bound their tokens."""
        runs = _ORDERS * len(SHARES) * len(_NAMES)
        return runs * len(several), runs * sum(len(units.encoding) for units in several)

    def check(self, index: int, several: Sequence[Units]) -> None:
        """Raise OptionError if nothing would be left of an input once all of its units are left out."""
        if self.mask_token is not None:
            return
        for units in several:
            encoding = units.encoding
            left = len(encoding) - sum(units.starts[i + 1] - units.starts[i] for i in units.of_text)
            if left <= encoding.prompt_length:
                raise OptionError(
                    lambda name: (
                        f"Without its units nothing is left of {name(f'inputs.{index}')} that the model "
                        f"could run: leave {name('faithfulness')} out."
                    ),
                    option="faithfulness",
                )

    def runs(self, several: Sequence[Units], effects: NDArray[np.float32]) -> list[Encoding]:
        """Return the sequences to run, given the effect of each unit of the texts."""
        sides = [(side, unit) for side, units in enumerate(several) for unit in units.of_text]
        random = np.random.default_rng(_SEED)
        orders = [np.argsort(-effects, kind="stable")]
        orders += [random.permutation(len(sides)) for _ in range(_RANDOM_ORDERS)]
        found: list[Encoding] = []
        for order in orders:
            for share in SHARES:
                count = math.ceil(share * len(sides))
                for chosen in (order[:count], order[count:]):
                    found += self._without(several, [sides[i] for i in chosen.tolist()])
        return found

    def _without(self, several: Sequence[Units], chosen: Sequence[tuple[int, int]]) -> list[Encoding]:
        tokens: list[list[int]] = [[] for _ in several]
        for side, unit in chosen:
            tokens[side] += range(several[side].starts[unit], several[side].starts[unit + 1])
        both = zip(several, tokens, strict=True)
        return [leave_out(units.encoding, some, self.mask_token) for units, some in both]

    def wants(self, encodings: Sequence[Encoding]) -> list[Want]:
        """Return what must be computed for each sequence."""
        return [self.target.want(encoding) for encoding in encodings]

    def columns(self, reading: Reading, outputs: Sequence[Output]) -> dict[str, Any]:
        """Make the item's column from the outputs of `runs`."""
        losses = reading.losses(outputs).reshape(_ORDERS, len(SHARES), len(_NAMES))
        own, random = losses[0], losses[1:].mean(0)
        column: dict[str, Any] = {"shares": SHARES}
        for i, name in enumerate(_NAMES):
            column[name] = shortest(own[:, i].astype(np.float32))
        for i, name in enumerate(_NAMES):
            column[f"random_{name}"] = shortest(random[:, i].astype(np.float32))
        return column
