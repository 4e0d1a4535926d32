"""What explanations are by their definitions, computed token by token in float64."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from tests.references.checkpoints import write_bert

Array = NDArray[np.float64]


def pooled_parts(hidden: Array, pooling: str, skip: int = 0) -> Array:
    """What each token (N, C) adds to the pooled vector: (N, C), twice as wide with mean_max."""
    if pooling == "mean_max":
        return np.concatenate([pooled_parts(hidden, one, skip) for one in ("mean", "max")], axis=1)
    parts = np.zeros_like(hidden, np.float64)
    count = len(hidden) - skip
    for i in range(skip, len(hidden)):
        if pooling == "mean":
            parts[i] = hidden[i] / count
        elif pooling == "mean_sqrt_len":
            parts[i] = hidden[i] / count**0.5
        elif pooling == "weighted_mean":
            parts[i] = hidden[i] * (i + 1) / sum(range(skip + 1, len(hidden) + 1))
        else:
            largest = [skip + int(hidden[skip:, c].argmax()) for c in range(hidden.shape[1])]
            parts[i] = [hidden[i, c] if largest[c] == i else 0.0 for c in range(hidden.shape[1])]
    return parts


def cosine_parts(first: Array, second: Array) -> Array:
    """The product of every part of one vector with every part of the other, over the norms of their sums."""
    norms = np.linalg.norm(first.sum(0)) * np.linalg.norm(second.sum(0))
    return np.array([[one @ other / norms for other in second] for one in first])


def interaction_parts(query: Array, document: Array) -> Array:
    """Each row has one number: the largest product of a token of the query with one of the document."""
    products = query @ document.T
    parts = np.zeros_like(products)
    for i, row in enumerate(products):
        parts[i, row.argmax()] = row.max()
    return parts


def write_with_layers(folder: Path, activations: Sequence[str], **options: Any) -> tuple[Any, list[Array]]:
    """Save a small BERT with mean pooling, linear layers with a bias and these activations, and Normalize.

    Returns the model and, for each layer, its weight with the bias as a last column.
    """
    model = write_bert(folder, **options)
    size = model.config.hidden_size
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    write(folder / "1_Pooling", {"word_embedding_dimension": size, "pooling_mode_mean_tokens": True})
    torch.manual_seed(3)
    layers = []
    for number, activation in enumerate(activations, start=2):
        weight, bias = torch.randn(24, size) * size**-0.5, 0.3 * torch.randn(24)
        path = f"{number}_Dense"
        settings = {"in_features": size, "out_features": 24, "bias": True, "activation_function": activation}
        write(folder / path, settings)
        save_file({"linear.weight": weight, "linear.bias": bias}, folder / path / "model.safetensors")
        modules.append(
            {"idx": number, "name": path, "path": path, "type": "sentence_transformers.models.Dense"}
        )
        layers.append(np.column_stack([weight.double().numpy(), bias.double().numpy()]))
        size = 24
    last = len(modules)
    modules.append(
        {"idx": last, "name": "n", "path": f"{last}_N", "type": "sentence_transformers.models.Normalize"}
    )
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    return model.eval(), layers


def write(folder: Path, settings: dict[str, Any]) -> None:
    """Write the config of a module."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
