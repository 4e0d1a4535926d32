"""CSR as `SparseAutoEncoder` of sentence-transformers computes it at inference (Wen et al. 2025), in float64.

The weights of features are W·(x − b) + c of a text's vector x, of which the k largest count if they are
above 0. With `normalize`, x first gets mean 0 and the sample's deviation 1, to which 1e-5 is added.
`RECORDED` has what the library itself made of the same folders, after it had saved them once more.
"""

import json
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

Array = NDArray[np.float64]
FEATURES, KEPT = 200, 17
MODULE = "3_SparseAutoEncoder"
TEXTS = ["the man beats the boy", "hello, world: [the boy].", "a", "", "the boy " * 20]
RECORDED = Path(__file__).with_name("autoencoder.json")


def recorded() -> dict[str, list[dict[str, float]]]:
    """What sentence-transformers 6.2 makes of TEXTS: the weight of each feature, by its number.

    Under "plain", under "normalized", and under "prompted" with both `normalize` and the prompt "the boy ",
    which is not pooled.
    """
    found: dict[str, list[dict[str, float]]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class Csr:
    """A written folder, its encoder and tokenizer in `transformers`, and the tensors of its autoencoder."""

    folder: Path
    model: Any
    tokenizer: Any
    tensors: dict[str, NDArray[Any]]
    normalize: bool

    def weights(self, text: str, k: int = KEPT, unpooled: str = "") -> Array:
        """The weight of every feature: (F,). The tokens of `unpooled`, which precedes it, are not pooled."""
        inputs = self.tokenizer(unpooled + text, return_tensors="pt", truncation=True)
        skip = len(self.tokenizer(unpooled)["input_ids"]) - 1 if unpooled else 0
        with torch.inference_mode():
            x = self.model(**inputs).last_hidden_state[0, skip:].double().numpy().mean(0)
        x = x / np.linalg.norm(x)
        if self.normalize:
            x = x - x.mean()
            x = x / (x.std(ddof=1) + 1e-5)
        tensors = {name: array.astype(np.float64) for name, array in self.tensors.items()}
        found = tensors["decoder.linear.weight"] @ (x - tensors["pre_bias"]) + tensors["latent_bias"]
        found[np.argsort(-found)[k:]] = 0
        return np.maximum(found, 0)


def write_csr(folder: Path, *, normalize: bool = False, include_prompt: bool = True, **options: Any) -> Csr:
    """Write a small BERT of random weights as `SparseEncoder.save_pretrained` does (6.2).

    The weights of the encoder are stored once, as those of the decoder.
    """
    model = write_bert(folder, **options)
    size = model.config.hidden_size
    kinds = {
        "": "base.modules.transformer.Transformer",
        "1_Pooling": "sentence_transformer.modules.pooling.Pooling",
        "2_Normalize": "base.modules.normalize.Normalize",
        MODULE: "sparse_encoder.modules.sparse_auto_encoder.SparseAutoEncoder",
    }
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    write_json(folder / "modules.json", modules)
    general = {"model_type": "SparseEncoder", "max_active_dims": KEPT, "similarity_fn_name": None}
    write_json(folder / "config_sentence_transformers.json", {**general, "prompts": {"query": "the boy "}})
    for path in ("1_Pooling", MODULE):
        (folder / path).mkdir()
    pooling = {"embedding_dimension": size, "pooling_mode": "mean", "include_prompt": include_prompt}
    write_json(folder / "1_Pooling" / "config.json", pooling)
    config = {"input_dim": size, "hidden_dim": FEATURES, "k": KEPT, "k_aux": 32, "dead_threshold": 30}
    write_json(folder / MODULE / "config.json", {**config, "normalize": normalize})
    rng = np.random.default_rng(3)
    shapes = {"decoder.linear.weight": (FEATURES, size), "latent_bias": (FEATURES,), "pre_bias": (size,)}
    tensors: dict[str, NDArray[Any]] = {
        name: rng.normal(scale=0.05 if len(shape) == 1 else size**-0.5, size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    tensors["stats_last_nonzero"] = np.zeros(FEATURES, np.int64)
    save_file(tensors, folder / MODULE / "model.safetensors", {"encoder.weight": "decoder.linear.weight"})
    return Csr(folder, model.eval(), AutoTokenizer.from_pretrained(folder), tensors, normalize)
