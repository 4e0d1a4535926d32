"""Tables of token vectors as model2vec and sentence-transformers save them, and what both make of texts.

Neither library is needed: a vector is a mean, which numpy computes here from the tokenizer's ids.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from tests.references.checkpoints import write_tokenizer

Floats = NDArray[np.float64]
SIZE = 24


@dataclass(frozen=True)
class Static:
    """A written folder; `vectors` (V, C) are those of its tokens, `steps` follow the mean.

    `limit` is how many tokens are read, and `dropped` the token left out after that; `characters` are kept
    before. None stands for all, and for no token.
    """

    folder: Path
    tokenizer: Tokenizer
    vectors: Floats
    steps: Sequence[Callable[[Floats], Floats]] = ()
    limit: int | None = None
    dropped: int | None = None
    characters: int | None = None

    def ids(self, text: str) -> list[int]:
        """The tokens that count."""
        if self.limit is None:
            self.tokenizer.no_truncation()
        else:
            self.tokenizer.enable_truncation(self.limit)
        found = self.tokenizer.encode(text[: self.characters], add_special_tokens=False).ids
        return [one for one in found if one != self.dropped]

    def vector(self, text: str) -> Floats:
        """The vector of a text."""
        ids = self.ids(text)
        mean = self.vectors[ids].mean(0) if ids else np.zeros(self.vectors.shape[1])
        for step in self.steps:
            mean = step(mean)
        return mean


def unit(vector: Floats) -> Floats:
    """Scale to unit length; 0 stays 0."""
    scaled: Floats = vector / max(float(np.linalg.norm(vector)), 1e-12)
    return scaled


def write_model2vec(
    folder: Path,
    *,
    normalize: bool = True,
    quantized: bool = False,
    dtype: str = "float32",
    listed: bool = True,
    seed: int = 0,
    **config: Any,
) -> Static:
    """Write a folder as `StaticModel.save_pretrained` does (model2vec 0.10).

    A `quantized` one has fewer rows than tokens, a mapping and weights; `listed` is whether it has a
    modules.json, which releases before 0.4 do not write.
    """
    count = write_tokenizer(folder)
    (folder / "tokenizer_config.json").unlink()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    random = np.random.default_rng(seed)
    rows = random.normal(size=(count // 2 if quantized else count, SIZE)) * (20 if dtype == "int8" else 1)
    tensors: dict[str, NDArray[Any]] = {"embeddings": rows.astype(dtype)}
    vectors = tensors["embeddings"].astype(np.float64)
    if quantized:
        mapping, weights = random.integers(0, len(rows), count), random.random(count)
        tensors |= {"mapping": mapping, "weights": weights}
        vectors = vectors[mapping] * weights[:, None]
    save_file(tensors, folder / "model.safetensors")
    written = {"model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": SIZE, **config}
    written |= {"normalize": normalize, "embedding_dtype": dtype}
    (folder / "config.json").write_text(json.dumps(written), encoding="utf-8")
    kinds = [("StaticEmbedding", "."), *([("Normalize", "1_Normalize")] if normalize else [])]
    if listed:
        write_modules(folder, kinds)
    limit = config.get("max_length", 512)
    return Static(
        folder,
        tokenizer,
        vectors,
        (unit,) if normalize else (),
        limit,
        tokenizer.token_to_id("[UNK]"),
        None if limit is None else limit * int(median(map(len, tokenizer.get_vocab()))),
    )


def write_sentence_transformers(folder: Path, *, place: str = "", seed: int = 0, **general: Any) -> Static:
    """Write a StaticEmbedding, a Dense with tanh and a Normalize as sentence-transformers 6 does."""
    home = folder / place
    count = write_tokenizer(home)
    (home / "tokenizer_config.json").unlink()
    tokenizer = Tokenizer.from_file(str(home / "tokenizer.json"))
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(count, SIZE))
    weight, bias = random.normal(size=(SIZE // 2, SIZE)), random.normal(size=SIZE // 2)
    save_file({"embedding.weight": vectors.astype(np.float32)}, home / "model.safetensors")
    dense = folder / "1_Dense"
    dense.mkdir()
    save_file(
        {"linear.weight": weight.astype(np.float32), "linear.bias": bias.astype(np.float32)},
        dense / "model.safetensors",
    )
    config: dict[str, Any] = {"in_features": SIZE, "out_features": SIZE // 2, "bias": True}
    config["activation_function"] = "torch.nn.modules.activation.Tanh"
    (dense / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_modules(folder, [("StaticEmbedding", place), ("Dense", "1_Dense"), ("Normalize", "2_Normalize")])
    written = {"model_type": "SentenceTransformer", "similarity_fn_name": "cosine", **general}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(written), encoding="utf-8")

    def cut(vector: Floats) -> Floats:
        return vector[: general.get("truncate_dim")]

    return Static(folder, tokenizer, vectors, (lambda vector: np.tanh(weight @ vector + bias), unit, cut))


def write_modules(folder: Path, kinds: Sequence[tuple[str, str]]) -> None:
    """Write a modules.json of these kinds and paths."""
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(entries), encoding="utf-8")
