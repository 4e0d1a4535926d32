"""bge-m3 as FlagEmbedding defines it, in float64 on hidden states of `transformers`.

Written from the formulas of `M3Embedder.encode` and `M3Embedder.compute_score` of FlagEmbedding 1.4.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from tests.references.checkpoints import Reference
from tests.references.families import write_model

Array = NDArray[np.float64]
SIZE = 24
"""Of the vectors of tokens."""
_LENGTH = 64
_UNWEIGHTED = ("cls_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True)
class Vectors:
    """What bge-m3 makes of a text: `sparse` by token id, `tokens` (N − 1, SIZE), and the ids that ran."""

    ids: list[int]
    sentence: Array
    sparse: dict[int, float]
    tokens: Array


@dataclass(frozen=True)
class Hybrid:
    """A folder in the form of bge-m3, the same in `transformers`, and the two layers as PyTorch has them."""

    folder: Path
    reference: Reference
    sparse: torch.nn.Linear
    colbert: torch.nn.Linear

    def vectors(self, text: str) -> Vectors:
        """The three kinds of vectors of one text, alone."""
        tokenizer = self.reference.tokenizer
        ids = tokenizer(text, truncation=True, max_length=_LENGTH)["input_ids"]
        with torch.inference_mode():
            output = self.reference.model(
                input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)).long()
            )
        hidden = output.last_hidden_state[0].double().numpy()
        left_out = {getattr(tokenizer, f"{role}_id") for role in _UNWEIGHTED}
        sparse: dict[int, float] = {}
        for token, (weight,) in zip(ids, np.maximum(_apply(self.sparse, hidden), 0), strict=True):
            if token not in left_out and weight > sparse.get(token, 0):
                sparse[token] = float(weight)
        tokens = _apply(self.colbert, hidden[1:])
        return Vectors(ids, _unit(hidden[0]), sparse, _unit(tokens))

    def scores(self, query: str, texts: Sequence[str], weights: Sequence[float]) -> list[float]:
        """Those of `compute_score` by "colbert+sparse+dense", each pair alone."""
        asked, found = self.vectors(query), []
        for text in map(self.vectors, texts):
            dense = asked.sentence @ text.sentence
            sparse = sum(weight * text.sparse.get(token, 0) for token, weight in asked.sparse.items())
            late = (asked.tokens @ text.tokens.T).max(1).mean()
            sums = (weight * score for weight, score in zip(weights, (dense, sparse, late), strict=True))
            found.append(float(sum(sums) / sum(weights)))
        return found


def _apply(layer: torch.nn.Linear, rows: Array) -> Array:
    made: Array = rows @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()
    return made


def _unit(vectors: Array) -> Array:
    scaled: Array = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return scaled


def write_hybrid(folder: Path, *, modules: bool = True, pickled: bool = False, **options: Any) -> Hybrid:
    """Save a small XLM-RoBERTa of random weights with the layers of bge-m3, as safetensors or `pickled`.

    With `modules`, its folder says how sentence vectors are pooled, as that of bge-m3 does.
    """
    sizes = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": _LENGTH + 1,
        "pad_token_id": 0,
        "type_vocab_size": 1,
    }
    written = write_model(folder, "XLMRoberta", **{**sizes, **options})
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**settings, "eos_token": "[SEP]"}), encoding="utf-8")
    if modules:
        _write_modules(folder)
    torch.manual_seed(2)
    size = written.model.config.hidden_size
    sparse, colbert = torch.nn.Linear(size, 1), torch.nn.Linear(size, SIZE)
    with torch.no_grad():  # most weights above 0, of any size, some not
        sparse.weight.mul_(4)
        sparse.bias.add_(1)
    for name, layer in (("sparse_linear", sparse), ("colbert_linear", colbert)):
        if pickled:
            torch.save(layer.state_dict(), folder / f"{name}.pt")
        else:
            save_file(dict(layer.state_dict()), folder / f"{name}.safetensors")
    return Hybrid(folder, Reference.load(folder), sparse, colbert)


def _write_modules(folder: Path) -> None:
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(listed), encoding="utf-8")
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 64, "pooling_mode_cls_token": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
