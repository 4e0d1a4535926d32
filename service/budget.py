"""How many tokens a batch should have on this machine: measured once, at the start."""

import math
import time
from collections.abc import Mapping, Sequence
from itertools import cycle, islice

from model.types import Backend, Batch, Encoding, Want

BUDGETS = (256, 512, 1024, 2048)
"""The sizes that are tried on a CPU, in tokens."""
CUDA_BUDGETS = (1024, 2048, 4096, 8192, 16384, 32768)

# Within so much of the best rate, a smaller batch is the better one: its requests wait less.
_NEAR_BEST = 0.95
_TURNS = 12


def measure_rates(
    backend: Backend, sample: Sequence[Encoding], want: Want, budgets: Sequence[int], lanes: int
) -> dict[int, float]:
    """Run batches of each size, filled with the sample's sequences over and over: size -> tokens/s.

    Measured is one lane of `lanes`. The sizes take turns, since a machine may be busy for a while, small ones
    so much more often that all get the same number of tokens; the best run of each counts.
    """
    batches = {}
    for budget in budgets:
        count = max(1, budget * len(sample) // sum(len(encoding) for encoding in sample))
        batches[budget] = Batch.pack(list(islice(cycle(sample), count)), [want] * count)
        backend.run(batches[budget], lanes=lanes)
    seconds = dict.fromkeys(budgets, math.inf)
    for turn in range(_TURNS):
        for budget, batch in batches.items():
            if turn % (budget // min(budgets)) == 0:
                seconds[budget] = min(seconds[budget], _time(backend, batch, lanes))
    return {budget: len(batch.input_ids) / seconds[budget] for budget, batch in batches.items()}


def smallest_near_best(rates: Mapping[int, float]) -> int:
    """Choose the smallest batch within 5 % of the best tokens per second."""
    best = max(rates.values())
    return min(budget for budget, rate in rates.items() if rate >= _NEAR_BEST * best)


def _time(backend: Backend, batch: Batch, lanes: int) -> float:
    start = time.perf_counter()
    backend.run(batch, lanes=lanes)
    return time.perf_counter() - start
