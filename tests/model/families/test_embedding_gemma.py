"""EmbeddingGemma 2, against `transformers`."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from export.errors import ExportError
from model.checkpoints.checkpoint import load_checkpoint
from model.contract import SentenceWant, Want
from model.errors import CheckpointError
from model.families.decoders.embedding_gemma import read_text, read_whole
from model.pytorch.backend import TorchBackend
from tests.model.test_interventions import check
from tests.references.comparing import relative_distance
from tests.references.embedding_gemma import write_text
from tests.references.interventions import run_changed
from tests.support.exporting import export_silently
from tests.support.families import EXACT, SIZES, check_torch, every_option
from tests.support.product import run

GEMMA2: dict[str, Any] = {
    **SIZES,
    "num_key_value_heads": 3,
    "head_dim": 16,
    "global_head_dim": 24,
    "num_global_key_value_heads": 1,
    "hidden_size_per_layer_input": 8,
    "embedding_dim": 30,
    "sliding_window": 3,
    "layer_types": ["sliding_attention", "full_attention", "full_attention"],
}
KEYS = {"num_key_value_heads": 1}
SCALED = {
    "full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "biases": {"attention_bias": True},
    "kinds by a pattern": {"layer_types": None, "sliding_window_pattern": 3},
    "other angles": {"rope_parameters": SCALED},
    "sizes by layer": {"per_layer_config": {0: {"head_dim": 8}, 1: KEYS, 2: KEYS}},
    "silu": {"hidden_activation": "silu"},
    "coarse norms": {"rms_norm_eps": 0.1},
}


@every_option(OPTIONS, 3)
def test_every_option_of_embedding_gemma_is_the_reference_s(options: dict[str, Any], tmp_path: Path) -> None:
    """Hidden states and maps of every layer, alone and beside others."""
    check_torch(write_text(tmp_path, **{**GEMMA2, **options}))


TEXTS = ["the man beats the boy", "a", "hello world " * 9]


@pytest.mark.parametrize("whole", [False, True])
def test_vectors_are_those_of_the_projection(whole: bool, tmp_path: Path) -> None:
    """Of every token, pooled; also of a model for images and sounds, of which a part is served."""
    written = write_text(tmp_path, **GEMMA2)
    if whole:
        config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
        towers = {"vision_config": {}, "audio_config": {}, "image_token_id": 99}
        nested = {"model_type": "embedding_gemma2", "architectures": ["EmbeddingGemma2Model"], **towers}
        (tmp_path / "config.json").write_text(json.dumps({**nested, "text_config": config}), encoding="utf-8")
        tensors = load_file(tmp_path / "model.safetensors")
        others = {
            "embed_vision.embedding_projection.weight": torch.ones(48, 7),
            "audio_tower.a": torch.ones(2),
        }
        renamed = {f"model.language_model.{name}": tensor for name, tensor in tensors.items()}
        save_file({**renamed, **others}, tmp_path / "model.safetensors")
    checkpoint = load_checkpoint(tmp_path, strict=True)
    backend = TorchBackend(checkpoint, device="cpu", dtype="float32")
    info = backend.info
    assert (info.sentence_size, info.hidden_size, info.pooling) == (30, 48, ("mean",))
    want = Want(SentenceWant(("mean",), (info.layers,)))
    encodings = checkpoint.tokenizer.encode(TEXTS)
    for encoding, output in zip(encodings, run(backend, encodings, [want] * 3), strict=True):
        with torch.inference_mode():
            found = written.model(torch.tensor([encoding.token_ids])).last_hidden_state[0]
        assert relative_distance(output.sentence, found.double().mean(0).numpy()) <= EXACT


def test_interventions_are_those_of_hooks(tmp_path: Path) -> None:
    """What layers get of the embeddings is that before hidden state 0 is changed."""
    written = write_text(tmp_path, **GEMMA2)
    written.model.embedding_projection = torch.nn.Identity()
    backend = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype="float32")
    check(backend, partial(run_changed, written))


def test_graphs_and_gradients_are_refused(tmp_path: Path) -> None:
    """A graph is refused by the export; gradients by the service, which the model tells."""
    written = write_text(tmp_path / "model", **GEMMA2)
    assert not TorchBackend(load_checkpoint(written.folder), device="cpu").info.differentiable
    with pytest.raises(ExportError, match="heads of their own, norms of values, or more inputs than one"):
        export_silently(written.folder, tmp_path / "graph")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"layer_types": ["sliding_attention"] * 3},
            'layer_types ends in "sliding_attention"; the l',
        ),
        ({"layer_types": ["chunked_attention"] * 3}, 'layer_types has "chunked_attention"; a kind is "full'),
        ({"per_layer_config": {"7": {}}}, "it must have objects by the numbers of layers, from 0 to 2"),
        ({"per_layer_config": {"1": {"sliding_window": 9}}}, "per_layer_config of layer 1 is {'sliding_wind"),
        ({"per_layer_config": {"1": {"head_dim": 0}}}, "head_dim is 0; it must be at least 1"),
        ({"per_layer_config": {"1": {"num_key_value_heads": 2}}}, "num_heads 3 is not a multiple of num_kv_"),
        ({"hidden_size_per_layer_input": 0}, "hidden_size_per_layer_input is 0; it must be at least 1"),
        ({"sliding_window": 0}, "sliding_window is 0; it must be at least 1"),
        ({"hidden_activation": "xielu"}, 'hidden_activation "xielu" is not one of gelu'),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, 'rope_type "yarn" is not supported'),
    ],
)
def test_what_is_not_supported_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    """With the field, its value and what is."""
    config = json.loads((write_text(tmp_path, **GEMMA2).folder / "config.json").read_text(encoding="utf-8"))
    with pytest.raises(CheckpointError) as refused:
        read_text({**config, **change})
    assert said in str(refused.value)
    with pytest.raises(CheckpointError, match="text_config is None; it must be an object"):
        read_whole({"text_config": None})
