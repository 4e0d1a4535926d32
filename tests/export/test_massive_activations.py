"""Models with massive activations (Sun et al. 2024) are exported: bounds follow the numbers they are of."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch import nn
from torch.overrides import TorchFunctionMode

from export.parity import Row
from export.pipeline import export
from export.rounding import FACTOR
from model.checkpoints.checkpoint import load_checkpoint
from model.contract import Backend, Want
from model.onnx.backend import OnnxBackend
from model.pytorch.backend import TorchBackend
from model.pytorch.precision import EXACT
from tests.references.families import Written
from tests.references.jina import PLAIN, QK, JinaBert, write_jina
from tests.support.exporting import opened
from tests.support.families import ALIKE, ATTENDING, ENCODERS, ORIGINALS, Reference, sample, write_small
from tests.support.product import run

SIZE, CHANNEL, MASSIVE = 48, 3, 1e5
FIRST = ("bert", "deberta-v2", "modernbert", "t5")
"""Norms after and before the layers, of both kinds, and scores with distances."""
FAMILIES = [
    "bert",
    *(pytest.param(family, marks=pytest.mark.thorough) for family in ATTENDING if family != "bert"),
]
_STEPS = ("xlm-roberta", "camembert", "xlm-roberta-xl", "megatron-bert", "rembert", "ultrabert", "mt5")
"""Families with the steps of RoBERTa, of RoBERTa with norms first, of ELECTRA, EuroBERT and T5."""
SAME_GRAPHS = {*ORIGINALS, *ALIKE, *_STEPS} - {"gemma3_text"}
EXPORTED = [family for family in ATTENDING if family not in SAME_GRAPHS]
"""Families of which none has the steps of another: to export one takes ten seconds."""
ROUNDING = 1.2e-7
"""Of results in float32."""
ROUNDED_NORMS = (*ALIKE, "eurobert", "modernbert", "mt5", "qwen3", "t5", "ultrabert", "umt5")
"""Families of which `transformers` rounds norms or rotary positions to float32, also in float64."""


def widened(value: Any) -> Any:
    """Float64 in the place of float32."""
    return torch.float64 if value is torch.float32 else value


class Doubles(TorchFunctionMode):
    """Conversions to float32 are to float64, which `transformers` has no other way to ask for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function with the wider type."""
        named = {name: widened(value) for name, value in (kwargs or {}).items()}
        call: Callable[..., Any] = torch.Tensor.double if func is torch.Tensor.float else func
        return call(*map(widened, args), **named)


def projections(model: nn.Module) -> list[nn.Linear]:
    """The linear layers that lead back from a wider or narrower layer, in their order."""
    linear = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == SIZE]
    return [m for m in linear if m.in_features != SIZE]


def plant_sum(model: nn.Module) -> None:
    """Make one channel massive, of the embeddings or of what a layer adds to it with one sign."""
    norms = [
        module
        for name, module in model.named_modules()
        if ("embeddings" in name and "norm" in name.lower()) or name.endswith("post_feedforward_layernorm")
        if getattr(module, "weight", None) is not None
    ]
    wide = [m for m in norms if m.weight.shape == (SIZE,)]
    with torch.no_grad():
        if wide:
            wide[0].weight[CHANNEL] *= MASSIVE
        else:
            projections(model)[0].weight[CHANNEL].abs_().mul_(MASSIVE)


def plant_difference(model: nn.Module) -> None:
    """Make what a layer adds to one channel massive, with both signs: where it cancels, digits are lost."""
    with torch.no_grad():
        projections(model)[0].weight[CHANNEL] *= MASSIVE


def write_planted(folder: Path, family: str, plant: Callable[[nn.Module], None]) -> Written:
    """Save a small model with a massive channel, which nothing else depends on."""
    written = write_small(folder, family, ENCODERS.get(family, "Model"))
    config = (folder / "config.json").read_bytes()
    with torch.no_grad():
        for module in written.model.modules():
            if isinstance(module, nn.Linear) and module.in_features == SIZE:
                module.weight[:, CHANNEL] /= MASSIVE
    plant(written.model)
    written.model.save_pretrained(folder)
    (folder / "config.json").write_bytes(config)  # some have another one than `transformers` writes
    return written


def states(backend: Backend) -> list[Any]:
    """All hidden states of the sample."""
    inputs = sample()
    wants = [Want(token_layers=tuple(range(backend.info.layers + 1)))] * len(inputs)
    return [output.tokens for output in run(backend, inputs, wants)]


def reference(written: Reference) -> list[Any]:
    """The same of `transformers`, in the precision of its weights, or in float64."""
    return [written.run(encoding.token_ids, encoding.segment_ids)[0] for encoding in sample()]


def error(some: list[Any], exact: list[Any]) -> float:
    """The largest difference, in units of the largest number of each state."""
    return max(
        float(np.abs(one - other).max() / np.abs(other).max())
        for states, truth in zip(some, exact, strict=True)
        for one, other in zip(states, truth, strict=True)
    )


def rounding(written: Written, exact: list[Any]) -> float:
    """What one rounding of each weight to float32 changes: how far off any order of sums in float32 may be.

    Where large numbers cancel, `transformers` may be much nearer to float64 than that, by luck: of the same
    model, 3e-6 on one processor and 4e-7 on another.
    """
    weights = {name: weight.clone() for name, weight in written.model.named_parameters()}
    changes = []
    with torch.no_grad():
        for seed in range(4):
            generator = torch.Generator().manual_seed(seed)
            for name, weight in written.model.named_parameters():
                noise = torch.rand(weight.shape, generator=generator, dtype=weight.dtype) * 2 - 1
                weight.copy_(weights[name] * (1 + ROUNDING / 2 * noise))
            changes.append(error(reference(written), exact))
    return max(changes)


def exported(written: Reference, place: Path) -> tuple[OnnxBackend, list[Row]]:
    """Export a model as the command does; returns what runs the graph, and the comparison."""
    step = lambda _: nullcontext()  # noqa: E731
    rows = export(str(written.folder), place, dtype="float32", overwrite=False, step=step)
    return opened(place), rows


@pytest.mark.thorough
@pytest.mark.parametrize("plant", [plant_sum, plant_difference])
@pytest.mark.parametrize("family", EXPORTED)
def test_a_model_with_massive_activations_is_exported(
    family: str, plant: Callable[[nn.Module], None], tmp_path: Path
) -> None:
    """The graph is as near to float64 as float32 can be, of each state's largest number."""
    written = write_planted(tmp_path / "model", family, plant)
    backend, _ = exported(written, tmp_path / "graph")
    found, theirs = states(backend), reference(written)
    written.model.double()
    exact = reference(written)
    if plant is plant_sum:
        assert max(np.abs(states).max() for states in exact) > MASSIVE / 10
    assert error(found, exact) <= max(2 * error(theirs, exact), 2 * rounding(written, exact), 1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_reference_of_the_exporter_is_computed_in_float64(family: str, tmp_path: Path) -> None:
    """Nothing but its results is rounded to float32: it is nearer to float64 than float32 can be."""
    written = write_planted(tmp_path / "model", family, plant_difference)
    found = states(TorchBackend(load_checkpoint(written.folder), device="cpu", dtype=EXACT))
    written.model.double()
    with Doubles() if family in ROUNDED_NORMS else nullcontext():
        exact = reference(written)
    bound = 4e-7 if family in ROUNDED_NORMS else ROUNDING
    # Gemma's 1 + w and UltraBERT's angles are rounded, as in training, and this is amplified.
    assert error(found, exact) <= (2e-6 if family in ("gemma", "ultrabert") else bound)


def write_planted_jina(folder: Path, code: str, planted: str) -> JinaBert:
    """Save jina's BERT with a massive channel, in the rows of a weight whose name ends so."""
    written = write_jina(folder, code)
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        if weight.ndim == 2 and weight.shape[1] == SIZE and "embeddings" not in name:
            weight[:, CHANNEL] /= np.float32(MASSIVE)
    name = next(name for name in sorted(weights) if name.endswith(planted))
    weights[name][CHANNEL] *= np.float32(MASSIVE)
    save_file(weights, folder / "model.safetensors")
    doubles = {name: weight.astype(np.float64) for name, weight in weights.items()}
    return replace(written, weights=doubles)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("code", "planted"),
    [
        (PLAIN, "embeddings.LayerNorm.weight"),
        (PLAIN, "layer.0.mlp.wo.weight"),
        (QK, "embeddings.LayerNorm.weight"),
        (QK, "layer.0.mlp.down_layer.weight"),
    ],
)
def test_a_family_without_transformers_is_exported(code: str, planted: str, tmp_path: Path) -> None:
    """The graph of jina's BERT is as near to float64, written in numpy, as PyTorch in float32 is.

    Its error and theirs are chance where a sum cancels; the exporter's own factor is for that.
    """
    written = write_planted_jina(tmp_path / "model", code, planted)
    backend, _ = exported(written, tmp_path / "graph")
    exact = reference(written)

    def error_in(dtype: str, *, native: bool) -> float:
        checkpoint = load_checkpoint(written.folder)
        return error(states(TorchBackend(checkpoint, device="cpu", dtype=dtype, native=native)), exact)

    rounding = max(error_in("float32", native=native) for native in (True, False))
    assert error(states(backend), exact) <= max(FACTOR * rounding, 1e-6)
    assert error_in(EXACT, native=False) <= ROUNDING
