"""One model's batch budget, measured speed and tokens per body byte, shared by its lanes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from service.engine.speed import Speed

# Averages over about the last ten batches or bodies.
_WEIGHT = 0.2
# A smaller batch takes longer per token than the batches of a full queue.
_MIN_TOKENS = 128
# The size of a smaller body predicts nothing: it may be mostly options.
MIN_BODY_BYTES = 1024
# Tokens of natural text have two to eight bytes. The bounds keep one client's unusual bodies from skewing the
# estimate for others: near 0, all their requests would be tokenized at once; too high, they would be refused.
_MIN_PER_BYTE, _MAX_PER_BYTE = 1 / 8, 1 / 2
# The tokens per byte of English, in JSON.
_USUAL_PER_BYTE = 1 / 5


@dataclass(slots=True)
class Throughput:
    """The budget is in tokens; `tokens_per_s` is smoothed over all lanes' larger batches, 0 until measured.

    `tokens_per_byte` is smoothed over recent bodies, after truncation. Threads read and write these numbers
    without a lock: a lost update changes an estimate only slightly.
    """

    budget: int
    tokens_per_s: float = 0.0
    tokens_per_byte: float = _USUAL_PER_BYTE
    speed: Speed = field(default_factory=Speed)

    def seconds(self, tokens: int) -> float:
        """Estimate how long all cores take for a number of tokens; 0 until measured."""
        return tokens / self.tokens_per_s if self.tokens_per_s else 0.0

    def record_batch(self, lengths: Sequence[int], seconds: float, *, lanes: int) -> None:
        """Record a batch of sequences that ran while `lanes` lanes were in use."""
        tokens = sum(lengths)
        if tokens >= _MIN_TOKENS:
            on_all_cores_s = max(seconds, 1e-6) / lanes
            rate = tokens / on_all_cores_s
            self.tokens_per_s += (rate - self.tokens_per_s) * (_WEIGHT if self.tokens_per_s else 1.0)
            self.speed.record(lengths, on_all_cores_s)

    def halve_budget(self, tokens: int) -> None:
        """Halve the budget after a batch of `tokens` tokens ran out of memory."""
        self.budget = max(1, min(self.budget, tokens) // 2)

    def record_tokens(self, tokens: int, body_bytes: int) -> None:
        """Record how many tokens a body contained."""
        if body_bytes >= MIN_BODY_BYTES:
            ratio = min(max(tokens / body_bytes, _MIN_PER_BYTE), _MAX_PER_BYTE)
            self.tokens_per_byte += (ratio - self.tokens_per_byte) * _WEIGHT

    def expected_tokens(self, body_bytes: int) -> int:
        """Estimate a body's tokens from its size; 0 for bodies too small to predict."""
        return int(body_bytes * self.tokens_per_byte) if body_bytes >= MIN_BODY_BYTES else 0
