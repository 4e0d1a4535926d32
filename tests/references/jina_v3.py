"""jina-embeddings-v3 with adapters in float64, step by step from its definition, and its checkpoints.

A task's weight is W + alpha/rank · BA for a linear layer, and W + alpha/rank · AB for a table (the original's
`LoRAParametrization`); without a task it is W.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tests.references.checkpoints import write_tokenizer
from tests.references.encoder import activation, softmax
from tests.references.families import VOCABULARY

Array = NDArray[np.float64]

TASKS = ("retrieval.query", "retrieval.passage", "separation", "classification", "text-matching")
CODE = "jinaai/xlm-roberta-flash-implementation--configuration_xlm_roberta.XLMRobertaFlashConfig"


@dataclass(frozen=True)
class JinaV3:
    """A checkpoint in a folder, and what it computes; `weights` are by their original names."""

    folder: Path
    config: dict[str, Any]
    weights: dict[str, Array]

    def run(
        self, ids: Sequence[int], segments: Sequence[int], task: str | None = None
    ) -> tuple[Array, Array]:
        """Hidden states (L + 1, N, C) and attention weights (L, H, N, N) of one input."""
        states, maps, _ = self.compute(ids, segments, task)
        return states, maps

    def compute(
        self, ids: Sequence[int], segments: Sequence[int], task: str | None
    ) -> tuple[Array, Array, Array]:
        """Hidden states and weights as `run`, and the norms of the weighted values (L, H, N, N)."""
        words, types = (
            self._weight(f"embeddings.{name}_embeddings", task) for name in ("word", "token_type")
        )
        rows = list(segments) if len(types) > 1 else [0] * len(ids)
        x = self._norm("emb_ln", words[list(ids)] + types[rows])
        states, maps, norms = [x], [], []
        for number in range(self.config["num_hidden_layers"]):
            name = f"encoder.layers.{number}."
            mixed, weights, norm = self._attend(name + "mixer.", x, task)
            x = self._norm(name + "norm1", x + mixed)
            inner = activation(self._linear(name + "mlp.fc1", x, task), "gelu")
            x = self._norm(name + "norm2", x + self._linear(name + "mlp.fc2", inner, task))
            states.append(x)
            maps.append(weights)
            norms.append(norm)
        return np.stack(states), np.stack(maps), np.stack(norms)

    def _attend(self, name: str, x: Array, task: str | None) -> tuple[Array, Array, Array]:
        heads = self.config["num_attention_heads"]
        q, k, v = (
            np.split(part, heads, axis=1) for part in np.split(self._linear(name + "Wqkv", x, task), 3, 1)
        )
        out = np.split(self._weight(name + "out_proj", task), heads, axis=1)  # (C, D) of each head
        outputs, maps, norms = [], [], []
        for queries, keys, values, columns in zip(q, k, v, out, strict=True):
            scores = self._turn(queries) @ self._turn(keys).T / np.sqrt(queries.shape[1])
            maps.append(softmax(scores))
            outputs.append(maps[-1] @ values)
            norms.append(maps[-1] * np.linalg.norm(values @ columns.T, axis=1))
        return (
            self._linear(name + "out_proj", np.concatenate(outputs, axis=1), task),
            np.stack(maps),
            np.stack(norms),
        )

    def _turn(self, x: Array) -> Array:
        """Turn component i with component i + D/2 by position · base^(−2i/D)."""
        half = x.shape[1] // 2
        frequencies = self.config["rotary_emb_base"] ** (-np.arange(half) / half)
        angles = np.arange(len(x))[:, None] * frequencies
        first, second = x[:, :half], x[:, half:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=1)

    def _weight(self, name: str, task: str | None) -> Array:
        if f"{name}.weight" in self.weights:
            assert task is None
            return self.weights[f"{name}.weight"]
        weight = self.weights[f"{name}.parametrizations.weight.original"]
        if task is None:
            return weight
        number = self.config["lora_adaptations"].index(task)
        a, b = (self.weights[f"{name}.parametrizations.weight.0.lora_{x}"][number] for x in "AB")
        product = a @ b if "embeddings" in name else b @ a
        return weight + self.config["lora_alpha"] / self.config["lora_rank"] * product

    def _linear(self, name: str, x: Array, task: str | None) -> Array:
        return x @ self._weight(name, task).T + self.weights[name + ".bias"]

    def _norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.config["layer_norm_eps"])
        return unit * self.weights[name + ".weight"] + self.weights[name + ".bias"]


def write_jina_v3(folder: Path, *, adapters: bool = True, **options: Any) -> JinaV3:
    """Save a small model of random weights, in which every parameter counts, as jina's code saves it."""
    config = {
        "model_type": "xlm-roberta",
        "auto_map": {"AutoConfig": CODE, "AutoModel": CODE.replace("configuration_xlm", "modeling_lora")},
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "max_position_embeddings": 66,
        "type_vocab_size": 1,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "position_embedding_type": "rotary",
        "rotary_emb_base": 20000.0,
        "load_trained_adapters": adapters,
        "lora_adaptations": list(TASKS) if adapters else None,
        "lora_rank": 4,
        "lora_alpha": 1,
        **options,
    }
    write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = {name: _random(name, shape) for name, shape in _shapes(config).items()}
    save_file({f"roberta.{name}": x for name, x in weights.items()}, folder / "model.safetensors")
    return JinaV3(folder, config, {name: x.astype(np.float64) for name, x in weights.items()})


def _random(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Products keep the deviation of what they are given, updates half of it."""
    generator = np.random.default_rng(list(name.encode()))
    wide = "embeddings" in name or name.endswith("lora_B")
    deviation = 0.3 if len(shape) == 1 else 1.0 if wide else shape[-1] ** -0.5
    norm = ("norm" in name or "emb_ln" in name) and name.endswith("weight")
    return (generator.normal(0.0, deviation, shape) + norm).astype(np.float32)


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of all parameters, by their original names."""
    size, inner, rank = config["hidden_size"], config["intermediate_size"], config["lora_rank"]
    tables = {"word": config["vocab_size"], "token_type": config["type_vocab_size"]}
    matrices = {f"embeddings.{name}_embeddings": (rows, size) for name, rows in tables.items()}
    norms, matrices["pooler.dense"] = ["emb_ln"], (size, size)
    for number in range(config["num_hidden_layers"]):
        name = f"encoder.layers.{number}."
        matrices |= {name + "mixer.Wqkv": (3 * size, size), name + "mixer.out_proj": (size, size)}
        matrices |= {name + "mlp.fc1": (inner, size), name + "mlp.fc2": (size, inner)}
        norms += [name + "norm1", name + "norm2"]
    shapes: dict[str, tuple[int, ...]] = {}
    for name in norms:
        shapes |= {f"{name}.weight": (size,), f"{name}.bias": (size,)}
    tasks = config["lora_adaptations"] if config["load_trained_adapters"] else None
    for name, (rows, columns) in matrices.items():
        table = "embeddings" in name
        shapes |= {} if table else {f"{name}.bias": (rows,)}
        if tasks is None:
            shapes[f"{name}.weight"] = (rows, columns)
            continue
        below = f"{name}.parametrizations.weight."
        shapes[below + "original"] = (rows, columns)
        shapes[below + "0.lora_A"] = (len(tasks), rows, rank) if table else (len(tasks), rank, columns)
        shapes[below + "0.lora_B"] = (len(tasks), rank, columns) if table else (len(tasks), rows, rank)
    return shapes
