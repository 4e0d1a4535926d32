"""The encoder in the form that is traced to ONNX: over padded sequences, with its attention as outputs.

It runs the blocks of `model/encoder/block.py`, which alone define the order of the steps. Only attention and
convolutions differ: sequences are padded to a rectangle (B, N); queries, keys and values are three products;
and lists of indices select what is observed. These lists are inputs, because a runtime computes every output
of a graph, whether it is fetched or not.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.similarities import compare, prepare
from model.encoder.attending.disentangled import distance_rows
from model.encoder.attention import SelfAttention
from model.encoder.block import Block
from model.encoder.convolution import GatedConvolution, TokenConvolution
from model.encoder.encoder import Encoder
from model.encoder.feed_forward import PerLayerGate
from model.encoder.linear import Linear
from model.encoder.positions import alibi, by_query_and_key, distances, relative_bias, rotary_angles, visible

_LOWEST = torch.finfo(torch.float32).min


class TracedEncoder(nn.Module):
    """An encoder over B sequences of N tokens; inputs and outputs are those of `model/onnx/names.py`.

    The encoder must be on the CPU and not prepacked.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.config = encoder.config
        self.embeddings = encoder.embeddings
        self.layers = nn.ModuleList(_TracedBlock(encoder, cast(Block, block)) for block in encoder.blocks)
        self.final_norm = encoder.final_norm
        self.relative_bias = encoder.relative_bias
        self.per_layer_inputs = encoder.per_layer_inputs

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
        tokens: tuple[Tensor, ...],
        lists: tuple[tuple[Tensor, ...], ...],
        sequence_mask: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Run padded sequences, from the inputs in `input_names` to the outputs in `output_names`.

        `tokens` groups the lists of tokens of all states, and `lists` the lists of each layer.
        """
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)  # (N,)
        places = self.embeddings.position_rows(positions, input_ids)  # (N,) or (B, N)
        count = partial(_count_real, real=attention_mask)
        weights = self.embeddings.token_weights(input_ids, count)  # (B, N)
        x = self.embeddings(input_ids, token_type_ids, places, weights)  # (B, N, C)
        states, observed = [_select(x, tokens[0])], []
        given = None if self.per_layer_inputs is None else self.per_layer_inputs(x)  # (L, B, N, P)
        sources = None if given is None else torch.arange(input_ids.numel()).view(input_ids.shape)  # (B, N)
        going = _Going(attention_mask, sequence_mask, sources)
        for i, layer in enumerate(self.layers):
            *selected, cells = lists[i]
            attention = cast(_TracedBlock, layer).attention
            sequences = None if attention is None else self._sequences(going.real, attention.own)
            x, going, found = layer(x, going, sequences, selected, cells, None if given is None else given[i])
            last = i + 1 == len(self.layers)
            states.append(_select(self.final_norm(x) if last else x, tokens[i + 1]))
            observed += found
        return (*states, *observed)

    def _sequences(self, real: Tensor, attention: SelfAttention) -> "_Sequences":
        """Describe the sequences to a layer that attends; `real` (B, N) is as in `_Going`."""
        config, (count, length) = self.config, real.shape
        kinds = config.disentangled
        mask = real.bool()[:, None, None, :].expand(count, 1, length, length)
        pairs = visible(length, real.device, causal=config.causal, window=attention.layer.window)
        bias, relative = None, config.relative_bias
        if relative is not None:
            table = attention.relative_bias if relative.per_layer else self.relative_bias
            bias = relative_bias(cast(Tensor, table), length, relative)  # (H, 2·N − 1)
        elif config.alibi:
            bias = alibi(config.num_heads, length, real.device)
        rows = None if kinds is None else distance_rows(distances(length, real.device), kinds)
        return _Sequences(mask if pairs is None else mask & pairs, bias, rows)


class _Going(NamedTuple):
    """Which tokens continue from layer to layer: int64 (B, N) each."""

    # 1 for tokens that are attended to, and 0 for padding.
    real: Tensor
    # 1 for all tokens and 0 for padding, if there are short convolutions.
    present: Tensor | None
    # Where each token was in the flattened batch at first, if layers get inputs from hidden state 0.
    sources: Tensor | None

    def select(self, cells: Tensor) -> "_Going":
        """Return these tensors for the tokens `cells` (B, N) only."""
        real, *others = self

        def of(one: Tensor) -> Tensor:
            return F.embedding(cells, one.reshape(-1, 1)).squeeze(-1)  # (B, N)

        return _Going(of(real), *(one if one is None else of(one) for one in others))


class _Sequences(NamedTuple):
    """What a layer that attends needs to know about the padded sequences."""

    # Which keys each query attends to: bool (B, 1, N, N), contiguous, as the runtime's kernel requires.
    mask: Tensor
    # Added to the scores, by distance: (H, 2·N − 1).
    bias: Tensor | None
    # The rows of the distances 1 − N to N − 1 in the tables of positions: int64 (2·N − 1,).
    rows: Tensor | None


class _Selected(NamedTuple):
    """What to observe in a layer: int64 lists, each of which may be empty."""

    heads: Tensor  # of softmax weights
    rows: Tensor  # of softmax weights: positions of queries
    pair_heads: Tensor  # of queries and keys
    norm_heads: Tensor  # of value norms


class _TracedBlock(nn.Module):
    """A block of the encoder over padded sequences."""

    def __init__(self, encoder: Encoder, block: Block) -> None:
        super().__init__()
        self.block = block
        self.attention = None if block.attention is None else _TracedAttention(encoder, block.attention)

    def forward(
        self,
        x: Tensor,
        going: _Going,
        sequences: _Sequences | None,
        selected: Sequence[Tensor],
        cells: Tensor,
        given: Tensor | None,
    ) -> tuple[Tensor, _Going, list[Tensor]]:
        """Run the block on x (B, N, C); `given` is its input from hidden state 0, for all original tokens.

        Returns the next x, for the tokens `cells` (B, N) that continue; which tokens these are; and what
        `_TracedAttention` observes.
        """
        observed: list[Tensor] = []

        def attend(x: Tensor) -> Tensor:
            if self.attention is None:
                short = cast(GatedConvolution, self.block.short_convolution)
                return short.run_padded(x, cast(Tensor, going.present).bool())
            output, found = self.attention(x, sequences, _Selected(*selected))
            observed.extend(found)
            return cast(Tensor, output)

        def convolve(convolution: TokenConvolution, x: Tensor) -> Tensor:
            return cast(Tensor, convolution(x * going.real[..., None]))

        x = self.block(x, attend, convolve, lambda x: F.embedding(cells, x.flatten(0, 1)))
        left = going.select(cells)
        if given is not None:
            own = F.embedding(cast(Tensor, left.sources), given.flatten(0, 1))  # (B, N, P)
            x = cast(PerLayerGate, self.block.per_layer)(x, own)
        return x, left, observed


class _TracedAttention(nn.Module):
    """Attention with separate products for queries, keys and values, which can be observed."""

    def __init__(self, encoder: Encoder, attention: SelfAttention) -> None:
        super().__init__()
        self.config = config = attention.config
        self.own = attention
        self.query, self.key, self.value = _split(attention.qkv, config.qkv_rows)
        self.output = attention.output
        self.factor = nn.Parameter(attention.factor_output(), requires_grad=False)  # (H, D, D)
        vectors = encoder.project_positions(attention) if config.disentangled else (None, None)
        self.position_keys, self.position_queries = map(_turned, vectors)  # (H, D, 2·span) each

    def forward(self, x: Tensor, sequences: _Sequences, selected: _Selected) -> tuple[Tensor, list[Tensor]]:
        """Attend in x (B, N, C); returns the output (B, N, C) and the observations.

        These are softmax weights (B, heads, rows, N), queries and keys (B, heads, N, D) each, and value norms
        (B, heads, N).
        """
        q, k, v = self._project(x)
        return self._mix(q, k, v, sequences), self._observe(q, k, v, sequences, selected)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Turn hidden states (B, N, C) into queries, keys and values, each (B, H, N, D)."""
        attention, size = self.own, self.config.head_size
        q, k, v = (linear(x).view(*x.shape[:2], -1, size) for linear in (self.query, self.key, self.value))
        q, k, v = attention.normalize(q, k, v)
        if attention.layer.rotary is not None:
            positions = torch.arange(x.shape[1], device=x.device)
            angles = rotary_angles(positions, attention.layer.rotary)
            q, k = attention.rotate(q, angles), attention.rotate(k, angles)
        groups = self.config.num_heads // self.config.kv_heads
        if groups > 1:
            k, v = k.repeat_interleave(groups, dim=2), v.repeat_interleave(groups, dim=2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, sequences: _Sequences) -> Tensor:
        """Attend within each sequence: q, k, v (B, H, N, D) to the attention output (B, N, C)."""
        if self.config.similarity == "dot_product":
            mixed = self._fused(q, k, v, sequences)
        else:
            weights = self._softmax(self._prepare(q), self._prepare(k), sequences)
            mixed = weights.to(v.dtype) @ v  # (B, H, N, D)
        output: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return output

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, sequences: _Sequences) -> Tensor:
        """Attend by dot products, with the runtime's own operator: q, k, v (B, H, N, D) to the same shape."""
        mask, bias, places = sequences
        added, scale = mask, self.config.score_scale
        if bias is not None:
            added = torch.where(mask, by_query_and_key(bias, q.shape[2]), -torch.inf).to(q.dtype)
        if places is not None:
            added = torch.where(mask, self._position_scores(q, k, self._vectors(places)) * scale, -torch.inf)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=scale)

    def _observe(
        self, q: Tensor, k: Tensor, v: Tensor, sequences: _Sequences, selected: _Selected
    ) -> list[Tensor]:
        """Compute the selected observations of one layer from its q, k, v (B, H, N, D), all in float32."""
        heads, pairs = selected.heads, selected.pair_heads
        rows = self._prepare(q.index_select(1, heads).index_select(2, selected.rows), heads)
        keys = self._prepare(k.index_select(1, heads), heads)
        terms = None
        if sequences.rows is not None:
            own = [
                x if x is None else x.index_select(0, heads).float() for x in self._vectors(sequences.rows)
            ]
            scores = self._position_scores(q.index_select(1, heads).float(), keys, own)
            terms = scores.index_select(2, selected.rows) * self.config.score_scale
        observed = [
            self._softmax(rows, keys, sequences, heads, selected.rows, terms),
            self._prepare(q.index_select(1, pairs), pairs),
            self._prepare(k.index_select(1, pairs), pairs),
            self._norms(v, selected.norm_heads),
        ]
        added = [sequences.bias] if sequences.rows is None else self._vectors(sequences.rows)
        present = [one for one in added if one is not None]
        return [*observed, *(one.index_select(0, selected.pair_heads).float() for one in present)]

    def _prepare(self, x: Tensor, heads: Tensor | None = None) -> Tensor:
        """Turn queries or keys (B, heads, N, D), of all heads or of those listed, into what is compared."""
        metric = self.own.metric
        chosen = None if metric is None else _listed(metric, 0, heads)
        return prepare(x, self.config.similarity, chosen)

    def _softmax(
        self,
        q: Tensor,
        k: Tensor,
        sequences: _Sequences,
        heads: Tensor | None = None,
        rows: Tensor | None = None,
        terms: Tensor | None = None,
    ) -> Tensor:
        """Compute softmax weights in float32, (B, heads, rows, N), from what `_prepare` made.

        The queries are those of all heads and positions, or of the lists `heads` and `rows`. `terms` are
        added to the scores.
        """
        mask, bias, _ = sequences
        scores = compare(q, k, self.config.similarity, self.config.score_scale)
        if terms is not None:
            scores = scores + terms
        if bias is not None:
            pairs = by_query_and_key(_listed(bias, 0, heads), k.shape[2])  # (heads, N, N)
            scores = scores + _listed(pairs, 1, rows)
        # Without windows all rows of a bidirectional model's mask are equal, so one row is enough.
        plain = not (self.config.causal or self.own.layer.window)
        mask = mask[:, :, :1] if plain else _listed(mask, 2, rows)
        return torch.softmax(torch.where(mask, scores, _LOWEST), dim=-1)

    def _vectors(self, rows: Tensor) -> list[Tensor | None]:
        """Look up the keys and the queries of positions by distance: (H, D, 2·N − 1) each, or None."""
        tables = self.position_keys, self.position_queries
        return [x if x is None else x.index_select(2, rows) for x in tables]

    def _position_scores(self, q: Tensor, k: Tensor, vectors: list[Tensor | None]) -> Tensor:
        """Compare queries and keys (B, heads, N, D) with those of positions (heads, D, 2·N − 1).

        Returns the terms of the scores, (B, heads, N, N), of `disentangled.position_scores`, but by distance
        instead of by bucket: in a graph, the length decides how many distances there are.
        """
        keys, queries = vectors
        terms = []
        if keys is not None:
            terms.append(_align(q @ keys))
        if queries is not None:
            terms.append(_align(k @ queries.flip(2)).transpose(2, 3))
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]

    def _norms(self, v: Tensor, heads: Tensor) -> Tensor:
        """Compute ‖f_h(x_j)‖ of the listed heads, in float32: (B, heads, N)."""
        values = v.index_select(1, heads).float() @ self.factor.index_select(0, heads)
        return torch.linalg.vector_norm(values, dim=-1)


def _turned(vectors: Tensor | None) -> nn.Parameter | None:
    """Transpose vectors of positions (H, R, D) into a table (H, D, R).

    ONNX Runtime 1.31 crashes if it fuses a transposition in the graph with a product in float16.
    """
    if vectors is None:
        return None
    return nn.Parameter(vectors.transpose(1, 2).clone(), requires_grad=False)


def _align(x: Tensor) -> Tensor:
    """Reorder numbers from distance to the row, (B, heads, N, 2·N − 1), to column: (B, heads, N, N).

    With one more column, the rows, end to end, shift by one at each row (Dai et al. 2019, appendix B).
    """
    count, heads, length, _ = x.shape
    shifted = F.pad(x, (0, 1)).flatten(2)[..., length - 1 :]
    return shifted[..., : length * (2 * length - 1)].view(count, heads, length, -1)[..., :length]


def _split(qkv: Linear, rows: tuple[int, int, int]) -> tuple[Linear, Linear, Linear]:
    """Split a linear layer into those for queries, keys and values, with `rows` outputs each."""
    weights = torch.split(qkv.weight.data, list(rows))
    biases = (None,) * len(rows) if qkv.bias is None else torch.split(qkv.bias.data, list(rows))
    parts = []
    for weight, bias in zip(weights, biases, strict=True):
        linear = Linear(weight.shape[1], len(weight), bias=bias is not None)
        linear.weight.data = weight.clone()
        if linear.bias is not None and bias is not None:
            linear.bias.data = bias.clone()
        parts.append(linear)
    query, key, value = parts
    return query, key, value


def _count_real(chosen: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Count the chosen tokens, bool (B, N), and all tokens in each sequence, without padding: (B, 1) each."""
    return (chosen & real.bool()).sum(-1, keepdim=True), real.sum(-1, keepdim=True)


def _listed(x: Tensor, axis: int, indices: Tensor | None) -> Tensor:
    """Select the listed positions along an axis; all of them without a list."""
    return x if indices is None else x.index_select(axis, indices)


def _select(x: Tensor, tokens: Tensor) -> Tensor:
    """Select tokens from hidden states (B, N, C) by their index in the flattened batch (B·N): (tokens, C)."""
    return x.flatten(0, 1).index_select(0, tokens)
