"""SPLADE by its definition (Formal et al. 2021, equation 1; v2, equation 6), in float64.

`SpladePooling` of sentence-transformers pools the logits of every token that is not padding, special ones
included.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.references.checkpoints import write_bert
from tests.references.late_interaction import write_json

Array = NDArray[np.float64]


def weights_of(logits: NDArray[Any], pooling: str = "max", activation: str = "relu") -> Array:
    """The weight of every word, from logits (N, V) of a text: (V,)."""
    found = np.log(1 + np.maximum(logits.astype(np.float64), 0))
    if activation == "log1p_relu":
        found = np.log(1 + found)
    return found.max(0) if pooling == "max" else found.sum(0)


def largest(weights: Array) -> list[tuple[int, float]]:
    """Words with a weight above 0 and their weights, largest first, ties by id."""
    order = sorted(range(len(weights)), key=lambda word: (-weights[word], word))
    return [(word, float(weights[word])) for word in order if weights[word] > 0]


def write_sparse_encoder(
    folder: Path,
    pooling: str = "max",
    activation: str = "relu",
    *,
    transformer: str = "MLMTransformer",
    **options: Any,
) -> Any:
    """Save a small BERT of random weights as sentence-transformers saves a SparseEncoder; returns it."""
    model = write_bert(folder, architecture="BertForMaskedLM", **options)
    kinds = [("", transformer), ("1_SpladePooling", "SpladePooling")]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": path,
            "type": f"sentence_transformers.sparse_encoder.models.{kind}",
        }
        for i, (path, kind) in enumerate(kinds)
    ]
    write_json(folder / "modules.json", modules)
    general = {"model_type": "SparseEncoder", "prompts": {}, "similarity_fn_name": "dot"}
    write_json(folder / "config_sentence_transformers.json", general)
    (folder / "1_SpladePooling").mkdir()
    config = {
        "pooling_strategy": pooling,
        "activation_function": activation,
        "word_embedding_dimension": None,
    }
    write_json(folder / "1_SpladePooling" / "config.json", config)
    return model.eval()
