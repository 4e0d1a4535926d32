"""Models with massive activations (Sun et al. 2024) are exported: bounds follow the numbers they are of."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from export.pipeline import export
from model.checkpoints.folder import read_folder
from model.contract import Want
from model.onnx.backend import OnnxBackend
from model.onnx.file import OnnxFile, find_graph
from tests.support.families import ENCODERS, sample, write_small
from tests.support.product import run

SIZE, CHANNEL, MASSIVE = 48, 3, 1e5
FAMILIES = ("bert", "deberta-v2", "modernbert", "t5")
"""Norms after and before the layers, of both kinds, and scores with distances."""


def plant(model: nn.Module) -> None:
    """Make one channel massive, of the embeddings or of what a layer adds: nothing else depends on it."""
    projections = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == SIZE]
    norms = [
        module
        for name, module in model.named_modules()
        if "embeddings" in name and "norm" in name.lower() and getattr(module, "weight", None) is not None
    ]
    inner = [m for m in projections if m.in_features < SIZE]
    wide = [m for m in norms if m.weight.shape == (SIZE,)]
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear) and module.in_features == SIZE:
                module.weight[:, CHANNEL] /= MASSIVE
        if wide:
            wide[0].weight[CHANNEL] *= MASSIVE
        else:
            inner[0].weight[CHANNEL].abs_().mul_(MASSIVE)  # of what a ReLU leaves: sums of one sign are exact


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_with_massive_activations_is_exported(family: str, tmp_path: Path) -> None:
    """The graph is as near to float64 as the float32 of `transformers` is, of each state's largest number."""
    written = write_small(tmp_path / "model", family, ENCODERS.get(family, "Model"))
    plant(written.model)
    written.model.save_pretrained(written.folder)
    place = tmp_path / "graph"
    export(str(written.folder), place, dtype="float32", overwrite=False, step=lambda _: nullcontext())
    file = find_graph(place)
    assert isinstance(file, OnnxFile)
    backend = OnnxBackend(read_folder(place, graph=True), file, device="cpu")
    inputs = sample()
    wants = [Want(token_layers=tuple(range(backend.info.layers + 1)))] * len(inputs)
    found = [output.tokens for output in run(backend, inputs, wants)]
    theirs = [written.run(e.token_ids, e.segment_ids)[0] for e in inputs]
    written.model.double()
    exact = [written.run(e.token_ids, e.segment_ids)[0] for e in inputs]
    assert max(np.abs(states).max() for states in exact) > MASSIVE / 10

    def error(some: list[Any]) -> float:
        return max(
            float(np.abs(one - other).max() / np.abs(other).max())
            for states, truth in zip(some, exact, strict=True)
            for one, other in zip(states, truth, strict=True)
        )

    assert error(found) <= max(2 * error(theirs), 1e-6)
