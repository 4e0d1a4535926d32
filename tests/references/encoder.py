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
        "tanh": math.tanh,
    }
    return np.vectorize(formulas[kind], otypes=[np.float64])(x) if x.size else x


def similarity(
    q: Array, k: Array, kind: str, factor: Array | None = None, scale: float | None = None
) -> Array:
    """Compare each query (N, D) with each key (M, D), pair by pair, by the definition.

    `scale` stands in the place of 1/√D.
    """
    scores = np.empty((len(q), len(k)))
    scale = 1 / math.sqrt(q.shape[1]) if scale is None else scale
    for i, j in np.ndindex(scores.shape):
        difference = q[i] - k[j]
        match kind:
            case "dot_product":
                scores[i, j] = q[i] @ k[j] * scale
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


def turn(x: Array, frequencies: Sequence[float], *, interleaved: bool = False) -> Array:
    """Rotary positions (N, D): two components are one complex number, turned by position · frequency.

    Of the first 2·F components, number i goes with number i + F, or `interleaved` 2·i with 2·i + 1. The
    others stay as they are. Angles alone are rounded to float32, as models are trained with.
    """
    turned, count = x.copy(), len(frequencies)
    for i, frequency in enumerate(frequencies):
        first, second = (2 * i, 2 * i + 1) if interleaved else (i, i + count)
        angles = np.arange(len(x), dtype=np.float32) * np.float32(frequency)
        pair = (x[:, first] + 1j * x[:, second]) * np.exp(1j * angles.astype(np.float64))
        turned[:, first], turned[:, second] = pair.real, pair.imag
    return turned


def bucket(distance: int, buckets: int, max_distance: int) -> int:
    """The bucket of one distance (key minus query), Raffel et al. 2020, in whole and exact steps."""
    half = buckets // 2
    exact, steps = half // 2, abs(distance)
    offset = half if distance > 0 else 0
    if steps < exact:
        return offset + steps
    grown = math.log(steps / exact) / math.log(max_distance / exact) * (half - exact)
    return offset + min(half - 1, exact + int(grown + 1e-9))


def distance_row(distance: int, kinds: Any) -> int:
    """The row of one distance (query minus key) in the table of DeBERTa, He et al. 2021, §3.1 and their code.

    Up to half of the buckets are exact, the rest grow logarithmically up to the distance before the longest.
    """
    steps, span = abs(distance), kinds.buckets or kinds.max_distance
    exact = kinds.buckets // 2
    if exact and steps > exact:
        grown = math.log(steps / exact) / math.log((kinds.max_distance - 1) / exact) * (exact - 1)
        steps = exact + math.ceil(grown - 1e-9)
    return min(max(span + (steps if distance > 0 else -steps), 0), 2 * span - 1)


def slopes(heads: int) -> list[float]:
    """The slopes of ALiBi, Press et al. 2022: for a power of two, a geometric sequence from 2^(−8/heads).

    Its first number is its ratio, too. Other numbers of heads take the slopes of the power of two below
    them, and for the rest every second slope, from the first on, of twice that power.
    """
    below = 1
    while 2 * below <= heads:
        below *= 2
    if below == heads:
        ratio = 2.0 ** (-8.0 / heads)
        return [ratio**number for number in range(1, heads + 1)]
    return slopes(below) + slopes(2 * below)[0::2][: heads - below]


def places(ids: Ids, offset: int, padding: int | None) -> list[int]:
    """The row of each token in the table of positions: they are counted from `offset`, without padding."""
    rows, following = [], offset
    for token in ids:
        rows.append(token if token == padding else following)
        following += token != padding
    return rows


def token_factors(ids: Ids, mask: int | None) -> list[float]:
    """Token dropout: masks count nothing, and the rest for as much as in training, when 12 % were masks."""
    if mask is None:
        return [1.0] * len(ids)
    kept = sum(token != mask for token in ids) / len(ids)
    return [0.0 if token == mask else 0.88 / kept for token in ids]


class NaiveEncoder:
    """An encoder over one sequence in float64 numpy, head by head.

    `config` has the fields of an encoder's config, `weights` its parameters by name.
    """

    def __init__(self, config: Any, weights: Mapping[str, Array]) -> None:
        self.config = config
        self.weights = weights
        self.head_size = config.head_dim or config.hidden_size // config.num_heads

    def __call__(self, ids: Ids, segments: Ids | None = None) -> tuple[list[Array], Array]:
        """Hidden states, L + 1 of (N, C), and attention weights (L, H, N, N) of the layers that attend."""
        x = self._embed(ids, segments or [0] * len(ids))
        states, maps = [x], []
        for number in range(self.config.num_layers):
            x, weights = self._block(number, x)
            if self.config.per_layer_size:
                x = self._gate_by_layer(number, x, states[0])
            states.append(x)
            maps += [] if weights is None else [weights]
        if self.config.norm != "post":
            states[-1] = self._norm("final_norm", x)
        return states, np.stack(maps)

    def project(self, number: int, state: Array) -> tuple[Array, Array, Array]:
        """What a layer compares and mixes of the hidden state before it: q, k, v, each (H, N, D)."""
        config, name, layer = self.config, self._name(number), self._layer(number)
        heads, rotary, size = config.num_heads, layer.rotary, layer.head_dim or self.head_size
        x = state if config.norm == "post" else self._attention_norm(number, state)
        columns = self._linear(name + "attention.qkv", x, bias=config.qkv_bias)
        vectors = list(columns.reshape(len(x), -1, size).transpose(1, 0, 2))
        groups = layer.num_kv_heads or config.num_kv_heads or heads
        q, k, v = vectors[:heads], vectors[heads : heads + groups], vectors[heads + groups :]
        if config.qk_norm == "joint":
            q = self._joint_norm(name + "attention.query_norm", q)
            k = self._joint_norm(name + "attention.key_norm", k)
        elif config.qk_norm:
            q = [self._norm(name + "attention.query_norm", one, config.qk_norm) for one in q]
            k = [self._norm(name + "attention.key_norm", one, config.qk_norm) for one in k]
        if config.value_norm:
            v = [one / np.sqrt((one**2).mean(-1, keepdims=True) + config.norm_eps) for one in v]
        if rotary is not None:
            q, k = (
                [turn(one, rotary.frequencies, interleaved=rotary.interleaved) for one in both]
                for both in (q, k)
            )
        group = [head // (heads // groups) for head in range(heads)]  # neighbours share a key and a value
        return np.stack(q), np.stack([k[g] for g in group]), np.stack([v[g] for g in group])

    def scores(self, number: int, state: Array) -> Array:
        """The scores of a layer before its softmax, (H, N, N), from the hidden state before it."""
        config, name = self.config, self._name(number)
        metrics = self.weights.get(name + "attention.metric", [None] * config.num_heads)
        q, k, _ = self.project(number, state)
        compared = [
            similarity(q[head], k[head], config.similarity, metrics[head], config.scale)
            for head in range(config.num_heads)
        ]
        scores = np.stack(compared) + self._bias(name, len(state))
        if config.disentangled is not None:
            scores += self._position_terms(name, q, k)
        window = self._layer(number).window
        for i, j in np.ndindex(len(state), len(state)):
            if (config.causal and j > i) or (window and abs(i - j) > window):
                scores[:, i, j] = -math.inf
        return scores

    def _name(self, number: int) -> str:
        return f"blocks.{self.config.shared[number] if self.config.shared else number}."

    def _layer(self, number: int) -> Any:
        layers = self.config.layers
        return layers[0] if len(layers) == 1 else layers[number]

    def _embed(self, ids: Ids, segments: Ids) -> Array:
        config, w = self.config, self.weights
        table = w["embeddings.token"]
        scale = math.sqrt(table.shape[1]) if config.scale_embeddings else 1.0
        rows = []
        positions = places(ids, config.position_offset, config.padding_id)
        factors = token_factors(ids, config.token_dropout)
        for token, segment, position, factor in zip(ids, segments, positions, factors, strict=True):
            row = table[token] * scale * factor
            if config.segments:
                row = row + w["embeddings.segment"][segment]
            if config.positions == "learned":
                row = row + w["embeddings.position"][position]
            if config.positions == "sinusoidal":
                row = row + np.array(sinusoid(position, len(row)))
            rows.append(row)
        x = np.stack(rows)
        if config.project_first:
            x = self._linear("embeddings.projection", x, bias=False)
            return self._norm("embeddings.norm", x) if config.embedding_norm else x
        x = self._norm("embeddings.norm", x) if config.embedding_norm else x
        return self._linear("embeddings.projection", x, bias=True) if config.embedding_size else x

    def _block(self, number: int, x: Array) -> tuple[Array, Array | None]:
        output, weights = self._transform(number, x)
        convolution, name = self._layer(number).convolution, self._name(number)
        if convolution is None:
            return output, weights
        around = self._convolve(name + "convolution", x, convolution)
        return self._norm(name + "convolution_norm", output + around), weights

    def _gate_by_layer(self, number: int, x: Array, first: Array) -> Array:
        """Add what a layer makes of its own part of hidden state 0, gated by x, and scale the sum."""
        name, size = self._name(number) + "per_layer.", self.config.per_layer_size
        rows = self.weights["per_layer_inputs.projection.weight"][number * size : (number + 1) * size]
        given = self._norm("per_layer_inputs.norm", first @ rows.T / math.sqrt(first.shape[1]))
        gate = activation(self._linear(name + "inner", x, bias=False), self.config.activation)
        added = self._norm(name + "norm", self._linear(name + "outer", gate * given, bias=False))
        return (x + added) * self.weights[name + "scale"]

    def _convolve(self, name: str, x: Array, convolution: Any) -> Array:
        """The weighted sum of each token and its neighbours, of which a group of channels sees its own."""
        kernel = self.weights[name + ".weight"]  # (C, C / groups, kernel_size)
        size, (channels, seen, width) = len(x), kernel.shape
        output = np.tile(self.weights[name + ".bias"], (size, 1))
        for token, channel, step in np.ndindex(size, channels, width):
            neighbour = token + step - width // 2
            first = channel // (channels // convolution.groups) * seen
            if 0 <= neighbour < size:
                output[token, channel] += x[neighbour, first : first + seen] @ kernel[channel, :, step]
        return activation(output, convolution.activation)

    def _short_convolve(self, number: int, state: Array) -> Array:
        """The weighted sum of a few tokens, channel by channel, in the place of attention (LFM2)."""
        convolution, name = self._layer(number).short_convolution, self._name(number) + "short_convolution."
        x = state if self.config.norm == "post" else self._attention_norm(number, state)
        before, after, gated = np.split(self._linear(name + "inner", x, bias=convolution.bias), 3, axis=1)
        kernel, width = self.weights[name + "weight"][:, 0], convolution.kernel_size
        reach = width - 1 if convolution.causal else width // 2
        summed = np.zeros_like(x) + (self.weights[name + "bias"] if convolution.bias else 0)
        for token, column in np.ndindex(len(x), width):
            neighbour = token + column - reach
            if 0 <= neighbour < len(x):
                summed[token] += before[neighbour] * gated[neighbour] * kernel[:, column]
        return self._linear(name + "outer", after * summed, bias=convolution.bias)

    def _transform(self, number: int, x: Array) -> tuple[Array, Array | None]:
        name, order, weights = self._name(number), self.config.norm, None
        if self._layer(number).short_convolution is None:
            mixed, weights = self._attend(number, x)
        else:
            mixed = self._short_convolve(number, x)
        if self.config.double_residual:
            mixed = self._norm(name + "attention_output_norm", x + mixed)
        if order == "post":
            x = self._attention_norm(number, x + mixed)
            return self._norm(name + "feed_forward_norm", x + self._feed_forward(number, x)), weights
        if order == "sandwich" and not self.config.double_residual:
            mixed = self._norm(name + "attention_output_norm", mixed)
        x = x + mixed
        inner = self._feed_forward(number, self._norm(name + "feed_forward_norm", x))
        if order == "sandwich":
            inner = self._norm(name + "feed_forward_output_norm", inner)
        return x + inner, weights

    def _attention_norm(self, number: int, x: Array) -> Array:
        if not self._layer(number).attention_norm:
            return x
        return self._norm(self._name(number) + "attention_norm", x)

    def _attend(self, number: int, state: Array) -> tuple[Array, Array]:
        _, _, v = self.project(number, state)
        weights = softmax(self.scores(number, state))
        mixed = np.concatenate([one @ values for one, values in zip(weights, v, strict=True)], axis=1)
        name = self._name(number) + "attention.output"
        return self._linear(name, mixed, bias=self.config.output_bias), weights

    def _bias(self, name: str, length: int) -> Array:
        """What is added to the scores of each head, (H, N, N), by the distance of key and query."""
        config, relative = self.config, self.config.relative_bias
        bias = np.zeros((config.num_heads, length, length))
        slope = np.array(slopes(config.num_heads))
        if relative is not None:
            table = self.weights[name + "attention.relative_bias" if relative.per_layer else "relative_bias"]
        for i, j in np.ndindex(length, length):
            if relative is not None:
                bias[:, i, j] += table[bucket(j - i, relative.buckets, relative.max_distance)]
            if config.alibi:
                bias[:, i, j] -= slope * abs(i - j)
        return bias

    def _position_terms(self, name: str, q: Array, k: Array) -> Array:
        """What scores of each head, (H, N, N), have besides the products of q and k, (H, N, D)."""
        config, kinds, name = self.config, self.config.disentangled, name + "attention."
        table = self.weights["distances.table"]
        table = self._norm("distances.norm", table) if kinds.norm else table

        def project(own: str, half: int) -> Array:
            if not kinds.shared:
                projected = self._linear(name + own, table, bias=True)
            else:
                every = self._linear(name + "qkv", table, bias=config.qkv_bias)
                projected = np.split(every, 3, axis=1)[half]
            return np.stack(np.split(projected, config.num_heads, axis=1))  # (H, rows, D)

        terms = np.zeros((len(q), q.shape[1], q.shape[1]))
        scale = 1 / math.sqrt(self.head_size) if config.scale is None else config.scale
        queries = project("position_query", 0) if kinds.position_to_content else None
        keys = project("position_key", 1) if kinds.content_to_position else None
        for head, i, j in np.ndindex(terms.shape):
            row = distance_row(i - j, kinds)
            if keys is not None:
                terms[head, i, j] += q[head, i] @ keys[head, row] * scale
            if queries is not None:
                terms[head, i, j] += k[head, j] @ queries[head, row] * scale
        return terms

    def _feed_forward(self, number: int, x: Array) -> Array:
        config, name, mixture = self.config, self._name(number), self._layer(number).mixture
        if mixture is not None:
            return np.stack([self._mix_experts(name + "feed_forward.", token, mixture) for token in x])
        inner = self._linear(name + "feed_forward.inner", x, bias=config.inner_bias)
        if config.gated:
            gate, value = np.split(inner, 2, axis=1)
            inner = activation(gate, config.activation) * value
        else:
            inner = activation(inner, config.activation)
        return self._linear(name + "feed_forward.outer", inner, bias=config.outer_bias)

    def _mix_experts(self, name: str, token: Array, mixture: Any) -> Array:
        """The chosen experts of one token, (C,) to (C,), each times its share of all experts."""
        w = self.weights
        firsts, seconds = (np.split(w[name + half], mixture.experts) for half in ("first", "second"))
        shares = softmax(w[name + "router.weight"] @ token)
        output = w[name + "bias"].copy()
        for expert in np.argsort(shares)[-mixture.chosen :]:
            inner = activation(firsts[expert] @ token, self.config.activation)
            output += shares[expert] * (inner @ seconds[expert])
        return output

    def _linear(self, name: str, x: Array, *, bias: bool) -> Array:
        product = x @ self.weights[name + ".weight"].T
        return product + self.weights[name + ".bias"] if bias else product

    def _joint_norm(self, name: str, heads: list[Array]) -> list[Array]:
        """Normalise the vectors (N, D) of all heads as one vector."""
        return np.split(self._norm(name, np.concatenate(heads, axis=1), "layer"), len(heads), axis=1)

    def _norm(self, name: str, x: Array, kind: str | None = None) -> Array:
        """Normalise (…, n) by its mean and deviation, or of kind "rms" by its root mean square alone."""
        kind = kind or self.config.norm_kind
        centred = x if kind == "rms" else x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.config.norm_eps)
        scaled = unit * self.weights[name + ".weight"]
        return scaled + self.weights[name + ".bias"] if kind == "layer" and self.config.norm_bias else scaled
