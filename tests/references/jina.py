"""jina's BERT in float64, step by step from its definition, and its checkpoints of random weights."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tests.references.checkpoints import write_tokenizer
from tests.references.encoder import activation, slopes, softmax
from tests.references.families import VOCABULARY

Array = NDArray[np.float64]

Head = Literal["SequenceClassification", "TokenClassification", "MaskedLM"]
LABELS = 3
GATES = {"geglu": "gelu", "reglu": "relu"}
PLAIN = "jinaai/jina-bert-implementation--configuration_bert.JinaBertConfig"
QK = "jinaai/jina-bert-v2-qk-post-norm--configuration_bert.JinaBertConfig"


@dataclass(frozen=True)
class JinaBert:
    """A checkpoint in a folder, and what it computes; `weights` are by their original names."""

    folder: Path
    config: dict[str, Any]
    weights: dict[str, Array]

    def run(self, ids: Sequence[int], segments: Sequence[int]) -> tuple[Array, Array]:
        """Hidden states (L + 1, N, C) and attention weights (L, H, N, N) of one input."""
        words, types = (self.weights[f"embeddings.{n}_embeddings.weight"] for n in ("word", "token_type"))
        x = self._norm("embeddings.LayerNorm", words[list(ids)] + types[list(segments)])
        states, maps = [x], []
        for number in range(self.config["num_hidden_layers"]):
            name = f"encoder.layer.{number}."
            mixed, weights = self._attend(name + "attention.", x)
            x = self._norm(name + "attention.output.LayerNorm", x + mixed)
            if self._normalises_queries:
                x = self._norm(name + "layer_norm_1", states[-1] + x)
                x = self._norm(name + "layer_norm_2", x + self._gated_up_first(name + "mlp.", x))
            elif self.config["feed_forward_type"] in GATES:
                x = self._norm(name + "mlp.layernorm", x + self._gated(name + "mlp.", x))
            else:
                inner = activation(self._linear(name + "intermediate.dense", x), self.config["hidden_act"])
                x = self._norm(name + "output.LayerNorm", x + self._linear(name + "output.dense", inner))
            states.append(x)
            maps.append(weights)
        return np.stack(states), np.stack(maps)

    def predict(self, head: Head, ids: Sequence[int], segments: Sequence[int]) -> Array:
        """The logits of BERT's heads, which jina's code has too: (labels,), or a row for each token."""
        states = self.run(ids, segments)[0][-1]
        match head:
            case "SequenceClassification":
                return self._linear("classifier", np.tanh(self._linear("pooler.dense", states[0])))
            case "TokenClassification":
                return self._linear("classifier", states)
            case "MaskedLM":
                inner = self._linear("cls.predictions.transform.dense", states)
                x = self._norm("cls.predictions.transform.LayerNorm", activation(inner, "gelu"))
                words = self.weights["embeddings.word_embeddings.weight"]
                return x @ words.T + self.weights["cls.predictions.bias"]

    @property
    def _normalises_queries(self) -> bool:
        return "encoder.layer.0.attention.self.layer_norm_q.weight" in self.weights

    def _attend(self, name: str, x: Array) -> tuple[Array, Array]:
        q, k, v = (self._linear(f"{name}self.{part}", x) for part in ("query", "key", "value"))
        if self._normalises_queries:  # before they are split into heads
            q, k = self._norm(name + "self.layer_norm_q", q), self._norm(name + "self.layer_norm_k", k)
        heads, places = self.config["num_attention_heads"], np.arange(len(x))
        distance = np.abs(places[:, None] - places[None, :])
        outputs, maps = [], []
        parts = (np.split(columns, heads, axis=1) for columns in (q, k, v))
        for queries, keys, values, slope in zip(*parts, slopes(heads), strict=True):
            maps.append(softmax(queries @ keys.T / np.sqrt(queries.shape[1]) - slope * distance))
            outputs.append(maps[-1] @ values)
        return self._linear(name + "output.dense", np.concatenate(outputs, axis=1)), np.stack(maps)

    def _gated(self, name: str, x: Array) -> Array:
        gate, up = np.split(x @ self.weights[name + "gated_layers.weight"].T, 2, axis=1)
        return self._linear(name + "wo", activation(gate, GATES[self.config["feed_forward_type"]]) * up)

    def _gated_up_first(self, name: str, x: Array) -> Array:
        up, gate = np.split(x @ self.weights[name + "up_gated_layer.weight"].T, 2, axis=1)
        product = up * activation(gate, GATES[self.config["feed_forward_type"]])
        return self._linear(name + "down_layer", product)

    def _linear(self, name: str, x: Array) -> Array:
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def _norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.config["layer_norm_eps"])
        return unit * self.weights[name + ".weight"] + self.weights[name + ".bias"]


def write_jina(
    folder: Path, code: str = PLAIN, *, prefix: str = "", head: Head | None = None, **options: Any
) -> JinaBert:
    """Save a small model of random weights, in which every parameter counts, with a tokenizer.

    `prefix` precedes the names of the encoder below a head.
    """
    config = {
        "model_type": "bert",
        "auto_map": {"AutoConfig": code, "AutoModel": code.replace("Config", "Model")},
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "max_position_embeddings": 64,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "position_embedding_type": "alibi",
        "feed_forward_type": "geglu",
        **({} if head is None else {"architectures": [f"JinaBertFor{head}"]}),
        **options,
    }
    write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = {name: _random(name, shape) for name, shape in _shapes(config, qk=code == QK).items()}
    above = {name: _random(name, shape) for name, shape in _head_shapes(config, head).items()}
    stored = {prefix + name: weight for name, weight in weights.items()} | above
    save_file(stored, folder / "model.safetensors")
    doubles = {name: weight.astype(np.float64) for name, weight in (weights | above).items()}
    return JinaBert(folder, config, doubles)


def _random(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Products keep the deviation of what they are given, and the weights of norms are near 1."""
    generator = np.random.default_rng(list(name.encode()))
    deviation = 0.3 if len(shape) == 1 else 1.0 if "embeddings" in name else shape[-1] ** -0.5
    norm = "norm" in name.lower() and name.endswith("weight")
    return (generator.normal(0.0, deviation, shape) + norm).astype(np.float32)


def _shapes(config: dict[str, Any], *, qk: bool) -> dict[str, tuple[int, ...]]:
    """The shapes of all parameters, by their original names."""
    size, inner = config["hidden_size"], config["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], size),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], size),
    }
    linear: dict[str, tuple[int, int]] = {"pooler.dense": (size, size)}
    norms = ["embeddings.LayerNorm"]
    for number in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{number}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            linear[f"{name}attention.{part}"] = (size, size)
        norms.append(name + "attention.output.LayerNorm")
        if qk:
            norms += [name + f"attention.self.layer_norm_{part}" for part in "qk"]
            norms += [name + f"layer_norm_{number}" for number in (1, 2)]
            shapes[name + "mlp.up_gated_layer.weight"] = (2 * inner, size)
            linear[name + "mlp.down_layer"] = (size, inner)
        elif config["feed_forward_type"] in GATES:
            norms.append(name + "mlp.layernorm")
            shapes[name + "mlp.gated_layers.weight"] = (2 * inner, size)
            linear[name + "mlp.wo"] = (size, inner)
        else:
            norms.append(name + "output.LayerNorm")
            linear |= {name + "intermediate.dense": (inner, size), name + "output.dense": (size, inner)}
    for name, shape in [*linear.items(), *((name, (size,)) for name in norms)]:
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


def _head_shapes(config: dict[str, Any], head: Head | None) -> dict[str, tuple[int, ...]]:
    """The shapes of a head's parameters; the matrix of words is that of the embeddings."""
    size, transform = config["hidden_size"], "cls.predictions.transform."
    match head:
        case None:
            return {}
        case "MaskedLM":
            norm = {f"{transform}LayerNorm.{kind}": (size,) for kind in ("weight", "bias")}
            dense = {f"{transform}dense.weight": (size, size), f"{transform}dense.bias": (size,)}
            return {**dense, **norm, "cls.predictions.bias": (config["vocab_size"],)}
        case _:
            return {"classifier.weight": (LABELS, size), "classifier.bias": (LABELS,)}
