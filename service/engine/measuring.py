"""Warms the model up and measures how fast it is, once at the start."""

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
# The most that warming up takes, and one pass of it: a large model's pass is stopped after a few layers.
_WARM_S, _WARM_PASS_S = 1.0, 0.2
# Words of the text that shows what attention costs: the first whose layer, or graph, takes at most this long.
_LONG_WORDS, _LONG_PART_S = (2048, 512, 128), 0.5
# Limits for a pass of short texts, for one of the long text, and for their repetitions, in seconds.
_SAMPLE_S, _LONG_S, _REPEATED_S = 0.5, 1.0, 0.25
# A measurement is the least time of this many passes.
_PASSES = 5


def plain_want(info: ModelInfo) -> Want:
    """Return what a request for sentence vectors wants."""
    return Want(SentenceWant(modes=info.pooling, layers=(info.layers,)))


def short_text(tokenizer: TextTokenizer, info: ModelInfo, words: int = _SHORT_WORDS) -> Encoding:
    """Return a text of at most `words` words, and at most half as long as the model reads."""
    # Not longer than the model reads: the truncator is only created for a client's overlong text.
    (encoding,) = tokenizer.encode(["word " * tokenizer.fitting(min(info.max_length // 2, words))])
    return encoding


def warm_up(backend: Backend, tokenizer: TextTokenizer, lanes: int) -> None:
    """Run each kind of work once, short and long, so that clients rarely pay for first-run costs.

    After the first pass, it takes a second at most, which is enough for models of up to a hundred million
    parameters. With larger ones, some kinds run only a few layers here, or run first in a client's request.
    """
    info, plain = backend.info, plain_want(backend.info)
    attention = AttentionWant(layers=info.attention_layers[-1:], heads=(0,))
    wants = [plain]
    wants += [replace(plain, attention=attention)] if info.exposes_attention else []
    wants += [replace(plain, task=task) for task in info.tasks[:1]]
    alone = [short_text(tokenizer, info)]
    _pass_s(backend, alone, plain, _WARM_PASS_S)  # its first layer loads libraries: with CUDA, for seconds
    until = time.perf_counter() + _WARM_S
    for words in (1, _WARM_WORDS):
        encodings = [short_text(tokenizer, info, words)] * 2
        for want in wants:
            for shares in {1, lanes}:
                if time.perf_counter() < until:
                    _pass_s(backend, encodings, want, _WARM_PASS_S, lanes=shares)
    _pass_s(backend, alone, plain, _WARM_PASS_S)


def measure_speed(backend: Backend, tokenizer: TextTokenizer) -> Speed:
    """Measure a batch of short texts and a long text, each on all cores, in two seconds at most.

    A pass that takes longer is stopped, and its time is estimated from the layers that it completed. It goes
    on only if that is impossible because a single layer, or the one pass of a graph, takes so long.
    """
    info, want = backend.info, plain_want(backend.info)
    texts = tokenizer.encode(["word " * words for words in _SAMPLE_WORDS])
    # The longest alone runs at nearly the speed of all together; the shortest mostly reads weights.
    for sample, most_s in (
        (texts, _SAMPLE_S),
        (texts[-1:], _SAMPLE_S),
        (texts[:1], threading.TIMEOUT_MAX),
    ):
        seconds = _least_s(backend, sample, want, most_s)
        if seconds is not None:
            break
    tokens = sum(map(len, sample))
    of_token = (seconds or math.inf) / tokens
    speed = Speed(of_token)
    parts = info.layers if info.backend == "torch" else 1
    for words in _LONG_WORDS:
        long = short_text(tokenizer, info, words)
        if len(long) * of_token > _LONG_PART_S * parts and words != _LONG_WORDS[-1]:
            continue
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


def _least_s(backend: Backend, texts: Sequence[Encoding], want: Want, most_s: float) -> float | None:
    """Return the least time of some passes, as `_pass_s` gives it: the first one prepares for its shape."""
    until = time.perf_counter() + _REPEATED_S
    least = _pass_s(backend, texts, want, most_s)
    for _ in range(_PASSES - 1):
        if least is None or time.perf_counter() > until:
            break
        least = min(least, _pass_s(backend, texts, want, most_s) or math.inf)
    return least


def _pass_s(
    backend: Backend, texts: Sequence[Encoding], want: Want, most_s: float, *, lanes: int = 1
) -> float | None:
    """Time a pass; after `most_s`, stop it and estimate from the layers it completed, None without any."""
    progress, batch = Progress(), Batch.pack(texts, [want] * len(texts))
    timer = threading.Timer(most_s, progress.stop)
    timer.start()
    start = time.perf_counter()
    try:
        backend.run(batch, lanes=lanes, progress=progress)
    except Stopped:
        layers = progress.layers
        return (time.perf_counter() - start) * backend.info.layers / layers if layers else None
    finally:
        timer.cancel()
    return time.perf_counter() - start
