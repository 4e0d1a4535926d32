"""A Router of sentence-transformers whose queries are weighed by a table: inference-free sparse retrieval.

`SparseStaticEmbedding` gives each token of a query, without special ones, its weight once; documents are
those of `splade.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from transformers import AutoTokenizer

from tests.references.checkpoints import write_bert
from tests.references.late_interaction import write_json
from tests.references.splade import weights_of

Array = NDArray[np.float64]
_MODULES = "sentence_transformers.sparse_encoder.modules"


@dataclass(frozen=True)
class Routed:
    """A written folder, with the model and the tokenizer of its documents, and the weights of its queries."""

    folder: Path
    model: Any
    tokenizer: Any
    weights: NDArray[np.float32]

    def query(self, text: str) -> Array:
        """The weight of every word in a query: (V,)."""
        found = np.zeros(len(self.weights))
        ids = self.tokenizer(text, add_special_tokens=False, truncation=True)["input_ids"]
        found[ids] = self.weights[ids]
        return found

    def document(self, text: str) -> Array:
        """The weight of every word in a document: (V,)."""
        with torch.inference_mode():
            inputs = self.tokenizer(text, return_tensors="pt", truncation=True)
            logits = self.model(**inputs).logits[0].numpy()
        return weights_of(logits, activation="log1p_relu")


def write_router(
    folder: Path, default: str | None = "query", prompts: Mapping[str, str] | None = None, **options: Any
) -> Routed:
    """Write the folder as `SparseEncoder.save_pretrained` does (sentence-transformers 6.2)."""
    names = ("query_0_SparseStaticEmbedding", "document_0_Transformer", "document_1_SpladePooling")
    query, transformer, pooling = (folder / name for name in names)
    folder.mkdir(parents=True, exist_ok=True)
    model = write_bert(transformer, architecture="BertForMaskedLM", **options)
    query.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (query / name).write_bytes((transformer / name).read_bytes())
    weights = np.random.default_rng(0).random(model.config.vocab_size).astype(np.float32)
    weights[7] = 0
    save_file({"weight": weights}, query / "model.safetensors")
    write_json(query / "config.json", {"frozen": True})
    text = {"method": "forward", "method_output_name": "logits"}
    sentence = {"transformer_task": "fill-mask", "modality_config": {"text": text}}
    write_json(
        transformer / "sentence_bert_config.json", sentence | {"module_output_name": "token_embeddings"}
    )
    pooling.mkdir()
    config = {"pooling_strategy": "max", "activation_function": "log1p_relu"}
    write_json(pooling / "config.json", config | {"embedding_dimension": len(weights)})
    places = ("sparse_static_embedding.SparseStaticEmbedding", "splade_pooling.SpladePooling")
    types = {
        names[0]: f"{_MODULES}.{places[0]}",
        names[1]: "sentence_transformers.base.modules.transformer.Transformer",
        names[2]: f"{_MODULES}.{places[1]}",
    }
    structure = {"query": [names[0]], "document": [*names[1:]]}
    parameters: dict[str, Any] = {"default_route": default, "allow_empty_key": True, "route_mappings": {}}
    write_json(
        folder / "router_config.json", {"types": types, "structure": structure, "parameters": parameters}
    )
    entry = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.router.Router"}
    write_json(folder / "modules.json", [entry])
    general = {"model_type": "SparseEncoder", "prompts": prompts or {"query": "", "document": ""}}
    write_json(folder / "config_sentence_transformers.json", general)
    return Routed(folder, model.eval(), AutoTokenizer.from_pretrained(transformer), weights)
