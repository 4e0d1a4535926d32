"""Those who watch the pass of a long text see it go on all the time."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from model.checkpoints.checkpoint import load_checkpoint
from model.contract import Batch, SentenceWant, Want
from model.progress import Progress
from model.pytorch.backend import TorchBackend
from tests.references.checkpoints import write_bert
from tests.support.backends import instructions
from tests.support.kernel import runs_int8

pytestmark = pytest.mark.alone

LENGTH, LAYERS = 8192, 2
MOST_S = 0.1
"""How long a watched pass may count nothing, in seconds of one core."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of random weights, the layers of which take a second each."""
    folder = tmp_path_factory.mktemp("model") / "source"
    write_bert(
        folder,
        hidden_size=512,
        intermediate_size=1024,
        num_attention_heads=8,
        num_hidden_layers=LAYERS,
        max_position_embeddings=LENGTH,
    )
    return folder


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_a_pass_of_seconds_counts_every_tenth_of_a_second(dtype: str, folder: Path) -> None:
    """In every step of a layer: products and attention. Seconds of a core, because others may have it too."""
    if instructions(torch.float32 if dtype == "float32" else torch.bfloat16) is None:
        pytest.skip(f"there are no native kernels for {dtype} here")
    if dtype == "int8" and not runs_int8():
        pytest.skip("the processor has no products of eight bits")
    backend = TorchBackend(load_checkpoint(folder), device="cpu", dtype=dtype, threads=1)
    progress, ended, pauses = Progress(), threading.Event(), list[float]()

    def watch() -> None:
        seen, since = progress.steps, time.process_time()
        while not ended.wait(0.001):
            if progress.steps != seen:
                seen, now = progress.steps, time.process_time()
                pauses.append(now - since)
                since = now

    ids = np.full(LENGTH, 7)
    batch = Batch(ids, np.zeros_like(ids), np.array([0, LENGTH]), (Want(SentenceWant(layers=(LAYERS,))),))
    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.process_time()
    backend.run(batch, progress=progress)
    took = time.process_time() - start
    ended.set()
    watcher.join()
    assert max(pauses) < MOST_S < took / LAYERS
