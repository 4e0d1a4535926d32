"""How many tokens a batch should have on this device: measured once, at the start, where it can vary."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import cycle, islice

from model.contract import Backend, Batch, Encoding, Want

# Within so much of the best rate, a smaller batch is the better one: its requests wait less.
_NEAR_BEST = 0.95
# The usual size is taken unless it is clearly a bad one: noise must not choose another one on another day.
_CLEARLY_WORSE = 0.85
_ROUNDS = 2


def measure_rates(
    backend: Backend, sample: Sequence[Encoding], want: Want, budgets: Sequence[int], lanes: int
) -> dict[int, float]:
    """Run batches of each size, filled with the sample's sequences over and over: size -> tokens/s.

    All lanes run at once, as under load, where they wait for each other between small batches. The sizes
    take turns, since a machine may be busy for a while; in its turn each runs as many tokens as one batch of
    the largest has, and its best turn counts.
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
    """Choose the middle one of the sizes; where that is clearly worse, the smallest near the best rate."""
    sizes, best = sorted(rates), max(rates.values())
    usual = sizes[len(sizes) // 2]
    if rates[usual] >= _CLEARLY_WORSE * best:
        return usual
    return min(size for size in sizes if rates[size] >= _NEAR_BEST * best)


def _time(pool: Executor, backend: Backend, batch: Batch, times: int, lanes: int) -> float:
    """Run a batch so many times in every lane, all at once; returns the seconds it took."""

    def run(_: int) -> None:
        for _ in range(times):
            backend.run(batch, lanes=lanes)

    start = time.perf_counter()
    list(pool.map(run, range(lanes)))
    return time.perf_counter() - start
