"""How many tokens a batch should have on this machine: measured once, at the start."""

import time
from collections.abc import Mapping, Sequence
from itertools import cycle, islice

from model.types import Backend, Batch, Encoding, Want

BUDGETS = (256, 512, 1024, 2048, 4096)
"""The sizes that are tried, in tokens."""

# Within so much of the best rate, a smaller batch is the better one: its requests wait less.
_NEAR_BEST = 0.95
_REPEATED_TOKENS = 2048


def measure_rates(backend: Backend, sample: Sequence[Encoding], want: Want) -> dict[int, float]:
    """Run batches of each size, filled with the sample's sequences over and over: size -> tokens/s.

    Small batches are over soon and vary more, so they are run more often; the best run counts.
    """
    rates = {}
    for budget in BUDGETS:
        count = max(1, budget * len(sample) // sum(len(encoding) for encoding in sample))
        batch = Batch.pack(list(islice(cycle(sample), count)), [want] * count)
        seconds = min(_time(backend, batch) for _ in range(1 + _REPEATED_TOKENS // budget))
        rates[budget] = len(batch.input_ids) / seconds
    return rates


def smallest_near_best(rates: Mapping[int, float]) -> int:
    """Choose the smallest batch within 5 % of the best tokens per second."""
    best = max(rates.values())
    return min(budget for budget, rate in rates.items() if rate >= _NEAR_BEST * best)


def _time(backend: Backend, batch: Batch) -> float:
    start = time.perf_counter()
    backend.run(batch)
    return time.perf_counter() - start
