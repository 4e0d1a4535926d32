"""Weights of every stored type, loaded as the service loads them."""

from pathlib import Path

import pytest
import torch

from model.checkpoints.checkpoint import load_checkpoint
from model.pytorch.backend import TorchBackend
from tests.references.comparing import relative_distance
from tests.support.families import EXACT, sample, write_small
from tests.support.product import run, want_all


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("stored", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("family", ["bert", "qwen3"])
def test_states_are_those_of_the_reference(family: str, stored: str, native: bool, tmp_path: Path) -> None:
    """In float32, of the numbers as they are stored."""
    written = write_small(tmp_path, family, "Model")
    for parameter in written.model.parameters():  # and no frequencies, which are not stored
        parameter.data = parameter.to(getattr(torch, stored))
    written.model.save_pretrained(tmp_path)
    for parameter in written.model.parameters():
        parameter.data = parameter.float()
    backend = TorchBackend(
        load_checkpoint(tmp_path, deferred=True), device="cpu", dtype="float32", native=native
    )
    inputs = sample()
    for one, output in zip(inputs, run(backend, inputs, [want_all(backend)] * len(inputs)), strict=True):
        hidden, _ = written.run(one.token_ids, one.segment_ids)
        assert relative_distance(output.tokens, hidden) <= EXACT
