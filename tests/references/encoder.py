"""An encoder written out in plain numpy, and the mathematics that it is made of."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ids = Sequence[int]


def softmax(scores: Array) -> Array:
    """Softmax over the last axis."""
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def activation(x: Array, kind: str) -> Array:
    """The activations from their formulas, number by number."""
    formulas = {
        "relu": lambda z: max(z, 0.0),
        "gelu": lambda z: z * 0.5 * (1.0 + math.erf(z / math.sqrt(2.0))),
        "gelu_tanh": lambda z: 0.5 * z * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (z + 0.044715 * z**3))),
        "silu": lambda z: z / (1.0 + math.exp(-z)),
    }
    return np.vectorize(formulas[kind], otypes=[np.float64])(x) if x.size else x


def similarity(q: Array, k: Array, kind: str, factor: Array | None = None) -> Array:
    """Compare each query (N, D) with each key (M, D), pair by pair, by the definition."""
    scores = np.empty((len(q), len(k)))
    for i, j in np.ndindex(scores.shape):
        difference = q[i] - k[j]
        match kind:
            case "dot_product":
                scores[i, j] = q[i] @ k[j] / math.sqrt(q.shape[1])
            case "cosine":
                scores[i, j] = q[i] @ k[j] / (np.linalg.norm(q[i]) * np.linalg.norm(k[j]))
            case "manhattan":
                scores[i, j] = -np.abs(difference).sum()
            case "mahalanobis":
                assert factor is not None
                scores[i, j] = -math.sqrt(difference @ (factor @ factor.T) @ difference)
    return scores


def sinusoid(position: int, size: int) -> list[float]:
    """One position code of Vaswani et al. 2017, component by component."""
    code = []
    for pair in range(size // 2):
        angle = position / 10_000 ** (2 * pair / size)
        code += [math.sin(angle), math.cos(angle)]
    return code


def turn(x: Array, base: float) -> Array:
    """Rotary positions (N, D) as complex numbers: component i and i + D/2 are one number, turned."""
    half = x.shape[1] // 2
    angles = np.outer(np.arange(len(x)), base ** (-np.arange(half) / half))
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angles)
    return np.concatenate((turned.real, turned.imag), axis=1)


def bucket(distance: int, buckets: int, max_distance: int) -> int:
    """The bucket of one distance (key minus query), Raffel et al. 2020, in whole and exact steps."""
    half = buckets // 2
    exact, steps = half // 2, abs(distance)
    offset = half if distance > 0 else 0
    if steps < exact:
        return offset + steps
    grown = math.log(steps / exact) / math.log(max_distance / exact) * (half - exact)
    return offset + min(half - 1, exact + int(grown + 1e-9))


class NaiveEncoder:
    """An encoder over one sequence in float64 numpy, head by head.

    `config` has the fields of an encoder's config, `weights` its parameters by name.
    """

    def __init__(self, config: Any, weights: Mapping[str, Array]) -> None:
        self.config = config
        self.weights = weights

    def __call__(self, ids: Ids, segments: Ids | None = None) -> tuple[list[Array], Array]:
        """Hidden states, L + 1 of (N, C), and attention weights (L, H, N, N)."""
        config, x = self.config, self._embed(ids, segments or [0] * len(ids))
        states, maps = [x], []
        for layer in range(config.num_layers):
            name, pre = f"blocks.{layer}.", config.norm == "pre"
            mixed, weights = self._attend(name, self._norm(name + "attention_norm", x) if pre else x)
            x = x + mixed
            x = x if pre else self._norm(name + "attention_norm", x)
            inner = self._feed_forward(name, self._norm(name + "feed_forward_norm", x) if pre else x)
            x = x + inner
            x = x if pre else self._norm(name + "feed_forward_norm", x)
            states.append(x)
            maps.append(weights)
        if config.norm == "pre":
            states[-1] = self._norm("final_norm", x)
        return states, np.stack(maps)

    def _embed(self, ids: Ids, segments: Ids) -> Array:
        config, w = self.config, self.weights
        scale = math.sqrt(config.hidden_size) if config.scale_embeddings else 1.0
        rows = []
        for position, (token, segment) in enumerate(zip(ids, segments, strict=True)):
            row = w["embeddings.token"][token] * scale
            if config.segments:
                row = row + w["embeddings.segment"][segment]
            if config.positions == "learned":
                row = row + w["embeddings.position"][position]
            if config.positions == "sinusoidal":
                row = row + np.array(sinusoid(position, config.hidden_size))
            rows.append(row)
        x = np.stack(rows)
        return self._norm("embeddings.norm", x) if config.embedding_norm else x

    def _attend(self, name: str, x: Array) -> tuple[Array, Array]:
        config, size, w = self.config, self.config.head_size, self.weights
        q, k, v = np.split(self._linear(name + "attention.qkv", x), 3, axis=1)
        outputs, maps = [], []
        for head in range(config.num_heads):
            part = slice(head * size, (head + 1) * size)
            qh, kh = q[:, part], k[:, part]
            if config.positions == "rotary":
                qh, kh = turn(qh, config.rotary_base), turn(kh, config.rotary_base)
            metric = w.get(name + "attention.metric")
            scores = similarity(qh, kh, config.similarity, None if metric is None else metric[head])
            for i, j in np.ndindex(scores.shape):
                if config.positions == "relative_bias":
                    place = bucket(j - i, config.relative_buckets, config.relative_max_distance)
                    scores[i, j] += w["relative_bias"][place, head]
                hidden = config.visibility == "causal" and j > i
                if hidden or (config.visibility == "windowed" and abs(i - j) > config.window):
                    scores[i, j] = -math.inf
            maps.append(softmax(scores))
            outputs.append(maps[-1] @ v[:, part])
        return self._linear(name + "attention.output", np.concatenate(outputs, axis=1)), np.stack(maps)

    def _feed_forward(self, name: str, x: Array) -> Array:
        inner = self._linear(name + "feed_forward.inner", x)
        if self.config.gated:
            gate, value = np.split(inner, 2, axis=1)
            inner = activation(gate, self.config.activation) * value
        else:
            inner = activation(inner, self.config.activation)
        return self._linear(name + "feed_forward.outer", inner)

    def _linear(self, name: str, x: Array) -> Array:
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def _norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.config.norm_eps)
        return unit * self.weights[name + ".weight"] + self.weights[name + ".bias"]
