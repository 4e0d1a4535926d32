"""Modules after the pooling compute what sentence-transformers' do, in any order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from model.checkpoints.checkpoint import load_checkpoint
from model.contract import SentenceWant, Want
from model.errors import CheckpointError
from model.pytorch.backend import TorchBackend
from tests.model.checkpoints.test_layout import SINCE, write
from tests.references.checkpoints import write_bert
from tests.references.comparing import distance
from tests.support.product import run

Module = Callable[[Tensor], Tensor]


def unit(x: Tensor) -> Tensor:
    return nn.functional.normalize(x, dim=-1)


def write_modules(folder: Path, *kinds: str, **general: Any) -> Module:
    """Save random modules of these kinds; returns what they do to a pooled vector."""
    generator = torch.Generator().manual_seed(0)
    entries: list[dict[str, Any]] = []
    steps: list[Module] = []
    size = 32
    for number, kind in enumerate(kinds):
        place = f"{number}_{kind}" if number else ""
        entries.append({"idx": number, "name": str(number), "path": place, "type": f"{SINCE}.x.{kind}"})
        if kind == "Pooling":
            write(folder, f"{place}/config.json", {"embedding_dimension": 32, "pooling_mode": "mean"})
            steps.clear()
        elif kind == "Dense":
            linear = nn.Linear(size, size - 8)
            nn.init.normal_(linear.weight, generator=generator)
            write(folder, f"{place}/config.json", {"in_features": size, "out_features": size - 8})
            save_file(linear.state_dict(prefix="linear."), folder / place / "model.safetensors")
            steps += [linear, torch.tanh]
            size -= 8
        elif kind == "LayerNorm":
            norm = nn.LayerNorm(size)
            for parameter in norm.parameters():
                nn.init.normal_(parameter, generator=generator)
            write(folder, f"{place}/config.json", {"dimension": size})
            save_file(norm.state_dict(prefix="norm."), folder / place / "model.safetensors")
            steps.append(norm)
        elif kind == "Normalize":
            steps.append(unit)
        elif kind == "Dropout":
            write(folder, f"{place}/config.json", {"dropout": 0.9})
    write(folder, "modules.json", entries)
    write(folder, "config_sentence_transformers.json", general)

    def apply(x: Tensor) -> Tensor:
        for step in steps:
            x = step(x)
        return x[: general.get("truncate_dim")]

    return apply


def vectors(folder: Path) -> tuple[Tensor, Tensor, TorchBackend]:
    """The mean of the hidden states of a text, and its sentence vector as the folder has it made."""
    backend = TorchBackend(load_checkpoint(folder, strict=True), device="cpu", dtype="float32")
    encoding = load_checkpoint(folder).tokenizer.encode(["the man beats the boy"])[0]
    info = backend.info
    want = Want(SentenceWant(info.pooling, (info.layers,), info.normalize), token_layers=(info.layers,))
    (output,) = run(backend, [encoding], [want])
    assert output.tokens is not None
    assert output.sentence is not None
    assert len(output.sentence) == info.sentence_size
    return torch.tensor(output.tokens[0]).mean(0), torch.tensor(output.sentence), backend


@pytest.mark.parametrize(
    "kinds",
    [
        ("Dropout",),
        ("LayerNorm",),
        ("Normalize", "LayerNorm"),
        ("Normalize", "Dense", "Normalize"),
        ("Dense", "Dropout", "LayerNorm", "Normalize", "Dropout"),
        ("LayerNorm", "Dense", "LayerNorm"),
        ("Normalize", "Normalize"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("truncate_dim", [None, 5, 1000])
def test_modules_after_the_pooling_are_computed_in_their_order(
    tmp_path: Path, kinds: tuple[str, ...], truncate_dim: int | None
) -> None:
    """Dropout does nothing, and truncation comes last: what it leaves has no unit length."""
    write_bert(tmp_path)
    general = {} if truncate_dim is None else {"truncate_dim": truncate_dim}
    apply = write_modules(tmp_path, "Transformer", "Pooling", *kinds, **general)
    pooled, vector, _ = vectors(tmp_path)
    with torch.inference_mode():
        assert distance(vector.numpy(), apply(pooled).numpy()) < 1e-5


@pytest.mark.parametrize("kind", ["Normalize", "Dropout"])
def test_before_the_pooling_there_is_nothing_to_change(tmp_path: Path, kind: str) -> None:
    """These modules change sentence vectors, and there are none yet."""
    write_bert(tmp_path)
    write_modules(tmp_path, "Transformer", kind, "Pooling")
    pooled, vector, backend = vectors(tmp_path)
    assert distance(vector.numpy(), pooled.numpy()) < 1e-6
    assert not backend.info.normalize


@pytest.mark.parametrize(
    ("number", "config", "said"),
    [
        (
            1,
            {"module_input_name": "token_embeddings"},
            r"1_Normalize/config\.json: module_input_name is token_embeddings, .* before the Pooling",
        ),
        (3, {"module_output_name": "other"}, r"3_Normalize/config\.json: module_input_name is"),
        (3, {"module_input_name": "other"}, r"3_Normalize/config\.json: module_input_name is"),
    ],
)
def test_a_normalize_of_something_else_is_refused(
    tmp_path: Path, number: int, config: dict[str, str], said: str
) -> None:
    """Vectors would differ from what the model was trained for."""
    write_bert(tmp_path)
    write_modules(tmp_path, "Transformer", "Normalize", "Pooling", "Normalize")
    write(tmp_path, f"{number}_Normalize/config.json", config)
    with pytest.raises(CheckpointError, match=said):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("value", [0, -1, "64", 1.5, True])
def test_what_is_no_number_of_components_is_refused(tmp_path: Path, value: Any) -> None:
    """truncate_dim is a whole number or null."""
    write_bert(tmp_path)
    write_modules(tmp_path, "Transformer", "Pooling", truncate_dim=value)
    with pytest.raises(CheckpointError, match=r"config_sentence_transformers\.json: truncate_dim is"):
        load_checkpoint(tmp_path)
