"""Runs a plain ONNX export without a service, in its own process, which `service/runtimes.py` starts.

What a program gets that calls ONNX Runtime or OpenVINO by itself: texts in the order of arrival, so many to a
batch and padded to the longest, two threads; tokenizing, mean pooling and normalising included. It reads
lines of JSON from standard input and answers each with one: first a list of requests, each a list of texts,
which it answers with the first vector; then `[SECONDS, TEXTS]`, the most texts of a batch, which it answers
with requests per second and the median milliseconds of a batch.

    python -m benchmarks.peers.bare_runtime onnxruntime|openvino GRAPH TOKENIZER

It needs only that runtime and `tokenizers`, so that a runtime can have a virtual environment of its own.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from model.onnx import names as graph

_THREADS = 2
_LONGEST = 256

Run = Callable[[Mapping[str, NDArray[np.int64]]], NDArray[np.float32]]
"""Computes the last hidden state (B, N, C) from the inputs of a graph, each (B, N)."""


def open_onnxruntime(path: str) -> Run:
    """Open a graph in ONNX Runtime, in the precision of its weights."""
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _THREADS
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)[0]


def open_openvino(path: str) -> Run:
    """Open a graph in OpenVINO for low latency, in the precision that it chooses for the processor."""
    import openvino  # noqa: PLC0415

    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": _THREADS}
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    request = compiled.create_infer_request()
    return lambda feed: request.infer(dict(feed))[compiled.output(0)]


RUNTIMES = {"onnxruntime": open_onnxruntime, "openvino": open_openvino}


class Encoder:
    """A graph and its tokenizer."""

    def __init__(self, run: Run, tokenizer: str) -> None:
        self._run = run
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
        real = mask[:, :, None].astype(np.float32)
        pooled: NDArray[np.float32] = (self._run(feed) * real).sum(1) / real.sum(1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


def main() -> None:
    """Answer lines until the input ends."""
    name, path, tokenizer = sys.argv[1:4]
    runtime = Encoder(RUNTIMES[name](path), tokenizer)
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
    runtime: Encoder, texts: Iterator[str], texts_of_request: int, seconds: float, most: int
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
