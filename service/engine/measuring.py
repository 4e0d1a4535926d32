"""What is measured once at the start: how fast the model is."""

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from model.contract import AttentionWant, Backend, Batch, Encoding, ModelInfo, SentenceWant, Want
from model.errors import Stopped
from model.progress import Progress
from model.tokenization.tokenizer import TextTokenizer
from service.engine.speed import Speed
from service.engine.throughput import Throughput
from service.sharing.scoreboard import PER_PAIR, PER_TOKEN, Counters

_FEMTO = 1e15
# Typical lengths of sentences and paragraphs; all different, because equal lengths run faster together.
_SAMPLE_WORDS = (5, 8, 11, 15, 20, 27, 38, 60)
_SHORT_WORDS = 30
_WARM_WORDS = 512
# The text that shows what attention costs: the first of these of which a layer takes less than a second.
_LONG_WORDS, _LONG_S = (2048, 512, 128), 1.0
# How many passes a measurement is the least of, and after how many seconds no other one begins.
_PASSES, _REPEATED_S = 5, 0.25


def plain_want(info: ModelInfo) -> Want:
    """Return what a request for sentence vectors wants."""
    return Want(SentenceWant(modes=info.pooling, layers=(info.layers,)))


def short_text(tokenizer: TextTokenizer, info: ModelInfo, words: int = _SHORT_WORDS) -> Encoding:
    """Return a text of at most `words` words, and of half as many as the model reads."""
    # Not longer than the model reads: the truncator is only created for a client's overlong text.
    (encoding,) = tokenizer.encode(["word " * tokenizer.fitting(min(info.max_length // 2, words))])
    return encoding


def warm_up(backend: Backend, tokenizer: TextTokenizer, lanes: int) -> None:
    """Run each kind of work once, short and long, so that no client pays for first-run costs.

    The long text has a bounded number of words: a longer one would prepare nothing more, and on a model that
    reads thousands of tokens it would delay the start by minutes.
    """
    info, plain = backend.info, plain_want(backend.info)
    attention = AttentionWant(layers=(info.layers - 1,), heads=(0,))
    wants = [plain]
    wants += [replace(plain, attention=attention)] if info.exposes_attention else []
    wants += [replace(plain, task=task) for task in info.tasks[:1]]
    for words in (1, _WARM_WORDS):
        encodings = [short_text(tokenizer, info, words)] * 2
        for want in wants:
            for shares in {1, lanes}:
                backend.run(Batch.pack(encodings, [want, want]), lanes=shares)
    backend.run(Batch.pack([short_text(tokenizer, info)], [plain]))


def measure_speed(backend: Backend, tokenizer: TextTokenizer) -> Speed:
    """Measure a batch of short texts and a long text, each on all cores.

    The long text is stopped after a second: the layers that it has gone through tell how long all take.
    """
    sample = tokenizer.encode(["word " * words for words in _SAMPLE_WORDS])
    want = plain_want(backend.info)
    tokens = sum(map(len, sample))
    of_token = (_least_s(backend, sample, want) or math.inf) / tokens
    speed = Speed(of_token)
    for words in _LONG_WORDS:
        long = short_text(tokenizer, backend.info, words)
        seconds = _least_s(backend, [long], want, _LONG_S)
        if seconds is not None:
            speed.fit((tokens / len(sample), of_token), (len(long), seconds / len(long)))
            break
    return speed


def is_shared(counters: Counters | None, name: str) -> bool:
    """Whether a process of the service has measured a model."""
    return counters is not None and counters.common[counters.parts[name] + PER_TOKEN] > 0


def share(counters: Counters | None, name: str, throughput: Throughput) -> None:
    """Tell the other processes what was measured here, or take over what they have measured."""
    speed = throughput.speed
    if counters is not None:
        common, part = counters.common, counters.parts[name]
        if not is_shared(counters, name):
            common[part + PER_PAIR] = int(speed.per_pair_s * _FEMTO)
            common[part + PER_TOKEN] = int(speed.per_token_s * _FEMTO)
        speed.per_pair_s = common[part + PER_PAIR] / _FEMTO
        speed.per_token_s = common[part + PER_TOKEN] / _FEMTO
    throughput.tokens_per_s = 1 / speed.per_token_s


def _least_s(
    backend: Backend, texts: Sequence[Encoding], want: Want, most_s: float | None = None
) -> float | None:
    """Return the least time of some passes, as `_pass_s` does: the first one prepares for its shape."""
    until = time.perf_counter() + _REPEATED_S
    least = _pass_s(backend, texts, want, most_s)
    for _ in range(_PASSES - 1):
        if least is None or time.perf_counter() > until:
            break
        least = min(least, _pass_s(backend, texts, want, most_s) or math.inf)
    return least


def _pass_s(backend: Backend, texts: Sequence[Encoding], want: Want, most_s: float | None) -> float | None:
    """Time a pass; if it takes longer than `most_s`, by its first layers, or None if there were none."""
    progress, batch = Progress(), Batch.pack(texts, [want] * len(texts))
    timer = threading.Timer(most_s, progress.stop) if most_s is not None else None
    if timer is not None:
        timer.start()
    start = time.perf_counter()
    try:
        backend.run(batch, progress=progress)
    except Stopped:
        layers = progress.layers
        return (time.perf_counter() - start) * backend.info.layers / layers if layers else None
    finally:
        if timer is not None:
            timer.cancel()
    return time.perf_counter() - start
