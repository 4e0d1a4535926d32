"""Estimates how long sequences take here: measured at the start, and corrected by every batch.

A sequence of n tokens takes n · (a + b · n) seconds on all cores: a for the products of a token, b for each
token that it attends to. Deviations from that, such as for long texts that do not fit into the caches, are
learned separately for each range of lengths from one power of two to the next.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

# The weight of one batch in the estimates, and the largest factor by which a batch may seem to be off.
_WEIGHT, _MOST = 0.2, 8.0
_LENGTHS = 32
# Sequences of lengths that have not run yet may turn out to be faster than what was measured at the start.
_UNSEEN = 2 / 3


class Speed:
    """Estimates for one model.

    Threads read and write these numbers without a lock: a lost update changes an estimate only slightly.
    """

    def __init__(self, per_token_s: float = 0.0, per_pair_s: float = 0.0) -> None:
        """Begin with a and b; both are 0 if nothing has been measured, and then every estimate is 0."""
        self.per_token_s = per_token_s
        self.per_pair_s = per_pair_s
        self._overall = 1.0
        self._factors: list[float | None] = [None] * _LENGTHS
        self._fastest: list[float | None] = [None] * _LENGTHS

    def fit(self, short: tuple[float, float], long: tuple[float, float]) -> None:
        """Set a and b from two measurements, each of them a length in tokens and the seconds per token."""
        (few, of_few), (many, of_many) = short, long
        pairs = (of_many - of_few) / (many - few) if many > few else 0.0
        self.per_pair_s = max(0.0, pairs)
        self.per_token_s = max(of_few - self.per_pair_s * few, of_few / 2)

    def seconds(self, length: int) -> float:
        """Estimate the time that a sequence takes together with others that keep all cores busy."""
        factor = self._factors[length.bit_length()]
        return self._plain(length) * (self._overall if factor is None else factor)

    def least_seconds(self, lengths: Iterable[int]) -> float:
        """Return the least time that sequences could take, if they ran as fast as the fastest so far."""
        known = [factor for factor in self._fastest if factor is not None]
        least = min([_UNSEEN, *known])
        total = 0.0
        for length, number in Counter(lengths).items():
            factor = self._fastest[length.bit_length()]
            total += number * self._plain(length) * (least if factor is None else min(factor, 1.0))
        return total

    def record(self, lengths: Sequence[int], seconds: float) -> None:
        """Record a batch, with the time it took or would have taken on all cores."""
        shares: dict[int, float] = {}
        plain = 0.0
        for length in lengths:
            plain += self._plain(length)
            size = length.bit_length()
            shares[size] = shares.get(size, 0.0) + self.seconds(length)
        expected = sum(shares.values())
        if not expected:
            return
        off = min(max(seconds / expected, 1 / _MOST), _MOST)
        self._overall += (seconds / plain - self._overall) * _WEIGHT
        for size, share in shares.items():
            factor = self._factors[size]
            known = self._overall if factor is None else factor
            self._factors[size] = known * (1 + _WEIGHT * share / expected * (off - 1))
        if len(shares) == 1:
            fastest = self._fastest[size]
            self._fastest[size] = min(seconds / plain, seconds / plain if fastest is None else fastest)

    def _plain(self, length: int) -> float:
        return length * (self.per_token_s + self.per_pair_s * length)
