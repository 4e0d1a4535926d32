"""How large the batches of one model are, how fast they run, and what a body holds: what its lanes share."""

from dataclasses import dataclass

# Of about the last ten batches, or bodies.
_WEIGHT = 0.2
# A smaller body may be anything: most of it may be its options.
_TELLING_BYTES = 1024
# Texts have tokens of two to eight bytes. Whoever sends others can neither have those of the next clients
# counted as nothing, so that all of them are tokenized at once, nor as so many that they are refused.
_LEAST, _MOST = 1 / 8, 1 / 2


@dataclass(slots=True)
class Pace:
    """`budget` is in tokens; `tokens_per_s` is smoothed, of all lanes together, 0 before the first batch.

    `tokens_per_byte` is that of the bodies of late, as texts are tokenized and cut here. Plain numbers that
    threads read and write without a lock: a lost update changes an estimate a little.
    """

    budget: int
    tokens_per_s: float = 0.0
    tokens_per_byte: float = _LEAST

    def ran(self, tokens: int, seconds: float, *, lanes: int) -> None:
        """Take in one batch that ran while so many lanes were in use."""
        now = lanes * tokens / max(seconds, 1e-6)
        self.tokens_per_s += (now - self.tokens_per_s) * (_WEIGHT if self.tokens_per_s else 1.0)

    def halve(self, tokens: int) -> None:
        """Make batches smaller than one of so many tokens, which was too large for the memory."""
        self.budget = max(1, min(self.budget, tokens) // 2)

    def tokenized(self, tokens: int, body_bytes: int) -> None:
        """Take in how many tokens a body had."""
        if body_bytes >= _TELLING_BYTES:
            seen = min(max(tokens / body_bytes, _LEAST), _MOST)
            self.tokens_per_byte += (seen - self.tokens_per_byte) * _WEIGHT

    def expected_tokens(self, body_bytes: int) -> int:
        """Estimate the tokens of a body by its size; 0 where that tells nothing."""
        return int(body_bytes * self.tokens_per_byte) if body_bytes >= _TELLING_BYTES else 0
