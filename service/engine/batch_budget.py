"""How many tokens a batch should have on this device: measured once at startup, where there is a choice."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import cycle, islice

from model.contract import Backend, Batch, Encoding, Want

# At this fraction of the best rate, a smaller batch is better: its requests wait less.
_NEAR_BEST = 0.95
# The usual size is kept unless clearly worse: noise must not change the choice from one start to the next.
_CLEARLY_WORSE = 0.85
_ROUNDS = 2


def measure_rates(
    backend: Backend, sample: Sequence[Encoding], want: Want, budgets: Sequence[int], lanes: int
) -> dict[int, float]:
    """Measure batches of each size, filled by repeating the sample's sequences: size -> tokens/s.

    All lanes run at once, as under load, where they contend between small batches. The sizes take turns, in
    case other programs load the machine for a while; in each turn a size runs as many tokens as one batch of
    the largest size, and its best turn counts.
    """
    batches = {}
    for budget in budgets:
        count = max(1, budget * len(sample) // sum(len(encoding) for encoding in sample))
        batches[budget] = Batch.pack(list(islice(cycle(sample), count)), [want] * count)
        backend.run(batches[budget], lanes=lanes)
    rates = dict.fromkeys(budgets, 0.0)
    with ThreadPoolExecutor(lanes) as pool:
        for _ in range(_ROUNDS):
            for budget, batch in batches.items():
                times = max(budgets) // budget
                tokens = lanes * times * len(batch.input_ids)
                rates[budget] = max(rates[budget], tokens / _time(pool, backend, batch, times, lanes))
    return rates


def steady_budget(rates: Mapping[int, float]) -> int:
    """Choose the middle size or, if that is clearly worse, the smallest size near the best rate."""
    sizes, best = sorted(rates), max(rates.values())
    usual = sizes[len(sizes) // 2]
    if rates[usual] >= _CLEARLY_WORSE * best:
        return usual
    return min(size for size in sizes if rates[size] >= _NEAR_BEST * best)


def _time(pool: Executor, backend: Backend, batch: Batch, times: int, lanes: int) -> float:
    """Run a batch `times` times in every lane concurrently; returns the elapsed seconds."""

    def run(_: int) -> None:
        for _ in range(times):
            backend.run(batch, lanes=lanes)

    start = time.perf_counter()
    list(pool.map(run, range(lanes)))
    return time.perf_counter() - start
