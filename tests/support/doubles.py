"""The real backend with something added: it fails on a word, waits at a gate, and counts what it ran.

`python -m tests.support.doubles` is the service with a backend that fails on a word and hangs on another,
and a tokenizer that panics at pairs.
"""

import json
import sys
import threading
import time
from collections.abc import Sequence
from functools import cache

import numpy as np
from tokenizers import Tokenizer

from model.checkpoints.source import resolve
from model.contract import Backend, Batch, ChunksWant, FloatArray, ModelInfo, Output
from model.progress import Progress
from model.tokenization.tokenizer import TextTokenizer
from service.app import create_app
from service.engine.engine import Engine
from service.engine.lane_scheduler import LaneScheduler
from service.http.server import open_listeners, serve
from service.lifecycle import VERSION
from service.protocols.endpoints import ENDPOINTS
from service.settings import Settings, read_settings
from service.telemetry.logs import set_up_logs
from service.telemetry.metrics import Metrics
from tests.references.checkpoints import MINILM
from tests.support.product import minilm

POISON = "arsenic"
"""A word of one token, at which `Watched` fails."""
HANG = "molasses"
"""A word of one token, at which `Hanging` hangs."""
DRAG = "treacle"
"""A word at which `Hanging` takes DRAG_S seconds longer than it was measured to."""
DRAG_S = 2.0


@cache
def tokenizer() -> TextTokenizer:
    """The tokenizer of the embedded model, at its own limit."""
    return TextTokenizer.from_file(resolve(MINILM) / "tokenizer.json", max_length=256)


def panicking() -> TextTokenizer:
    """One of its own that panics at pairs, really: their template names a special token that it has not.

    A model folder with such a template is refused, so it is put in afterwards.
    """
    file = resolve(MINILM) / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    text, missing = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[X]", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [text], "pair": [text, missing], "special_tokens": {}}
    broken = Tokenizer.from_str(json.dumps({**content, "post_processor": template}))
    whole = Tokenizer.from_file(str(file))
    made = TextTokenizer(whole, 256)
    whole.post_processor = broken.post_processor
    return made


class Watched:
    """The real backend, watched."""

    def __init__(self, inner: Backend | None = None) -> None:
        self.inner = inner or minilm()
        self.batches: list[list[int]] = []
        """The lengths of the sequences of every batch that was begun."""
        self.shared: list[int] = []
        """Among how many lanes the cores were shared, of every batch that was begun."""
        self.wants: list[int] = []
        """How many sequences of each batch wanted attention."""
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        """Set whenever a batch has begun."""
        self.poison = tokenizer().encode([POISON])[0].token_ids[1]

    def forget(self) -> None:
        """Forget what was run so far, the warm-up for one."""
        self.batches.clear()
        self.shared.clear()
        self.wants.clear()
        self.entered.clear()

    @property
    def info(self) -> ModelInfo:
        return self.inner.info

    @property
    def lanes(self) -> int:
        return self.inner.lanes

    @property
    def budget(self) -> int:
        return self.inner.budget

    def cost(self, lengths: Sequence[int]) -> int:
        return self.inner.cost(lengths)

    def finish(self, means: FloatArray, want: ChunksWant) -> FloatArray:
        return self.inner.finish(means, want)

    def trim_memory(self) -> None:
        self.inner.trim_memory()

    @property
    def prepares_short(self) -> bool:
        return self.inner.prepares_short

    def end_helpers(self) -> None:
        self.inner.end_helpers()

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        self.batches.append([int(n) for n in np.diff(batch.cu_seqlens)])
        self.shared.append(lanes)
        self.wants.append(sum(want.attention is not None for want in batch.wants))
        self.entered.set()
        assert self.gate.wait(20), "nobody opened the gate"
        if self.poison in batch.input_ids:
            raise RuntimeError("poison")
        return self.inner.run(batch, lanes=lanes, progress=progress)


class Hanging(Watched):
    """Also hangs on a word, until it is freed, and is slow at another; a service guards only its runners."""

    def __init__(self) -> None:
        super().__init__()
        self.freed = threading.Event()
        self._hang, self._drag = (tokenizer().encode([word])[0].token_ids[1] for word in (HANG, DRAG))

    @property
    def prepares_short(self) -> bool:
        return False

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        if self._hang in batch.input_ids:
            self.freed.wait(60)
        if self._drag in batch.input_ids:
            time.sleep(DRAG_S)
        return super().run(batch, lanes=lanes, progress=progress)


class Exclusive(Watched):
    """Counts how often two runs of the same `busy` lock were under way at once."""

    def __init__(self, busy: threading.Lock, overlaps: list[int]) -> None:
        super().__init__()
        self.busy = busy
        self.seen = overlaps

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        if not self.busy.acquire(blocking=False):
            self.seen.append(1)
            return super().run(batch, lanes=lanes, progress=progress)
        try:
            time.sleep(0.005)
            return super().run(batch, lanes=lanes, progress=progress)
        finally:
            self.busy.release()


def engine(
    backend: Backend,
    metrics: Metrics | None = None,
    *,
    name: str = "mini",
    max_batch_tokens: int | None = 1024,
    max_queue_tokens: int | None = 65_536,
    scheduler: LaneScheduler | None = None,
    stall_s: float = 30.0,
    timeout_s: float | None = None,
    texts: TextTokenizer | None = None,
) -> Engine:
    """An engine of the embedded model that is not started yet."""
    metrics = metrics or Metrics(VERSION, ENDPOINTS)
    metrics.add_model(name, backend.info)
    return Engine(
        name,
        texts or tokenizer(),
        backend,
        metrics,
        max_batch_tokens=max_batch_tokens,
        max_queue_tokens=max_queue_tokens,
        scheduler=scheduler or LaneScheduler(),
        stall_s=stall_s,
        timeout_s=timeout_s,
    )


def poisoned(settings: Settings, metrics: Metrics) -> dict[str, Engine]:
    """Engines for a service whose model fails on a word, hangs on another, and panics at pairs."""
    failing = engine(
        Hanging(),
        metrics,
        name=MINILM,
        max_batch_tokens=settings.max_batch_tokens or 1024,
        max_queue_tokens=settings.max_queue_tokens or 65_536,
        stall_s=2 * settings.patience_s,
        timeout_s=settings.request_timeout_s,
        texts=panicking(),
    )
    return {MINILM: failing}


def main() -> int:
    """Serve a model that fails on words; the settings are those of the service."""
    settings = read_settings()
    set_up_logs(settings.log_level, settings.log_format)
    app = create_app(settings, poisoned)
    state = app.state.service
    serve(app, state, open_listeners(state.settings))
    return 0 if state.failure is None else int(state.exit_code)


if __name__ == "__main__":
    sys.exit(main())
