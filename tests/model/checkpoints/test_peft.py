"""Adapters of peft, a folder for each task: the numbers of the merged weights, in mixed batches and alone."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.folder import read_folder
from model.contract import AttentionWant, Want
from model.errors import CheckpointError
from model.pytorch.backend import TorchBackend
from tests.references.comparing import distance, relative_distance
from tests.references.families import change_config
from tests.references.peft import Adapted, Task, change_adapter, write_adapters
from tests.support.exporting import export_silently, opened
from tests.support.families import AS_A_GRAPH, EXACT, sample, write_small
from tests.support.product import run

DECODER = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
CASES: dict[str, tuple[str, dict[str, Task]]] = {
    "of jina, version 5": (
        "jina_embeddings_v5",
        {"retrieval": Task(4, 8, DECODER), "text-matching": Task(4, 4, DECODER)},
    ),
    "other ranks, scales and layers": (
        "qwen3",
        {"a": Task(3, 5, ("q_proj", "v_proj"), root=True), "b": Task(7, 2, ("k_proj", "up_proj"))},
    ),
    "queries and values": ("bert", {"only": Task(5, 5, ("query", "value"))}),
    "layers in one": ("modernbert", {"one": Task(2, 4, ("Wqkv", "Wi")), "other": Task(6, 4, ("Wo",))}),
}


def written(folder: Path, case: str) -> Adapted:
    family, tasks = CASES[case]
    return write_adapters(write_small(folder, family, "Model"), tasks)


@pytest.fixture
def jina(tmp_path: Path) -> Adapted:
    return written(tmp_path / "model", "of jina, version 5")


def wanted(backend: Any, task: str | None) -> Want:
    """All hidden states and maps."""
    layers, heads = range(backend.info.layers), range(backend.info.heads)
    observed = AttentionWant(tuple(layers), tuple(heads))
    return Want(token_layers=(*layers, backend.info.layers), attention=observed, task=task)


@pytest.mark.parametrize("native", [True, False], ids=["kernels", "plain"])
@pytest.mark.parametrize("case", CASES)
def test_each_task_has_the_numbers_of_merged_weights(case: str, native: bool, tmp_path: Path) -> None:
    """Beside sequences of the other tasks and of none, and alone."""
    adapted = written(tmp_path, case)
    checkpoint = load_checkpoint(adapted.folder, deferred=True)
    backend = TorchBackend(checkpoint, device="cpu", dtype="float32", native=native)
    assert backend.info.tasks == (*CASES[case][1],)
    tasks = [*CASES[case][1], None]
    inputs = [encoding for encoding in sample((1, 7, 20)) for _ in tasks]
    wants = [wanted(backend, tasks[i % len(tasks)]) for i in range(len(inputs))]
    together = run(backend, inputs, wants)
    for encoding, want, beside in zip(inputs, wants, together, strict=True):
        states, maps = adapted.run(encoding.token_ids, encoding.segment_ids, want.task)
        for output in (beside, *run(backend, [encoding], [want])):
            assert output.tokens is not None
            assert relative_distance(output.tokens, states) <= EXACT
            assert output.attention is not None
            assert distance(output.attention, maps) <= EXACT


def test_only_jina_s_have_a_default(tmp_path: Path) -> None:
    """Its code takes no text without a task; others' models are of use without."""
    for case, default in (("of jina, version 5", "retrieval"), ("queries and values", None)):
        adapted = written(tmp_path / case, case)
        backend = TorchBackend(load_checkpoint(adapted.folder), device="cpu", dtype="float32")
        assert backend.info.default_task == default


def test_tasks_are_in_the_order_of_the_config(jina: Adapted) -> None:
    """Which must name those that there are."""
    change_config(jina.folder, task_names=["text-matching", "retrieval"])
    assert [one.task for one in read_folder(jina.folder).adapters] == ["text-matching", "retrieval"]
    change_config(jina.folder, task_names=["retrieval", "clustering"])
    with pytest.raises(CheckpointError, match=r"task_names is \['retrieval', 'clustering'\], but .* has"):
        load_checkpoint(jina.folder)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'; only \"LORA\" is supported: merge the adapter"),
        ({"use_dora": True}, "use_dora is True, which is not supported: merge"),
        ({"modules_to_save": ["norm"]}, r"modules_to_save is \['norm'\], which is not supported"),
        ({"rank_pattern": {"q_proj": 2}}, r"rank_pattern is \{'q_proj': 2\}, which is not supported"),
        ({"bias": "all"}, "bias is 'all'; only \"none\""),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa', which changes the weights"),
        ({"r": 0}, "r is 0; it must be at least 1"),
        ({"lora_alpha": "8"}, "lora_alpha is '8'; it must be a number above 0"),
        ({"lora_alpha": 10**400}, "lora_alpha is 1000.*; it must be a number above 0, and at most 1048576"),
        ({"kasa_config": {"a": 1}}, r"kasa_config is \{'a': 1\}, which is not supported"),
        ({"use_future": True}, "use_future is True, which headlight does not know: merge"),
        ({"use_rslora": 1}, "use_rslora is 1; it must be true or false"),
        ({"r": 5}, r"lora_A.weight' is F32 \(4, 40\); it must have the shape \(5, 40\)"),
    ],
)
def test_an_adapter_that_is_not_supported_is_refused(
    changes: dict[str, Any], said: str, jina: Adapted
) -> None:
    """The sentence names the file, the field and its value."""
    change_adapter(jina.folder, "retrieval", **changes)
    with pytest.raises(CheckpointError, match=rf"adapters/retrieval/adapter_.*{said}"):
        load_checkpoint(jina.folder)


BASE = "base_model.model."
PREFIX = f"{BASE}layers.0."
DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a matrix is missing": (
        lambda tensors: tensors.pop(f"{PREFIX}mlp.up_proj.lora_B.weight"),
        r"layers\.0\.mlp\.up_proj\.weight has no lora_B\.weight",
    ),
    "a NaN": (
        lambda tensors: tensors[f"{PREFIX}mlp.up_proj.lora_B.weight"].fill_(float("nan")),
        "NaN or an infinity",
    ),
    "another model's": (
        lambda tensors: tensors.update({f"{PREFIX}mlp.up_proj.lora_A.weight": torch.zeros(4, 7)}),
        r"is F32 \(4, 7\); it must have the shape \(4, 48\)",
    ),
    "twice": (
        lambda tensors: tensors.update({"layers.0.mlp.up_proj.lora_A.weight": torch.zeros(4, 48)}),
        "are the same matrix",
    ),
    "of a table": (
        lambda tensors: tensors.update({f"{BASE}embed_tokens.lora_embedding_A": torch.zeros(4, 9)}),
        "embed_tokens.lora_embedding_A' does not belong to a linear layer",
    ),
    "of a layer too many": (
        lambda tensors: tensors.update({f"{BASE}layers.9.mlp.up_proj.lora_A.weight": torch.zeros(4, 9)}),
        "does not belong to a linear layer of the encoder",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_matrices_that_do_not_fit_are_refused(what: str, jina: Adapted) -> None:
    """All of a file count, or the vectors would be others."""
    damage, said = DAMAGE[what]
    file = jina.folder / "adapters/text-matching/adapter_model.safetensors"
    tensors = load_file(file)
    damage(tensors)
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=said):
        load_checkpoint(jina.folder)


def test_what_an_incomplete_download_lacks_is_named(jina: Adapted) -> None:
    """Without the folder, texts would have the vectors of no adapter; so would an odd list of tasks."""
    change_config(jina.folder, task_names=["retrieval", 1])
    with pytest.raises(
        CheckpointError, match=r"task_names is \['retrieval', 1\]; it must be a list of names"
    ):
        load_checkpoint(jina.folder)
    change_config(jina.folder, task_names=["retrieval"])
    shutil.rmtree(jina.folder / "adapters")
    with pytest.raises(CheckpointError, match="adapters is missing; it must have the adapters that task"):
        load_checkpoint(jina.folder)


def test_adapters_are_inside_the_folder(jina: Adapted, tmp_path: Path) -> None:
    """As modules are; a link leads to other files than those that were looked at."""
    (jina.folder / "adapters").rename(tmp_path / "elsewhere")
    (jina.folder / "adapters").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(
        CheckpointError, match=r"adapters is a link to a place outside .*: move the adapters into that folder"
    ):
        load_checkpoint(jina.folder)


def test_small_files_do_not_become_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of all tasks are filled up to the largest rank."""
    monkeypatch.setattr("model.checkpoints.peft.matrices._FEW_NUMBERS", 1000)
    model = write_small(tmp_path, "bert", "Model")
    tasks = {f"small{i}": Task(1, 1, ("query",)) for i in range(20)}
    adapted = write_adapters(model, {"large": Task(60, 1, ("query",)), **tasks})
    with pytest.raises(CheckpointError, match="the ranks of the adapters differ so much that"):
        load_checkpoint(adapted.folder)


def test_a_missing_file_is_named(jina: Adapted) -> None:
    """A task without its matrices would be the model without an adapter."""
    (jina.folder / "adapters/retrieval/adapter_model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors is missing"):
        load_checkpoint(jina.folder)


@pytest.mark.thorough
def test_a_graph_is_exported_for_one_task(jina: Adapted, tmp_path: Path) -> None:
    """It has that task's weights."""
    place = tmp_path / "graph"
    export_silently(jina.folder, place, task="text-matching")
    backend = opened(place)
    assert (backend.info.tasks, backend.info.default_task) == (("text-matching",), "text-matching")
    for encoding in sample((2, 20)):
        states, maps = jina.run(encoding.token_ids, encoding.segment_ids, "text-matching")
        (output,) = run(backend, [encoding], [wanted(backend, "text-matching")])
        assert output.tokens is not None
        assert relative_distance(output.tokens, states) <= AS_A_GRAPH
        assert output.attention is not None
        assert distance(output.attention, maps) <= AS_A_GRAPH
