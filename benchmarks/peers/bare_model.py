"""Runs the model without a service, in its own process, which `kit/servers.py` starts.

It reads commands from standard input, one per line, and answers each with a line of JSON. The first line is a
JSON list of texts; the answer, once the model is ready, is the number of tokens of each. The model runs as in
the service with the same environment (`HEADLIGHT_…`). Every text wants what `/encode` returns, the model's
own sentence vector.

- `calibrate`: find the fastest way to feed the model, which `run` then uses;
- `run SECONDS`: run batches one after another; answers the tokens per second;
- `passes COUNT`: run COUNT texts one at a time; answers the milliseconds of each.

Batches are ideal: filled up to a budget of tokens with texts of similar length, so almost nothing is padded.
They run one at a time on all cores, or side by side on a share of the cores each.

    python -m benchmarks.peers.bare_model
"""

import json
import random
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any

from benchmarks.kit.batches import pack_encodings
from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import resolve
from model.contract import Batch, Encoding
from model.pytorch.backend import TorchBackend
from service.settings import read_settings

_BUDGETS = (512, 1024, 2048)
_TRIALS = 2
_TRIAL_S = 1.0


def main() -> None:
    """Load the model and answer commands until the input ends."""
    settings = read_settings()
    checkpoint = load_checkpoint(resolve(next(iter(settings.models.values()))))
    backend = TorchBackend(checkpoint, device=settings.device, dtype=settings.dtype, threads=settings.threads)
    encodings = checkpoint.tokenizer.encode(json.loads(sys.stdin.readline()))
    feeder = Feeder(backend, encodings, backend.lanes)
    say([len(encoding) for encoding in encodings])
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        match command:
            case "calibrate":
                say(feeder.calibrate())
            case "run":
                say(feeder.run(feeder.way, float(argument)))
            case "passes":
                say(feeder.passes(int(argument)))


def say(answer: Any) -> None:
    """Answer one line."""
    print(json.dumps(answer), flush=True)


@dataclass(frozen=True)
class Way:
    """How the model is fed: the largest batch in tokens, and how many batches run side by side."""

    budget: int
    lanes: int


class Feeder:
    """Runs the model on texts that are tokenized and packed in advance."""

    def __init__(self, backend: TorchBackend, encodings: Sequence[Encoding], lanes: int) -> None:
        self._backend = backend
        self._batches = {budget: self._pack(encodings, budget) for budget in _BUDGETS}
        self._alone = cycle([pack_encodings([encoding], backend.info) for encoding in encodings])
        self._ways = [Way(budget, n) for n in sorted({1, lanes}) for budget in _BUDGETS]
        self.way = self._ways[-1]

    def calibrate(self) -> dict[str, int]:
        """Try every way in turns, and keep the one with the most tokens per second.

        The first turn of each does not count, because oneDNN generates code for new shapes.
        """
        rates = dict.fromkeys(self._ways, 0.0)
        for trial in range(1 + _TRIALS):
            for way in self._ways:
                rate = self.run(way, _TRIAL_S)
                rates[way] = max(rates[way], rate) if trial else 0.0
        self.way = max(rates, key=lambda way: rates[way])
        return asdict(self.way)

    def run(self, way: Way, seconds: float) -> float:
        """Run batches for a time; returns the tokens per second of all lanes together."""
        batches, taking, rates = cycle(self._batches[way.budget]), threading.Lock(), []

        def work() -> None:
            tokens, start = 0, time.perf_counter()
            while (passed := time.perf_counter() - start) < seconds:
                with taking:
                    batch = next(batches)
                self._backend.run(batch, lanes=way.lanes)
                tokens += len(batch.input_ids)
            rates.append(tokens / passed)

        # This thread is the first lane: it loaded the model, and so has the threads that help with a product.
        # With those of another thread beside them they would be more than cores, and sleep between products.
        others = [threading.Thread(target=work) for _ in range(way.lanes - 1)]
        for other in others:
            other.start()
        work()
        for other in others:
            other.join()
        return sum(rates)

    def passes(self, count: int) -> list[float]:
        """Run the next texts one at a time; returns the milliseconds of each."""
        milliseconds = []
        for _ in range(count):
            batch = next(self._alone)
            start = time.perf_counter()
            self._backend.run(batch)
            milliseconds.append((time.perf_counter() - start) * 1000)
        return milliseconds

    def _pack(self, encodings: Sequence[Encoding], budget: int) -> list[Batch]:
        """Fill batches with texts of similar length, then shuffle, so that any part is representative."""
        groups: list[list[Encoding]] = [[]]
        for encoding in sorted(encodings, key=len):
            if groups[-1] and self._backend.cost([len(e) for e in (*groups[-1], encoding)]) > budget:
                groups.append([])
            groups[-1].append(encoding)
        random.Random(0).shuffle(groups)  # noqa: S311
        return [pack_encodings(group, self._backend.info) for group in groups]


if __name__ == "__main__":
    main()
