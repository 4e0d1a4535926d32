"""The requests of a simulation: their times, sizes and clients.

Most requests are small and some are 256 times as large: the number of texts is k with a probability that
falls as k^-1.5, from 1 to 256 (two fifths are single texts, the mean is 12). The lengths of texts are those
of the workload `mixed` (`kit/workloads.py`). Clients have shares of the traffic that are Pareto with
α = 1.5.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.kit.workloads import mixed_lengths

MOST_TEXTS = 256
_TEXTS_EXPONENT = 1.5
_MAX_LENGTH = 256
_POOL = 1 << 16
_CLIENT_ALPHA = 1.5
# A fifth of the time, in bursts of half a second on average, the rate is twice the mean.
_BURST_S, _CALM_S = 0.5, 2.0
_BURST_RATE = 2.0

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Sizes:
    """How large requests are: their texts, and the tokens of all of them."""

    texts: Integers
    tokens: Integers

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Traffic:
    """Requests in order of arrival, in seconds; `clients` says who sends each, counted from 0."""

    arrivals: Floats
    sizes: Sizes
    clients: Integers


def single_sizes(requests: int, rng: np.random.Generator) -> Sizes:
    """Draw requests of one text each."""
    return Sizes(np.ones(requests, np.int64), rng.choice(_lengths(), requests))


def mixed_sizes(requests: int, rng: np.random.Generator) -> Sizes:
    """Draw requests of 1 to 256 texts."""
    counts = np.arange(1, MOST_TEXTS + 1)
    weights = counts**-_TEXTS_EXPONENT
    texts = rng.choice(counts, requests, p=weights / weights.sum())
    ends = np.cumsum(texts)
    lengths = rng.choice(_lengths(), ends[-1])
    return Sizes(texts, np.add.reduceat(lengths, ends - texts))


def poisson(requests: int, rate: float, rng: np.random.Generator) -> Floats:
    """Draw independent arrivals (Poisson) with a mean rate per second."""
    return np.cumsum(rng.exponential(1 / rate, requests))


def bursty(requests: int, rate: float, rng: np.random.Generator) -> Floats:
    """Draw arrivals of a Markov-modulated Poisson process: two rates, each for exponential times."""
    calm_rate = (_CALM_S + _BURST_S - _BURST_S * _BURST_RATE) / _CALM_S
    changes = 64 + 4 * int(requests / rate / (_BURST_S + _CALM_S))
    lasting = rng.exponential(1.0, changes) * np.tile([_CALM_S, _BURST_S], changes // 2 + 1)[:changes]
    rates = rate * np.tile([calm_rate, _BURST_RATE], changes // 2 + 1)[:changes]
    # Where the expected number of arrivals is the clock, they come one a unit on average.
    clock, seconds = (np.concatenate([[0.0], np.cumsum(x)]) for x in (lasting * rates, lasting))
    return np.interp(np.cumsum(rng.exponential(1.0, requests)), clock, seconds)


ARRIVALS: dict[str, Callable[[int, float, np.random.Generator], Floats]] = {
    "Poisson": poisson,
    "bursty": bursty,
}


def draw_clients(requests: int, clients: int, rng: np.random.Generator) -> Integers:
    """Draw the client of each request: a few clients send most of them."""
    shares = rng.pareto(_CLIENT_ALPHA, clients) + 1
    return rng.choice(clients, requests, p=shares / shares.sum())


def _lengths() -> Integers:
    return np.asarray(mixed_lengths(_POOL, _MAX_LENGTH), np.int64)
