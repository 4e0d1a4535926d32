"""A MultiVectorEncoder of sentence-transformers 6, by the definitions of its modules.

`Transformer.preprocess` puts the prompt of the role before a text, cuts it and fills queries up; Dense layers
map hidden states of tokens; `MultiVectorMask` says which of them count; `Normalize` gives them unit length;
`HierarchicalTokenPooling` makes one vector of those that are alike. `RECORDED` has what the library itself
made of the same folders, after it had saved them once more.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from tests.references.checkpoints import Reference, write_bert
from tests.references.late_interaction import write_json

Array = NDArray[np.float64]
_HOMES = {
    "Transformer": "base.modules.transformer",
    "Dense": "base.modules.dense",
    "Normalize": "base.modules.normalize",
    "MultiVectorMask": "multi_vector_encoder.modules.multi_vector_mask",
    "HierarchicalTokenPooling": "multi_vector_encoder.modules.token_pooling",
}


@dataclass(frozen=True)
class MultiSettings:
    """What the folder says; `sizes` are those of the outputs of its Dense layers."""

    sizes: Sequence[int] = (24,)
    query_length: int | None = None
    document_length: int | None = None
    expansion: Mapping[str, Any] | None = None
    skipped: Sequence[str] = ()
    tasks: Sequence[str] = ("document",)
    prompts: Mapping[str, str] = field(default_factory=lambda: {"query": "", "document": ""})
    kept: Sequence[int] | None = None
    pooling: Mapping[str, Any] | None = None
    similarity: str | None = None


FIXED = {"strategy": "fixed", "attend": False, "token": None, "length": 12}
POOLED = {"pool_factor": 2.0, "num_protected_tokens": 1, "normalize_embeddings": True, "tasks": ["document"]}
BOTH = ["query", "document"]
CASES = {
    "pooled": MultiSettings(pooling=POOLED, document_length=20, skipped=[","]),
    "pooled queries": MultiSettings(
        pooling={"pool_factor": 1.5, "num_protected_tokens": 0, "tasks": BOTH}, expansion=FIXED
    ),
    "pooled to one": MultiSettings(
        pooling=POOLED | {"pool_factor": 100.0, "num_protected_tokens": 3}, similarity="meanmaxsim"
    ),
    "mean": MultiSettings(similarity="meanmaxsim", query_length=10, skipped=["the", "."], tasks=BOTH),
    "kept": MultiSettings(kept=[77, 78, 80, 82], skipped=["boy"], similarity="meanmaxsim"),
    "kept and pooled": MultiSettings(kept=[2, 77, 80, 82, 83], pooling=POOLED, sizes=()),
}
"""Folders whose vectors are recorded."""
TEXTS = ["the man beats the boy", "hello, world: [the boy].", "a", "", "🙃 . ,", "hello world " * 20]
COMPONENTS = 4
"""Recorded of each vector."""
RECORDED = Path(__file__).with_name("multi_vector.json")


def recorded() -> dict[str, dict[str, Any]]:
    """What sentence-transformers 6.2 makes of the texts in each of the `CASES`, by its name.

    Under "query" and "document" the first components of the vectors of each text, and under "scores" the
    similarity of each query with each document.
    """
    found: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class MultiVector:
    """A written folder, the same in `transformers`, and its matrices."""

    folder: Path
    reference: Reference
    matrices: Sequence[torch.Tensor]
    settings: MultiSettings

    def tokens(self, text: str, role: str) -> tuple[list[int], list[int], list[int]]:
        """The tokens of a text in a role, whether each is attended to, and those that have a vector."""
        tokenizer, settings = self.reference.tokenizer, self.settings
        limit = settings.query_length if role == "query" else settings.document_length
        expansion = settings.expansion if role == "query" else None
        if expansion is not None and expansion["strategy"] == "fixed":
            limit = expansion["length"]
        found = tokenizer(settings.prompts[role] + text, truncation=True, max_length=limit)
        ids, attended = found["input_ids"], found["attention_mask"]
        if expansion is not None:
            more = max(0, expansion["length"] - len(ids))
            ids = ids + [tokenizer.convert_tokens_to_ids(expansion.get("token") or "[MASK]")] * more
            attended = attended + [int(expansion.get("attend", False))] * more
        words = settings.skipped if role in settings.tasks else ()
        left_out = {tokenizer.convert_tokens_to_ids(word) for word in words} - {tokenizer.unk_token_id}
        rows = [i for i, token in enumerate(ids) if token not in left_out]
        if settings.kept and role == "document":
            rows = [row for row in rows if ids[row] in settings.kept]
        return ids, attended, rows

    def unit(self, ids: Sequence[int], attended: Sequence[int]) -> Array:
        """The vectors of all tokens of a sequence, of unit norm."""
        with torch.inference_mode():
            output = self.reference.model(
                input_ids=torch.tensor([ids]), attention_mask=torch.tensor([attended])
            )
        vectors = output.last_hidden_state[0].double().numpy()
        for matrix in self.matrices:
            vectors = vectors @ matrix.double().numpy().T
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def vectors(self, text: str, role: str) -> tuple[list[int], list[int], Array]:
        """The tokens of a text in a role, those that have a vector, and their vectors of unit norm."""
        ids, attended, rows = self.tokens(text, role)
        return ids, rows, self.unit(ids, attended)[rows]

    def pooled(self, text: str, role: str) -> tuple[Array, list[int]]:
        """What is left of the vectors of a text in a role, and the number of that for each of them."""
        return self.pool(self.vectors(text, role)[2], role)

    def pool(self, vectors: Array, role: str) -> tuple[Array, list[int]]:
        """Make one vector of those that are alike, if texts of a role are pooled."""
        config = self.settings.pooling or {"tasks": []}
        if role not in config["tasks"]:
            return vectors, [*range(len(vectors))]
        protected = min(config["num_protected_tokens"], len(vectors))
        some = len(vectors) - protected
        most = max(int(some // config["pool_factor"]), 1)
        numbers = np.arange(1, some + 1)
        if some > most:
            rest = vectors[protected:]
            distances = squareform(np.clip(1 - rest @ rest.T, 0, 2), checks=False)
            numbers = fcluster(linkage(distances, "ward"), most, "maxclust")
        means = [vectors[protected:][numbers == number].mean(0) for number in np.unique(numbers)]
        found = np.array([*vectors[:protected], *means]).reshape(-1, vectors.shape[1])
        if config.get("normalize_embeddings"):
            found /= np.linalg.norm(found, axis=1, keepdims=True)
        return found, [*range(protected), *(protected + numbers - 1).tolist()]

    def score(self, query: str, document: str) -> float:
        """MaxSim of two texts, or its mean over the vectors of the query."""
        return self.max_sim(self.pooled(query, "query")[0], self.pooled(document, "document")[0])

    def max_sim(self, first: Array, second: Array) -> float:
        """MaxSim of the vectors of a query and a document, or its mean."""
        found = float((first @ second.T).max(1).sum()) if len(second) else -1e9
        return found / len(first) if self.settings.similarity == "meanmaxsim" else found


def write_multi_vector(folder: Path, settings: MultiSettings | None = None, **options: Any) -> MultiVector:
    """Write the folder as `MultiVectorEncoder.save_pretrained` does (sentence-transformers 6.2)."""
    settings = settings or MultiSettings()
    size = write_bert(folder, **options).config.hidden_size
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    sentence: dict[str, Any] = {"transformer_task": "feature-extraction", "modality_config": {"text": text}}
    sentence |= {"module_output_name": "token_embeddings"}
    given: dict[str, Any] = {
        "query_length": settings.query_length,
        "document_length": settings.document_length,
        "query_expansion": settings.expansion,
    }
    sentence |= {name: value for name, value in given.items() if value is not None}
    write_json(folder / "sentence_bert_config.json", sentence)
    torch.manual_seed(1)
    matrices, modules = list[torch.Tensor](), [("Transformer", "")]
    level = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    for number, outputs in enumerate(settings.sizes, 1):
        place = folder / f"{number}_Dense"
        place.mkdir()
        dense = {"in_features": size, "out_features": outputs, "bias": False, **level}
        dense["activation_function"] = "torch.nn.modules.linear.Identity"
        write_json(place / "config.json", dense)
        matrices.append(torch.randn(outputs, size) * size**-0.5)
        save_file({"linear.weight": matrices[-1]}, place / "model.safetensors")
        modules.append(("Dense", place.name))
        size = outputs
    mask: dict[str, Any] = {"skiplist_words": list(settings.skipped), "skiplist_tasks": list(settings.tasks)}
    configs: list[tuple[str, Any]] = [("MultiVectorMask", {**mask, "keep_only_token_ids": settings.kept})]
    configs.append(("Normalize", level))
    if settings.pooling is not None:
        configs.append(("HierarchicalTokenPooling", settings.pooling))
    for kind, config in configs:
        place = folder / f"{len(modules)}_{kind}"
        place.mkdir()
        write_json(place / "config.json", config)
        modules.append((kind, place.name))
    write_listing(folder, modules)
    general: dict[str, Any] = {"model_type": "MultiVectorEncoder", "prompts": dict(settings.prompts)}
    general |= {"default_prompt_name": None, "similarity_fn_name": settings.similarity}
    write_json(folder / "config_sentence_transformers.json", general)
    return MultiVector(folder, Reference.load(folder), matrices, settings)


def write_listing(folder: Path, modules: Sequence[tuple[str, str]]) -> None:
    """Write a modules.json of these kinds and paths."""
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{_HOMES[kind]}.{kind}"}
        for i, (kind, path) in enumerate(modules)
    ]
    write_json(folder / "modules.json", entries)
