"""PyTorch on CUDA gives what it gives on the CPU; skipped where there is no CUDA device."""

import numpy as np
import pytest
import torch

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import resolve
from model.contract import AttentionWant, SentenceWant, Want
from model.encoder.packing import Packing
from model.pytorch.backend import TorchBackend
from tests.references.checkpoints import MINILM
from tests.references.comparing import distance
from tests.support.product import minilm, run

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")

TEXTS = ["a", "the man beats the boy", "word " * 60, "the man beats the boy", "日本語 🙂"]
WANT = Want(
    sentence=SentenceWant(layers=(6,), normalize=True),
    attention=AttentionWant(layers=(0, 5), heads=tuple(range(12))),
)


def test_boundaries_are_where_sequences_begin() -> None:
    """int32, with the end of the last, and moved to a device once."""
    packing = Packing.of([3, 1, 2])
    device = torch.device("cpu")
    boundaries = packing.boundaries(device)
    assert boundaries.tolist() == [0, 3, 4, 6]
    assert boundaries.dtype == torch.int32
    assert packing.boundaries(device) is boundaries
    assert packing == Packing.of([3, 1, 2])


@cuda
@pytest.mark.parametrize(("dtype", "cosine", "bound"), [("float32", 1e-6, 1e-4), ("bfloat16", 1e-3, 0.05)])
def test_cuda_computes_what_the_cpu_does(dtype: str, cosine: float, bound: float) -> None:
    """Sequences of many lengths in one batch: the vectors and maps of float32 on the CPU."""
    checkpoint = load_checkpoint(resolve(MINILM))
    backend = TorchBackend(checkpoint, device="cuda", dtype=dtype)
    encodings = checkpoint.tokenizer.encode(TEXTS)
    expected = run(minilm(), encodings, [WANT] * len(TEXTS))
    found = run(backend, encodings, [WANT] * len(TEXTS))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.sentence is not None
        assert theirs.sentence is not None
        assert float(np.dot(ours.sentence, theirs.sentence)) >= 1 - cosine
        assert distance(ours.attention, theirs.attention) <= bound
