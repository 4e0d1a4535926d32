"""jina-embeddings-v3 with the adapters of its tasks, against its definition in float64."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from export.errors import ExportError
from model.checkpoints.checkpoint import load_checkpoint
from model.contract import AttentionWant, SentenceWant, Want
from model.errors import CheckpointError
from model.pytorch.backend import TorchBackend
from model.pytorch.kernels import library
from model.pytorch.kernels.library import Kernels, find_kernels
from tests.references.comparing import distance, relative_distance
from tests.references.families import change_config
from tests.references.jina_v3 import TASKS, JinaV3, write_jina_v3
from tests.support.exporting import export_silently, opened
from tests.support.families import AS_A_GRAPH, EXACT, check, check_torch, sample
from tests.support.kernel import EVERY, held_to_widening, needs_kernels
from tests.support.product import run, want_all

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "another rank and alpha": {"lora_rank": 6, "lora_alpha": 3},
    "two segments": {"type_vocab_size": 2},
    "one task": {"lora_adaptations": ["only"]},
    "another base": {"rotary_emb_base": 100.0},
}


@pytest.fixture
def jina(tmp_path: Path) -> JinaV3:
    """A model with five tasks."""
    return write_jina_v3(tmp_path / "jina")


@pytest.fixture(autouse=True)
def _kernels_of_avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with products of their own, which lay out the weights, also on a processor with AVX-512."""
    can = {**torch.cpu.get_capabilities(), "avx512_f": False}

    def find(dtype: torch.dtype) -> Kernels:
        return find_kernels(dtype, can if dtype == torch.float32 else None)

    monkeypatch.setattr(library, "find_kernels", find)


def backend_of(reference: JinaV3, *, native: bool, dtype: str = "float32") -> TorchBackend:
    """The model on PyTorch; kernels lay the weights out anew, so each loads them."""
    return TorchBackend(load_checkpoint(reference.folder), device="cpu", dtype=dtype, native=native)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_each_task_has_its_weights(options: dict[str, Any], native: bool, tmp_path: Path) -> None:
    """Every hidden state and map of sequences of all tasks and of none, in one batch and alone."""
    reference = write_jina_v3(tmp_path, **options)
    backend = backend_of(reference, native=native)
    tasks = [None, *reference.config["lora_adaptations"]]
    assert backend.info.tasks == (*tasks[1:],)
    assert backend.info.default_task is None
    inputs = [encoding for encoding in sample((1, 7, 20)) for _ in tasks]
    wants = [Want(**as_dict(want_all(backend)), task=tasks[i % len(tasks)]) for i in range(len(inputs))]
    together = run(backend, inputs, wants)
    for encoding, want, beside in zip(inputs, wants, together, strict=True):
        hidden, maps = reference.run(encoding.token_ids, encoding.segment_ids, want.task)
        for output in (beside, *run(backend, [encoding], [want])):
            assert distance(output.attention, maps) <= EXACT
            assert relative_distance(output.tokens, hidden) <= EXACT


def as_dict(want: Want) -> dict[str, Any]:
    """The fields of a want that selects hidden states and maps."""
    return {"token_layers": want.token_layers, "attention": want.attention}


def test_a_model_with_adapters_runs_without_a_task_as_fast_as_ever(jina: JinaV3) -> None:
    """The native kernels run it wherever they run the same model without adapters."""
    check_torch(jina)
    plain = write_jina_v3(jina.folder.with_name("plain"), adapters=False)
    ours, theirs = (backend_of(reference, native=True) for reference in (jina, plain))
    assert ours.info.kernels == theirs.info.kernels
    assert (ours.encoder.executor is None) == (theirs.encoder.executor is None)
    assert (ours.encoder.embedder is None) == (theirs.encoder.embedder is None)


@pytest.mark.parametrize("native", [True, False])
def test_value_norms_are_those_of_the_task_s_weights(native: bool, jina: JinaV3) -> None:
    """The output weight that they are measured with has an adapter too."""
    backend = backend_of(jina, native=native)
    (encoding,) = sample((9,))
    attention = AttentionWant((0, 1, 2), (0, 1, 2), weights="value_norm")
    tasks = [None, *TASKS]
    outputs = run(backend, [encoding] * len(tasks), [Want(attention=attention, task=task) for task in tasks])
    for task, output in zip(tasks, outputs, strict=True):
        _, _, norms = jina.compute(encoding.token_ids, encoding.segment_ids, task)
        assert relative_distance(output.attention, norms) <= EXACT


@needs_kernels
def test_auto_is_float32_where_adapters_keep_avx2_from_widening_weights(jina: JinaV3) -> None:
    """PyTorch would run bfloat16 there, slowly; named, it does."""
    with held_to_widening():
        auto, named = (backend_of(jina, native=True, dtype=dtype) for dtype in ("auto", "bfloat16"))
    assert (auto.info.dtype, auto.info.kernels) == ("float32", EVERY)
    assert (named.info.dtype, named.info.kernels) == ("bfloat16", None)
    assert named.info.no_kernels == "in bfloat16 they support no adapters"


def test_in_bfloat16_a_task_s_vectors_point_the_same_way(jina: JinaV3) -> None:
    """Adapters run in the precision of the products; the cosine to float64 is that of models without."""
    backend = backend_of(jina, native=True, dtype="bfloat16")
    want = SentenceWant(layers=(3,))
    for encoding in sample((5, 20)):
        outputs = run(backend, [encoding] * 6, [Want(want, task=task) for task in (None, *TASKS)])
        for task, output in zip((None, *TASKS), outputs, strict=True):
            assert output.sentence is not None
            expected = jina.run(encoding.token_ids, encoding.segment_ids, task)[0][-1].mean(0)
            lengths = np.linalg.norm(output.sentence) * np.linalg.norm(expected)
            assert output.sentence @ expected / lengths > 0.9995


@pytest.mark.thorough
def test_a_graph_is_exported_for_one_task(jina: JinaV3, tmp_path: Path) -> None:
    """It has that task's weights, with a request's task and without, and names the task."""
    place = tmp_path / "graph"
    with pytest.raises(ExportError, match=r"adapters for several tasks \(retrieval.query, .*--task none"):
        export_silently(jina.folder, place)
    with pytest.raises(ExportError, match="--task is other, which the model does not have: choose from retr"):
        export_silently(jina.folder, place, task="other")
    assert not place.exists()
    export_silently(jina.folder, place, task="separation")
    backend = opened(place)
    assert (backend.info.tasks, backend.info.default_task) == (("separation",), "separation")
    for encoding in sample((2, 20)):
        hidden, maps = jina.run(encoding.token_ids, encoding.segment_ids, "separation")
        wants = [Want(**as_dict(want_all(backend)), task=task) for task in (None, "separation")]
        for output in run(backend, [encoding] * 2, wants):
            assert distance(output.attention, maps) <= AS_A_GRAPH
            assert relative_distance(output.tokens, hidden) <= AS_A_GRAPH


@pytest.mark.repeated
def test_a_graph_is_exported_without_any_adapter(jina: JinaV3, tmp_path: Path) -> None:
    """With --task none it has the weights that a request without a task runs with."""
    place = tmp_path / "graph"
    export_silently(jina.folder, place, task="none")
    backend = opened(place)
    assert (backend.info.tasks, backend.info.default_task) == ((), None)
    check(backend, jina, sample((2, 20)), AS_A_GRAPH)


def test_a_task_is_refused_for_a_model_without_adapters(tmp_path: Path) -> None:
    """Instead of exporting other weights than those that were asked for."""
    plain = write_jina_v3(tmp_path / "plain", adapters=False)
    with pytest.raises(ExportError, match="--task is separation, but this model has no adapters"):
        export_silently(plain.folder, tmp_path / "graph", task="separation")


def test_the_original_form_without_adapters_is_served(tmp_path: Path) -> None:
    """Its weights then have their plain names."""
    check_torch(write_jina_v3(tmp_path, adapters=False))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lora_adaptations": []}, r"lora_adaptations is \[\]; it must be a list of 1 to 64 names"),
        ({"lora_adaptations": ["a", "a"]}, "it must be a list of 1 to 64 names, each once"),
        ({"lora_adaptations": "a"}, "lora_adaptations is 'a'; it must be a list"),
        ({"lora_rank": 0}, "lora_rank is 0; it must be at least 1"),
        ({"lora_alpha": -1}, "lora_alpha is -1; it must be a number above 0"),
        ({"load_trained_adapters": 1}, "load_trained_adapters is 1; it must be true or false"),
        ({"rotary_emb_interleaved": True}, "rotary_emb_interleaved is True, which is not supported"),
        ({"position_embedding_type": "absolute"}, 'position_embedding_type "absolute" is not supported'),
        ({"lora_rank": 3}, "the weights do not match config.json; misshapen: .*lora_A"),
        ({"lora_adaptations": ["a"]}, "misshapen: .*lora_A"),
        ({"lora_adaptations": None}, "unexpected: .*lora_A"),
    ],
)
def test_a_config_that_does_not_describe_its_adapters_is_refused(
    changes: dict[str, Any], said: str, jina: JinaV3
) -> None:
    """The sentence names the field or the weights."""
    change_config(jina.folder, **changes)
    with pytest.raises(CheckpointError, match=said):
        load_checkpoint(jina.folder)


def test_a_missing_adapter_is_named(jina: JinaV3) -> None:
    """A task that had lost a part of its weights would give other vectors."""
    file = jina.folder / "model.safetensors"
    name = "roberta.encoder.layers.1.mlp.fc2.parametrizations.weight.0.lora_B"
    weights = load_file(file)
    del weights[name]
    save_file(weights, file)
    with pytest.raises(CheckpointError, match=r"missing: encoder\.layers\.1\.mlp\.fc2.*lora_B"):
        load_checkpoint(jina.folder)
