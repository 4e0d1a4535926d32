"""How large the batches of one model are, and how fast they run: what its lanes share."""

from dataclasses import dataclass

# Of about the last ten batches.
_WEIGHT = 0.2


@dataclass(slots=True)
class Pace:
    """`budget` is in tokens; `tokens_per_s` is smoothed, of all lanes together, 0 before the first batch.

    Plain numbers that threads read and write without a lock: a lost update changes an estimate a little.
    """

    budget: int
    tokens_per_s: float = 0.0

    def ran(self, tokens: int, seconds: float, *, lanes: int) -> None:
        """Take in one batch that ran while so many lanes were in use."""
        now = lanes * tokens / max(seconds, 1e-6)
        self.tokens_per_s += (now - self.tokens_per_s) * (_WEIGHT if self.tokens_per_s else 1.0)

    def halve(self, tokens: int) -> None:
        """Make batches smaller than one of so many tokens, which was too large for the memory."""
        self.budget = max(1, min(self.budget, tokens) // 2)
