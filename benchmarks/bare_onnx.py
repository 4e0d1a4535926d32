"""Runs a plain ONNX export without a service, in its own process, which `benchmarks.runtimes` starts.

What a program gets that calls ONNX Runtime by itself: texts in the order of arrival, so many to a batch and
padded to the longest, two threads; tokenizing, mean pooling and normalising included. It reads lines of JSON
from standard input and answers each with one: first a list of requests, each a list of texts, which it
answers with the first vector; then `[SECONDS, TEXTS]`, the most texts of a batch, which it answers with
requests per second and the median milliseconds of a batch.

    python -m benchmarks.bare_onnx GRAPH TOKENIZER
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain, cycle, islice
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from model.onnx import names as graph

_THREADS = 2
_LONGEST = 256


class Runtime:
    """A graph and its tokenizer."""

    def __init__(self, path: str, tokenizer: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = _THREADS
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(tokenizer)
        self._tokenizer.enable_truncation(_LONGEST)
        self._tokenizer.enable_padding()

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts as one padded batch: unit vectors (B, C)."""
        encodings = self._tokenizer.encode_batch(list(texts))
        mask = np.array([encoding.attention_mask for encoding in encodings])
        feed = {
            graph.INPUT_IDS: np.array([encoding.ids for encoding in encodings]),
            graph.ATTENTION_MASK: mask,
            graph.TOKEN_TYPE_IDS: np.zeros_like(mask),
        }
        (states,) = self._session.run(None, feed)
        real = mask[:, :, None].astype(np.float32)
        pooled: NDArray[np.float32] = (states * real).sum(1) / real.sum(1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


def main() -> None:
    """Answer lines until the input ends."""
    runtime = Runtime(*sys.argv[1:3])
    texts: Iterator[str] = iter(())
    texts_of_request = 1
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked[0], list):
            texts, texts_of_request = cycle(chain.from_iterable(asked)), len(asked[0])
            say(runtime.encode(asked[0])[0].tolist())
        else:
            say(run(runtime, texts, texts_of_request, *asked))


def run(
    runtime: Runtime, texts: Iterator[str], texts_of_request: int, seconds: float, most: int
) -> tuple[float, float]:
    """Run batches for a time; returns requests per second, and the median milliseconds of a batch."""
    milliseconds: list[float] = []
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        began = time.perf_counter()
        runtime.encode(list(islice(texts, most)))
        milliseconds.append(1000 * (time.perf_counter() - began))
    return len(milliseconds) * most / texts_of_request / passed, statistics.median(milliseconds)


def say(answer: Any) -> None:
    """Answer one line."""
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
