"""Sparse vectors of words from masked-word predictions, whatever runs them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.arrays import NUMPY
from model.checkpoints.checkpoint import load_checkpoint
from model.contract import Backend, Encoding, HeadInfo, SparseWant, Want
from model.errors import CheckpointError
from model.heads import sparse
from model.heads.predictor import Linear, Predictor
from model.heads.sparse import Splade, TokenWeights, largest_words, word_weights
from model.loading import load_model
from tests.references.checkpoints import SUITED
from tests.references.comparing import distance
from tests.references.late_interaction import write_json
from tests.references.splade import largest, weights_of, write_sparse_encoder
from tests.support.backends import load
from tests.support.exporting import export_silently
from tests.support.product import run

TEXTS = ["the man beats the boy", "hello, world", "a", "", "the boy " * 20]
OPTIONS = [("max", "relu"), ("sum", "relu"), ("max", "log1p_relu"), ("sum", "log1p_relu")]


def logits_of(model: Any, encoding: Encoding) -> Any:
    """Of every token, in `transformers`, alone."""
    with torch.inference_mode():
        return model(input_ids=torch.tensor([encoding.token_ids])).logits[0].double().numpy()


def check(model: Any, encodings: Sequence[Encoding], backend: Backend, bound: float, *options: str) -> None:
    """Every word above 0, in order, with its weight: in one batch with texts that want no words."""
    wants = [Want(heads=(SparseWant(),)), Want(token_layers=(1,))]
    outputs = run(backend, [one for one in encodings for _ in wants], wants * len(encodings))[::2]
    for encoding, output in zip(encodings, outputs, strict=True):
        expected = weights_of(logits_of(model, encoding), *options)
        ids, weights = output.heads["sparse_ids"], output.heads["sparse_weights"]
        assert ids.dtype == np.int32
        assert weights.dtype == np.float32
        dense = np.zeros_like(expected)
        dense[ids] = weights
        assert distance(dense, expected) <= bound * max(1, expected.max())
        assert (weights > 0).all()
        assert largest(dense) == [(int(i), float(w)) for i, w in zip(ids, weights, strict=True)]
        (few,) = run(backend, [encoding], [Want(heads=(SparseWant(top_k=5),))])
        assert distance(few.heads["sparse_weights"], weights[:5]) <= 1e-5


@pytest.mark.parametrize(("pooling", "activation"), OPTIONS)
def test_words_are_weighted_as_their_module_says(pooling: str, activation: str, tmp_path: Path) -> None:
    """Maximum or sum over all tokens, the logarithm once or twice."""
    model = write_sparse_encoder(tmp_path, pooling, activation, **SUITED)
    tokenizer, backend = load(tmp_path, "torch")
    check(model, tokenizer.encode(TEXTS), backend, 1e-5, pooling, activation)


@pytest.mark.parametrize("transformer", ["MLMTransformer", "Transformer"])
@pytest.mark.thorough
def test_an_exported_folder_has_the_same_words(transformer: str, tmp_path: Path) -> None:
    """Without PyTorch, whichever module the transformer is saved as."""
    model = write_sparse_encoder(tmp_path / "model", "sum", transformer=transformer, **SUITED)
    place = tmp_path / "graph"
    export_silently(tmp_path / "model", place)
    assert not (place / "model.safetensors").exists()
    tokenizer, backend = load_model(str(place), kind="onnx", device="cpu")
    check(model, tokenizer.encode(TEXTS), backend, 1e-5, "sum")


def test_words_in_blocks_are_the_words_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last layer runs for some words at a time, and the last block may be smaller."""
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(1000, 16)).astype(np.float32), rng.normal(size=1000).astype(np.float32)
    states = [rng.normal(size=(n, 16)).astype(np.float32) for n in (3, 1, 8)]
    predictor = Predictor(HeadInfo("masked_words", size=1000), None, (Linear(weight, bias),))
    monkeypatch.setattr(sparse, "_LOGITS_AT_ONCE", 1)
    for pooling in ("max", "sum"):
        found = word_weights(predictor, states, Splade(pooling), NUMPY)
        for state, ours in zip(states, found, strict=True):
            assert distance(ours, weights_of(state @ weight.T + bias, pooling)) <= 1e-5


def test_the_largest_words_come_first_and_ties_by_id() -> None:
    """Words without weight are left out, whatever is asked for; a NaN is not hidden."""
    weights = np.array([0.5, 0, 2, 0.5, -0.0, 0.5, 1], np.float32)
    everything = largest_words(weights, None)
    assert everything["sparse_ids"].tolist() == [2, 6, 0, 3, 5]
    for top_k in (1, 3, 4, 5, 7):
        some = largest_words(weights, top_k)
        assert some["sparse_ids"].tolist() == [2, 6, 0, 3, 5][:top_k]
        assert some["sparse_weights"].tolist() == [2, 1, 0.5, 0.5, 0.5][:top_k]
    assert len(largest_words(np.zeros(4, np.float32), 2)["sparse_ids"]) == 0
    weights[1] = np.nan
    assert np.isnan(largest_words(weights, 1)["sparse_weights"]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pooling_strategy": "mean"}, "pooling_strategy is 'mean'; it must be one of max, sum"),
        (
            {"activation_function": "gelu"},
            "activation_function is 'gelu'; it must be one of relu",
        ),
    ],
)
def test_another_pooling_ends_the_start(change: dict[str, str], message: str, tmp_path: Path) -> None:
    """With the field and what it may be."""
    write_sparse_encoder(tmp_path)
    write_json(tmp_path / "1_SpladePooling" / "config.json", change)
    with pytest.raises(CheckpointError) as refused:
        load_checkpoint(tmp_path)
    assert message in str(refused.value)


@pytest.mark.parametrize("kind", ["SparseStaticEmbedding", "SparseAutoEncoder", "CSRSparsity", "Router"])
def test_other_sparse_modules_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    """Their vectors would be others: the error names the module."""
    write_sparse_encoder(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text(encoding="utf-8"))
    modules[1]["type"] = f"sentence_transformers.sparse_encoder.models.{kind}"
    write_json(tmp_path / "modules.json", modules)
    with pytest.raises(CheckpointError, match=f"lists MLMTransformer, {kind}: headlight serves a Transfor"):
        load_checkpoint(tmp_path)


def test_the_pooling_of_words_needs_their_weights(tmp_path: Path) -> None:
    """An encoder alone cannot predict words; the start says so, and not the first request."""
    write_sparse_encoder(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    write_json(tmp_path / "config.json", config | {"architectures": ["BertModel"]})
    with pytest.raises(
        CheckpointError, match="the weights of the masked-language-model head, which SpladePooling needs"
    ):
        load_checkpoint(tmp_path)


def test_a_folder_may_say_how_many_words_are_kept(tmp_path: Path) -> None:
    """max_active_dims, unless a request asks for another number."""
    write_sparse_encoder(tmp_path)
    general = {"model_type": "SparseEncoder", "max_active_dims": 3}
    write_json(tmp_path / "config_sentence_transformers.json", general)
    tokenizer, backend = load(tmp_path, "torch")
    encodings = tokenizer.encode(TEXTS[:1]) * 2
    own, asked = run(backend, encodings, [Want(heads=(SparseWant(top_k=k),)) for k in (None, 5)])
    assert [len(one.heads["sparse_ids"]) for one in (own, asked)] == [3, 5]
    assert own.heads["sparse_ids"].tolist() == asked.heads["sparse_ids"][:3].tolist()


def test_a_word_has_the_largest_weight_of_its_tokens() -> None:
    """Of each sequence apart; ties by id, ignored ids nowhere, and a NaN first, which a check then finds."""
    rng = np.random.default_rng(5)
    weight = rng.integers(-2, 3, 8).astype(np.float32)  # whole numbers, of which many are equal
    weigh = TokenWeights(weight, 1.0, frozenset((0, 3)))
    states = [rng.integers(-2, 3, (length, 8)).astype(np.float32) for length in (30, 1, 7)]
    ids = [rng.integers(0, 12, len(state)) for state in states]
    for top_k in (None, 1, 4):
        found = weigh(states, ids, [top_k] * 3)
        for state, numbers, arrays in zip(states, ids, found, strict=True):
            largest: dict[int, float] = {}
            for row, number in zip(state, numbers.tolist(), strict=True):
                if number not in (0, 3):
                    largest[number] = max(largest.get(number, 0.0), float(row @ weight) + 1)
            expected = sorted((-value, number) for number, value in largest.items() if value > 0)[:top_k]
            assert arrays["sparse_ids"].tolist() == [number for _, number in expected]
            assert arrays["sparse_weights"].tolist() == [-value for value, _ in expected]
    states[2][3] = np.nan
    ids[2][3] = 5
    _, _, broken = weigh(states, ids, [1] * 3)
    assert broken["sparse_ids"].tolist() == [5]
    assert np.isnan(broken["sparse_weights"]).all()
