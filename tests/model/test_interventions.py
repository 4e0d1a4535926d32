"""Interventions equal hooks on `transformers`, for every family, and touch no sequence but their own."""

from pathlib import Path

import numpy as np
import pytest

from model.checkpoints.checkpoint import load_checkpoint
from model.pytorch.backend import TorchBackend
from tests.references.comparing import distance, relative_distance
from tests.references.interventions import run_changed
from tests.support.families import ENCODERS, EXACT, SMALL, sample, write_small
from tests.support.interventions import random_changes, with_changes
from tests.support.product import run, want_all

LENGTHS = (1, 2, 7, 20, 40)
COUNT = 50


@pytest.mark.parametrize("native", [True, False], ids=["kernels", "plain"])
@pytest.mark.parametrize("family", SMALL)
def test_interventions_are_those_of_hooks(family: str, native: bool, tmp_path: Path) -> None:
    """Hidden states and maps of 50 different ones in one batch, beside sequences without, and alone."""
    written = write_small(tmp_path, family, ENCODERS.get(family, "Model"))
    backend = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype="float32", native=native)
    info, random = backend.info, np.random.default_rng(1)
    texts = sample([LENGTHS[number % len(LENGTHS)] for number in range(COUNT + 5)])
    changes = [random_changes(random, info.layers, info.heads, info.hidden_size, len(one)) for one in texts]
    changes[COUNT:] = [[] for _ in changes[COUNT:]]
    want = want_all(backend)
    wants = [with_changes(want, some) if some else want for some in changes]
    together = run(backend, texts, wants)
    plain = run(backend, texts, [want] * len(texts))
    for number, (text, some, output) in enumerate(zip(texts, changes, together, strict=True)):
        if not some:
            np.testing.assert_array_equal(output.tokens, plain[number].tokens)
            np.testing.assert_array_equal(output.attention, plain[number].attention)
        states, maps = run_changed(written, text.token_ids, text.segment_ids, some)
        outputs = [output, *(run(backend, [text], [wants[number]]) if number % 5 == 0 else ())]
        for one in outputs:
            assert one.finite
            assert distance(one.attention, maps) <= EXACT, some
            for ours, theirs in zip(one.tokens, states, strict=True):
                assert relative_distance(ours, theirs) <= EXACT, some
