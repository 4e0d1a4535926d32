"""Runs a checkpoint without a service, in its own process, which `service/real_sizes.py` starts.

What a careful program gets by itself: texts sorted by length, 32 to a batch and padded to the longest of it,
on all cores; tokenizing, mean pooling and normalising included. It reads lines of JSON from standard input,
each a list of texts, and answers each with one: the seconds that it took, and the vector of the first text.

    python -m benchmarks.peers.sorted_batches transformers|onnxruntime FOLDER

The folder has the checkpoint and its tokenizer; for ONNX Runtime also a plain export of it.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from benchmarks.peers.bare_runtime import open_onnxruntime
from model.onnx import names as graph
from model.onnx.file import GRAPH

BATCH = 32
Array = NDArray[np.float32]
Ids = NDArray[np.int64]
Run = Callable[[Ids, Ids], Array]
"""Computes the last hidden state (B, N, C) of token ids and the mask of the padding, each (B, N)."""


def open_transformers(folder: Path) -> Run:
    """Load the checkpoint in float32, with `sdpa` attention."""
    # Loaded only where they are measured: their threads and memory are not those of the runtime.
    import torch  # noqa: PLC0415
    from transformers import AutoModel  # noqa: PLC0415

    model = AutoModel.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32).eval()

    def run(ids: Ids, mask: Ids) -> Array:
        with torch.inference_mode():
            given = torch.from_numpy(ids), torch.from_numpy(mask)
            hidden: Array = model(input_ids=given[0], attention_mask=given[1]).last_hidden_state.numpy()
        return hidden

    return run


def open_runtime(folder: Path) -> Run:
    """Open the plain export."""
    session = open_onnxruntime(str(folder / GRAPH))

    def run(ids: Ids, mask: Ids) -> Array:
        return session({graph.INPUT_IDS: ids, graph.ATTENTION_MASK: mask})

    return run


OPENED = {"transformers": open_transformers, "onnxruntime": open_runtime}


def encode(run: Run, tokenizer: Tokenizer, texts: Sequence[str]) -> Array:
    """Encode texts in batches of similar length: unit vectors (B, C), in the order of the texts."""
    encodings = tokenizer.encode_batch(list(texts))
    order = sorted(range(len(texts)), key=lambda i: len(encodings[i].ids))
    vectors: dict[int, Array] = {}
    for start in range(0, len(order), BATCH):
        members = order[start : start + BATCH]
        longest = len(encodings[members[-1]].ids)
        ids, mask = np.zeros((2, len(members), longest), np.int64)
        for row, i in enumerate(members):
            count = len(encodings[i].ids)
            ids[row, :count], mask[row, :count] = encodings[i].ids, 1
        real = mask[:, :, None].astype(np.float32)
        pooled = (run(ids, mask) * real).sum(1) / real.sum(1)
        pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
        vectors.update(zip(members, pooled, strict=True))
    return np.stack([vectors[i] for i in range(len(texts))])


def main() -> None:
    """Answer lines until the input ends."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    run, tokenizer = OPENED[name](folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    for line in sys.stdin:
        texts = json.loads(line)
        start = time.perf_counter()
        first = encode(run, tokenizer, texts)[0].tolist()
        print(json.dumps([time.perf_counter() - start, first]), flush=True)


if __name__ == "__main__":
    main()
